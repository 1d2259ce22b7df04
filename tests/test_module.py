"""The module of a run: what it tells the server, what it measures, and how it takes adversaries."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss
from torch import Tensor, nn

from rffl_pl.adversaries import FreeRider, LabelFlip, SignRandom
from rffl_pl.callbacks import ReputationExchange
from rffl_pl.callbacks.find import find
from rffl_pl.errors import UserError
from rffl_pl.evaluation import how_many
from rffl_pl.federation import Federation
from rffl_pl.models import Perceptron
from rffl_pl.module import FederatedModule
from rffl_pl.servers import CFFL, RFFL, FedAvg, Server, SignSGD, Standalone
from tests.conftest import QUICK, Ended
from tests.runs import Recorded, RecordedCFFL, RecordedFedAvg, federate, training_examples, whole


class Hearing(Recorded, FedAvg):
    """The mean, which also hears losses."""

    hears_losses = True


def logits_of(weights: Tensor, x: Tensor) -> Tensor:
    """What the digits' network computes with these weights ``[D]``."""
    network = Perceptron(64, 64, 10)
    nn.utils.vector_to_parameters(weights.clone(), network.parameters())
    with torch.no_grad():
        logits: Tensor = network(x)
    return logits


@pytest.mark.parametrize(
    ("last", "loss", "times"),
    [
        (nn.Softmax(1), None, 1),
        (nn.Softmax(1), nn.CrossEntropyLoss(), 1),
        (nn.Softmax(1), nn.MultiMarginLoss(), 0),
        (nn.LogSoftmax(1), None, 0),
        (nn.ReLU(), None, 0),
    ],
)
def test_probabilities_in_place_of_logits_are_told(last: nn.Module, loss: nn.Module | None, times: int) -> None:
    """A network that ends in a softmax hardly learns and nobody says why, or another is taken for one."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        federate(FedAvg(), rounds=1, network=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10), last), loss=loss)
    assert sum("leave its last softmax out" in str(each.message) for each in told) == times


@pytest.mark.parametrize(
    ("last", "loss", "told"),
    [
        (nn.ReLU(), nn.NLLLoss(), True),
        (nn.LogSoftmax(1), nn.NLLLoss(), False),
        (nn.ReLU(), nn.MultiMarginLoss(), False),
    ],
)
def test_logits_in_place_of_logarithms_are_told(last: nn.Module, loss: nn.Module, told: bool) -> None:
    """Its loss falls without end, and nothing is learnt."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        federate(FedAvg(), rounds=1, network=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10), last), loss=loss)
    assert any("or end the network in LogSoftmax" in str(each.message) for each in caught) == told


@pytest.mark.parametrize("split", ["POW", "CLA"])
def test_what_a_server_is_told(split: str) -> None:
    """The task has everybody's examples and classes, the model's layers and initial weights, and a learning rate."""
    server = RecordedFedAvg()
    module = federate(server, [LabelFlip()], rounds=1, split=split, examples_per_participant=60)
    task, data = server.task, module.data
    labels = training_examples(data)[1].numpy()
    assert list(task.examples) == [len(shard) for shard in data.shards]
    assert list(task.classes) == [len(set(labels[shard.numpy()])) for shard in data.shards]
    assert list(task.layers) == [64 * 64, 64, 64 * 10, 10]
    assert task.learning_rate == 0.1
    torch.manual_seed(1)
    assert torch.equal(task.initial, nn.utils.parameters_to_vector(Perceptron(64, 64, 10).parameters()))


def test_the_servers_seed_is_the_runs() -> None:
    """The same in every run of a seed, another for another seed, and not a participant's."""
    seeds = []
    for seed in (1, 1, 2):
        server = RecordedFedAvg()
        federate(server, rounds=1, seed=seed)
        seeds.append(server.task.seed)
    assert seeds[0] == seeds[1] != seeds[2]
    assert seeds[0] == Federation(participants=5, seed=1).seed_for("server")


def test_accuracy_for_the_server() -> None:
    """It is scikit-learn's on the held-out examples, whatever the participants' weights, which it leaves alone."""
    server = RecordedCFFL()
    module = federate(server, rounds=1)
    data = module.data
    x, y = whole(data.held_out_dataloader())
    assert len(y) == len(data.held_out) == 144
    before = module.cohort.weights.clone()
    assert server.task.accuracy is not None
    for weights in (server.task.initial, *module.cohort.weights, torch.zeros(sum(server.task.layers))):
        assert server.task.accuracy(weights) == accuracy_score(y, logits_of(weights, x).argmax(1))
    assert torch.equal(module.cohort.weights, before)
    assert torch.equal(nn.utils.parameters_to_vector(module.network.parameters()), server.task.initial)


def test_no_accuracy_without_held_out_examples() -> None:
    """With validation 0 nothing is held out; a server that needs it says which option to give."""
    server = RecordedFedAvg()
    federate(server, rounds=1, validation=0, watch="test")
    assert server.task.accuracy is None
    with pytest.raises(UserError, match=r"--data holds none out; give --data\.validation 0\.1, under .* another"):
        federate(CFFL(), rounds=1, validation=0, watch="test")


