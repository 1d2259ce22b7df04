"""Models of one's own beside the shared one: Ditto."""

from __future__ import annotations

import copy
import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rffl_pl.adversaries import FreeRider, LabelFlip
from rffl_pl.datamodules import Digits, FederatedDataModule
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.models import Perceptron
from rffl_pl.models.sizes import memory
from rffl_pl.module import FederatedModule
from rffl_pl.rehearsal.checks import check_memory
from rffl_pl.runs import RunFolder
from rffl_pl.servers import RFFL, FedAvg, Standalone
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import flat_parameters
from tests.conftest import QUICK, Ended, only_run
from tests.ranks import assert_goes_on
from tests.runs import Diary, digits, federate, whole

RUN = (
    "fit", "--config", "configs/digits.yaml", "--federation.participants", 3, "--federation.adversaries", 1,
    "--data.examples_per_participant", 40, "--data.adversary_examples", 40, "--trainer.max_epochs", 3, *QUICK,
)  # fmt: skip
PULL = 0.7


def locally(
    data: FederatedDataModule, i: int, number: int, network: nn.Module, anchor: Tensor | None
) -> tuple[nn.Module, Tensor]:
    """A plain training loop of a round on one participant's examples: the network after it, and how far it moved."""
    network = copy.deepcopy(network).train()
    before = flat_parameters(network)
    stepper = torch.optim.SGD(network.parameters(), lr=0.1)
    shard = Shard(data._reader_of(i), data.shards[i], data.batch_size)
    torch.manual_seed(data.federation.seed_for("training", i, number))
    for epoch in range(3):
        stepper.param_groups[0]["lr"] = 0.1 * 0.977 ** (3 * number + epoch)
        for x, y in shard.epoch():
            stepper.zero_grad()
            loss = cross_entropy(network(x), y)
            if anchor is not None:
                flat = torch.cat([p.flatten() for p in network.parameters()])
                loss = loss + PULL / 2 * ((flat - anchor) ** 2).sum()
            loss.backward()
            stepper.step()
    return network, flat_parameters(network) - before


def ditto(data: FederatedDataModule, network: nn.Module, rounds: int) -> list[Tensor]:
    """Algorithm 1 of the paper with FedAvg, the personal models of all."""
    sizes = torch.tensor(data.shard_sizes, dtype=torch.float32)
    shared, own = copy.deepcopy(network), [copy.deepcopy(network) for _ in data.shard_sizes]
    for number in range(rounds):
        start = flat_parameters(shared)
        own = [locally(data, i, number, mine, start)[0] for i, mine in enumerate(own)]
        updates = [locally(data, i, number, shared, None)[1] for i in range(len(own))]
        step = (sizes / sizes.sum()) @ torch.stack(updates)
        nn.utils.vector_to_parameters(start + step, shared.parameters())
    return [flat_parameters(mine) for mine in own]


@pytest.fixture
def data() -> FederatedDataModule:
    """The examples of `federate`, outside its run."""
    return digits(Federation(participants=5, seed=1))


def personal(module: FederatedModule) -> Tensor:
    assert module.personal is not None
    return module.personal.weights


def test_as_in_the_paper(data: FederatedDataModule) -> None:
    """Anything else than its formula: another anchor, another order, gradients of the shared model."""
    torch.manual_seed(1)
    expected = ditto(data, Perceptron(64, 64, 10), 2)
    module = federate(FedAvg(), rounds=2, personal=PULL)
    for mine, theirs in zip(personal(module), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_without_a_pull_it_is_training_alone() -> None:
    """A model of one's own hears of the others in another way than by the pull."""
    alone, module = federate(Standalone(), rounds=3), federate(RFFL(), rounds=3, personal=1e-30)
    assert torch.equal(personal(module), alone.cohort.weights)


class Moody(LabelFlip):
    """Flips the labels of every second batch that it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.diary = Diary()

    def poison(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        self.diary.lines.append("asked")
        return super().poison(x, y) if len(self.diary.lines) % 2 else (x, y)


def test_the_shared_models_do_not_hear_of_it() -> None:
    """What is uploaded depends on whether somebody has a model of its own, or an adversary trains one too."""
    without, module = (federate(RFFL(), [Moody()], rounds=3, personal=pull) for pull in (0.0, PULL))
    assert torch.equal(module.cohort.weights, without.cohort.weights)
    assert module.losses == without.losses
    assert torch.equal(personal(module)[5], module.cohort.weights[5])
    assert module.personal_losses.keys() == {*range(5)}


def test_the_stronger_the_nearer() -> None:
    """A stronger pull leaves somebody as far from where the round began as a weaker one."""
    distances = []
    for pull in (0.1, 1.0, 5.0):
        module = federate(FedAvg(), rounds=1, personal=pull)
        distances.append((personal(module) - module.initial_weights()).norm(dim=1))
    assert (distances[0] > distances[1]).all()
    assert (distances[1] > distances[2]).all()


def test_an_adversary_takes_home_what_is_shared() -> None:
    """A free-rider, who trains nothing, is measured with the network that it began with."""
    module = federate(FedAvg(), [FreeRider()], rounds=2, personal=PULL)
    assert torch.equal(personal(module)[5], module.cohort.weights[5])
    assert not torch.equal(personal(module)[4], module.cohort.weights[4])


def test_a_model_is_taken_over_with_its_buffers() -> None:
    """An adversary is measured with the running statistics of a network that it never trained."""
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    one, other = (Cohort(network, [4, 7], torch.optim.SGD, torch.device("cpu")) for _ in range(2))
    for net in other.networks:
        net.train()(torch.randn(8, 3))
    start = one.weights[0].clone()
    other.weights += 1
    one.take_over(1, other)
    assert torch.equal(one.weights, torch.stack([start, other.weights[1]]))
    means = [[net.get_buffer("1.running_mean") for net in cohort.networks] for cohort in (one, other)]
    assert torch.equal(means[0][1], means[1][1])
    assert not torch.equal(means[0][0], means[1][0])
    one.weights += 1
    assert not torch.equal(one.weights[1], other.weights[1])  # it is no view


def test_what_is_measured_and_left(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Accuracies or exported weights are the shared model's, or tests and predictions of a checkpoint are.

    Under FedAvg that is one for all: who measures it measures it once.
    """
    run = (*RUN, "--server", "FedAvg")
    ended = rffl(*run, "--model.personal", PULL, "--run.root", tmp_path / "own")
    assert ended.code == 0, ended.err
    assert rffl(*run, "--run.root", tmp_path / "shared").code == 0
    own, shared = only_run(tmp_path / "own"), only_run(tmp_path / "shared")
    states = [[torch.load(path) for path in sorted((folder / "weights").iterdir())] for folder in (own, shared)]
    differ = [any(not torch.equal(a[name], b[name]) for name in a) for a, b in zip(*states, strict=True)]
    assert differ == [True, True, True, False]  # the adversary has no model of its own
    data = Digits(Federation(participants=3, adversaries=1, seed=1), examples_per_participant=40, adversary_examples=40)
    data.setup("fit")
    x, y = whole(data.test_dataloader())
    networks = [Perceptron(64, 64, 10) for _ in range(4)]
    for network, (state, _) in zip(networks, zip(*states, strict=True), strict=True):
        network.load_state_dict(state)
    expected = [float((network(x).argmax(1) == y).float().mean()) for network in networks]
    assert len({*expected}) > 1
    assert RunFolder.open(own).summary().final == pytest.approx(expected)
    watched = whole(data.val_dataloader())
    last = RunFolder.open(own).rounds()[-1].measures
    assert last["accuracy"] == pytest.approx(
        [float((net(watched[0]).argmax(1) == watched[1]).float().mean()) for net in networks]
    )
    assert all(loss < 3 for loss in last["personal_loss"][:3])
    given = (*run[1:], "--ckpt_path", own / "checkpoints" / "last.ckpt", "--run.root", tmp_path / "later")
    for command in ("test", "predict"):
        assert rffl(command, *given, "--model.personal", PULL).code == 0
    (scores,) = (tmp_path / "later").rglob("scores.json")
    assert json.loads(scores.read_text())["scores"]["accuracy"] == pytest.approx(expected)
    for i, network in enumerate(networks):
        (path,) = (tmp_path / "later").rglob(f"predictions/participant_{i}.csv")
        found = [int(row["class"]) for row in csv.DictReader(path.open())]
        assert found == network(whole(data.predict_dataloader())[0]).argmax(1).tolist()
    assert "These are the models that participants share" in rffl("test", *given).err


@pytest.mark.slow
def test_two_ranks_and_going_on(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Other bits on two ranks, or a run that goes on forgets the models, or their optimizers, of its participants."""
    run = (
        *RUN, "--model.personal", PULL, "--model.optimizer.momentum", 0.5, "--federation.participation", 0.7,
        "--server.removal_from", 1, "--server.alpha", 0, "--server.similarity", "leave_one_out",
    )  # fmt: skip
    assert_goes_on(rffl, run, tmp_path)
    assert not all(RunFolder.open(only_run(tmp_path / "begun")).rounds()[-1].members)  # who is removed goes on


def test_models_that_diverge(rffl: Callable[..., Ended]) -> None:
    """They are measured and left without a word, whether their weights end as numbers or not."""
    ended = rffl(*RUN, "--model.personal", 1e30)
    assert ended.code == 0, ended.err
    said = "Round 1: participant 1's own model has a training loss that is not finite: it goes on from where"
    assert said in " ".join(ended.err.split()), ended.err
    told = "training losses of own models that were not finite: participant 0 in {} rounds, participant 1 in {}"
    assert told.format(2, 3) in ended.out
    gone_on = rffl(*RUN, "--model.personal", 1e30, "--trainer.max_epochs", 4, "--ckpt_path", "last")
    assert told.format(3, 4) in gone_on.out, gone_on.err  # those of before count
    assert (
        "--model.personal 100 times the learning rate, 0.1, is not below 2" in rffl(*RUN, "--model.personal", 100).err
    )


def test_a_checkpoint_without_them(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """A run goes on with models that began anew in its middle, or ends in a traceback."""
    assert rffl(*RUN, "--trainer.max_epochs", 1, "--run.root", tmp_path / "begun").code == 0
    checkpoint = only_run(tmp_path / "begun") / "checkpoints" / "last.ckpt"
    ended = rffl(*RUN, "--model.personal", PULL, "--ckpt_path", checkpoint)
    assert ended.code == 2
    assert "Expected the checkpoint of a run with --model.personal, but it has no personal models" in ended.err


def test_models_that_do_not_fit() -> None:
    """Twice as many participants are counted, or the option that doubles the need is not named."""
    room = memory(torch.device("cpu"))
    check_memory(room // 33, 2, torch.device("cpu"), {"--model.personal": 2})
    with pytest.raises(UserError, match=r"models of 2 participants .* leave --model\.personal out, lower"):
        check_memory(room // 31, 2, torch.device("cpu"), {"--model.personal": 2})
    check_memory(room // 31, 2, torch.device("cpu"), {"--model.personal": 0})


@pytest.mark.parametrize("pull", [-1.0, float("nan"), float("inf"), 1e39])
def test_what_is_no_pull(pull: float) -> None:
    """It is taken all the same."""
    with pytest.raises(UserError, match=r"Expected --model\.personal to be 0 or more and finite, but got"):
        federate(FedAvg(), personal=pull)


def test_nothing_is_shared() -> None:
    """Models are drawn to others that are their own already, at twice the cost."""
    with pytest.raises(UserError, match=r"something to share with --model\.personal, but got Standalone"):
        federate(Standalone(), personal=PULL)