def test_losses_that_a_server_hears() -> None:
    """What participants report is their loss before the local training, on the labels that they train with."""
    server = Hearing()
    module = federate(server, [LabelFlip()], rounds=1)
    data = module.data
    x, y = training_examples(data)
    heard = server.reported[0]
    assert heard is not None
    for participant, shard in enumerate(data.shards):
        claimed = np.where(y[shard] == 1, 7, y[shard]) if participant == 5 else y[shard].numpy()
        probabilities = logits_of(server.task.initial, x[shard]).double().softmax(1).numpy()
        expected = log_loss(claimed, probabilities, labels=range(10))
        assert float(heard[participant]) == pytest.approx(expected, rel=1e-6)


def test_losses_are_not_asked_for_in_vain() -> None:
    """A server that does not hear losses gets none."""
    server = RecordedFedAvg()
    federate(server, rounds=1)
    assert server.reported == [None]


@pytest.mark.parametrize("flips", [True, False])
def test_scores(flips: bool) -> None:
    """Accuracy, loss and, with a label flip, its two rates are scikit-learn's of every hosted model."""
    module = federate(Standalone(), [LabelFlip(source=3, target=8) if flips else FreeRider()], rounds=2)
    scores = module.score(module.data.test_dataloader(), module.cohort, "evaluation")
    assert list(scores) == ["accuracy", "loss", *(["target_accuracy", "attack_success"] if flips else [])]
    x, y = whole(module.data.test_dataloader())
    for index, weights in enumerate(module.cohort.weights):
        logits = logits_of(weights, x)
        assert float(scores["accuracy"][index]) == pytest.approx(accuracy_score(y, logits.argmax(1)), abs=1e-6)
        expected = log_loss(y, logits.double().softmax(1).numpy(), labels=range(10))
        assert float(scores["loss"][index]) == pytest.approx(expected, rel=1e-5)
        if flips:
            row = confusion_matrix(y, logits.argmax(1), labels=range(10), normalize="true")[3]
            assert float(scores["target_accuracy"][index]) == pytest.approx(row[3], abs=1e-6)
            assert float(scores["attack_success"][index]) == pytest.approx(row[8], abs=1e-6)


def test_scores_of_equal_models() -> None:
    """Under a consensus all have one model: it is measured once and its scores are everybody's."""
    module = federate(FedAvg(), [LabelFlip()], rounds=1)
    for values in module.score(module.data.test_dataloader(), module.cohort, "evaluation").values():
        assert values.shape == (6,)
        assert len(values.unique()) == 1
        assert values.isfinite().all()


def test_attacks_in_turn() -> None:
    """Adversary j carries out attack j modulo the number of attacks, and the honest none."""
    attacks = [FreeRider(), SignRandom(), LabelFlip()]
    for adversaries in (0, 3, 7):
        federation = Federation(participants=2, adversaries=adversaries)
        module = FederatedModule(federation, nn.Linear(1, 1), adversaries=attacks)
        assert module.cast.attacks.keys() == set(range(2, 2 + adversaries))
        expected = [attacks[j % 3] for j in range(adversaries)]
        assert list(module.cast.attacks.values()) == expected


D = 64 * 64 + 64 + 640 + 10


@pytest.mark.parametrize(
    ("server", "size"),
    [(FedAvg(), 4 * D), (RFFL(), 4 * D), (SignSGD(), 1 + -(-D // 8)), (CFFL(), 8 * (D // 10)), (Hearing(), 4 * D + 8)],
    ids=["fedavg", "rffl", "sign_sgd", "cffl", "hearing"],
)
def test_bytes_of_a_run(server: Server, size: int) -> None:
    """A real round counts what its server's wire format sends: float32, packed bits, or values and positions."""
    exchange = find(federate(server, [FreeRider()], rounds=1).trainer, ReputationExchange)
    assert exchange is not None
    assert exchange.traffic is not None
    assert exchange.traffic.up == [size] * 6


def test_nothing_is_counted_where_nobody_communicates() -> None:
    """Alone, there is no traffic."""
    exchange = find(federate(Standalone(), rounds=1).trainer, ReputationExchange)
    assert exchange is not None
    assert exchange.traffic is None


def test_network_without_parameters(rffl: Callable[..., Ended]) -> None:
    """One sentence that names the network's option, not the optimizer's."""
    ended = rffl("fit", "--config", "configs/digits.yaml", *QUICK, "--model.network", "torch.nn.ReLU")
    assert ended.code == 2
    (error,) = (line for line in ended.err.splitlines() if line.startswith("Error: "))
    assert "--model.network" in error
    assert "--model.optimizer" not in error


def test_a_share_of_the_batches() -> None:
    """Others are measured on than Lightning would take."""
    batches: Any = [()] * 10
    assert [how_many(batches, limit) for limit in (0.27, 0.01, 1.0, 3)] == [2, 1, 10, 3]
