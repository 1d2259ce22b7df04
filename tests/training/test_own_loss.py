"""What participants train by, where that is not cross-entropy."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import flat_parameters
from rffl_pl.training.schedule import Schedule
from rffl_pl.training.stack import Stack, Turn, refusal
from tests.cli.folders import assert_same_bits
from tests.cohorts import (
    CPU,
    FEDERATION,
    adam,
    dropout,
    examples,
    losses_of,
    mlp,
    momentum,
    sgd,
    train_round,
)
from tests.conftest import QUICK, Ended, only_run
from tests.ranks import forked
from tests.training.test_stack import SIZES, alone_in_double, shards

RUN = (
    "fit", "--config", "configs/digits.yaml", "--federation.participants", 3, "--federation.adversaries", 1,
    "--data.examples_per_participant", 40, "--data.adversary_examples", 40, "--trainer.max_epochs", 3, *QUICK,
)  # fmt: skip
SMOOTH = ("--model.loss", "torch.nn.CrossEntropyLoss", "--model.loss.label_smoothing", 0.2)
WEIGHTED = ("--model.loss", "torch.nn.CrossEntropyLoss", "--model.loss.weight", "[1,1,1,1,1,1,1,1,1,4]")


class Focal(nn.Module):
    """Somebody's own: what is told well already counts for little."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        told = logits.log_softmax(1).gather(1, y.unsqueeze(1)).squeeze(1)
        return -((1 - told.exp()) ** 2 * told).mean()


class Single(nn.Module):
    """Somebody's own, which puts logits among numbers of single precision."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        told = torch.zeros(logits.shape).scatter(1, y.unsqueeze(1), logits.gather(1, y.unsqueeze(1)))
        return (logits.logsumexp(1) - told.sum(1)).mean()


class Hardest(nn.Module):
    """Somebody's own, which goes by the worse half of a batch."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        each = cross_entropy(logits, y, reduction="none")
        return each.topk(-(-len(each) // 2)).values.mean()


class Flooded(nn.Module):
    """Somebody's own, which does not go below a level: of a batch, not of each example."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        return (cross_entropy(logits, y) - 0.05).abs() + 0.05


class Capped(nn.Module):
    """Likewise, above one."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(logits, y).clamp(max=5)


class Dropping(nn.Module):
    """Somebody's own, which draws."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(nn.functional.dropout(logits, 0.5), y)


def plainly(name: str, logits: Tensor, y: Tensor) -> Tensor:
    """The losses below, written apart."""
    told, rows = logits - logits.logsumexp(1, keepdim=True), torch.arange(len(y))
    if name == "smooth":
        return -(0.8 * told[rows, y] + 0.2 * told.mean(1)).mean()
    if name == "weighted":
        weights = torch.tensor([1.0, 2.0, 5.0], dtype=logits.dtype)[y]
        return -(weights * told[rows, y]).sum() / weights.sum()
    if name == "focal":
        return -((1 - told[rows, y].exp()).square() * told[rows, y]).mean()
    if name == "drawn":
        return cross_entropy(nn.functional.dropout(logits, 0.5), y)
    each = (-told[rows, y]).sort(descending=True).values
    return each[: (len(y) + 1) // 2].mean()


LOSSES: dict[str, Callable[[], nn.Module]] = {
    "smooth": lambda: nn.CrossEntropyLoss(label_smoothing=0.2),
    "weighted": lambda: nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 5.0])),
    "focal": Focal,
    "hardest": Hardest,
    "drawn": Dropping,
}
BENT: dict[str, Callable[[], nn.Module]] = {"flooded": Flooded, "capped": Capped}


def newcomer(name: str, network: nn.Module, participant: int, optimizer: Any) -> tuple[Tensor, float]:
    """The weights and the last epoch's mean loss of a plain training loop: two rounds of two epochs."""
    network = copy.deepcopy(network).train()
    stepper = optimizer(network.parameters())
    rate, total, seen = stepper.param_groups[0]["lr"], 0.0, 0
    for number in range(2):
        torch.manual_seed(FEDERATION.seed_for("training", participant, number))
        for epoch in range(2):
            stepper.param_groups[0]["lr"] = rate * 0.9 ** (2 * number + epoch)
            total, seen = 0.0, 0
            for x, y in examples(participant).epoch():
                stepper.zero_grad()
                loss = plainly(name, network(x), y)
                loss.backward()
                stepper.step()
                total, seen = total + loss.item() * len(y), seen + len(y)
    return flat_parameters(network), total / seen


def trained(loss: nn.Module | None, network: nn.Module, optimizer: Any) -> tuple[Cohort, dict[int, float]]:
    """Two participants after the same two rounds, and their losses."""
    cohort, schedule = Cohort(network, [1, 4], optimizer, CPU, loss=loss), Schedule(epochs=2, decay=0.9)
    for number in range(2):
        losses = train_round(cohort, {1: examples(1), 4: examples(4)}, schedule, FEDERATION, number)
    return cohort, losses


@pytest.mark.parametrize("network", [mlp, dropout])
@pytest.mark.parametrize("optimizer", [sgd, momentum, adam])
@pytest.mark.parametrize("name", LOSSES)
def test_training_is_what_a_newcomer_would_write(name: str, network: Any, optimizer: Any) -> None:
    """The weights and the reported loss are a plain loop's with that loss, and not those of cross-entropy."""
    (cohort, losses), (other, _) = (trained(loss, network(), optimizer) for loss in (LOSSES[name](), None))
    for index, participant in enumerate([1, 4]):
        weights, loss = newcomer(name, network(), participant, optimizer)
        assert torch.allclose(cohort.weights[index], weights, atol=1e-5)
        assert losses[participant] == pytest.approx(loss, abs=1e-5)
        assert not torch.allclose(other.weights[index], weights, atol=1e-3)


@pytest.mark.parametrize("network", [mlp, dropout])
@pytest.mark.parametrize("name", ["smooth", "weighted", "hardest"])
def test_what_a_server_hears(name: str, network: Any) -> None:
    """The mean over batches by their sizes, of the network as it is evaluated; of a mean over examples just that."""
    cohort, _ = trained(LOSSES[name](), network(), sgd)
    found = losses_of(cohort, {1: examples(1), 4: examples(4)})
    for index, participant in enumerate([1, 4]):
        shard, net = examples(participant), copy.deepcopy(cohort.networks[index]).double().eval()
        with torch.no_grad():
            batches = [(plainly(name, net(x.double()), y), len(y)) for x, y in shard.in_order()]
            logits = net(shard.x.double()).numpy()
        expected = sum(float(loss) * count for loss, count in batches) / len(shard.y)
        assert float(found[index]) == pytest.approx(expected, rel=1e-5)
        if name == "smooth":
            told = log_softmax(logits, axis=1)
            each = -0.8 * told[np.arange(len(told)), shard.y] - 0.2 * told.mean(1)
            assert float(found[index]) == pytest.approx(each.mean(), rel=1e-5)


@pytest.mark.parametrize("name", ["smooth", "focal"])
def test_a_stack_trains_as_the_loop_does(name: str) -> None:
    """To twelve digits, with shards of unequal lengths: rows that are filled up weigh nothing."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 3)).double()
    own = shards(torch.randn(sum(SIZES), 6, generator=torch.Generator().manual_seed(1)).double())
    row = flat_parameters(network)
    turns = [Turn(row.clone(), momentum(copy.deepcopy(network).parameters()), own[i], i, row) for i in own]
    Stack(network, turns[0].optimizer, LOSSES[name]()).train(turns, [0.1, 0.05])
    for i, turn in enumerate(turns):
        weights, _ = alone_in_double(network, momentum, own[i], seed=i, loss=lambda z, y: plainly(name, z, y))
        torch.testing.assert_close(turn.weights, weights, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("smooth", None),
        ("focal", None),
        ("flooded", "the loss of a batch is not the mean of those of its examples"),
        ("capped", "the loss of a batch is not the mean of those of its examples"),
        ("weighted", "the loss of a batch is not the mean of those of its examples"),
        ("hardest", "the loss of a batch is not the mean of those of its examples"),
        ("drawn", "randomness"),
    ],
)
def test_which_losses_several_can_train_by(name: str, why: str | None) -> None:
    """Those alone of which a stack of unequal batches gives what each batch gives."""
    network = mlp()
    found = refusal(network, sgd(network.parameters()), torch.randn(4, 6), loss=(LOSSES | BENT)[name]())
    assert (found is None) if why is None else why in str(found)


class HardestOf(nn.Module):
    """Goes by so many of a batch, whose worst they are."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        each = cross_entropy(logits, y, reduction="none")
        return each.topk(min(self.count, len(each))).values.mean()


@pytest.mark.parametrize("count", [4, 32, 200])
def test_a_loss_of_so_many_examples(count: int) -> None:
    """Of few classes fewer examples were tried, of which it is the mean."""
    network = mlp()
    found = refusal(network, sgd(network.parameters()), torch.randn(4, 6), loss=HardestOf(count))
    assert found == "the loss of a batch is not the mean of those of its examples"


@pytest.mark.parametrize("stacked", [False, True])
def test_a_loss_has_logits_of_single_precision(stacked: bool) -> None:
    """Under bf16-mixed too, with either engine: mixing types ends in a traceback."""
    cohort = Cohort(mlp(), [0, 1], sgd, CPU, loss=Single(), stacked=stacked)
    with torch.autocast("cpu", torch.bfloat16):
        losses = cohort.train_all({0: examples(0), 1: examples(1)}, Schedule(), 0, {0: 0, 1: 1})
    assert all(0 < loss < 10 for loss in losses.values())


def test_a_step_of_many_classes_is_tried_with_some() -> None:
    """All of 30,000 at once would take gigabytes; of 1,000 none is left out."""
    for classes, heavy in ((30_000, 5), (1_000, 999)):
        weights = torch.ones(classes)
        weights[heavy] = 50
        network = nn.Linear(2, classes)
        loss = nn.CrossEntropyLoss(weights)
        assert "not the mean" in str(refusal(network, sgd(network.parameters()), torch.randn(4, 2), loss=loss))


def test_stacks_with_other_losses_are_others() -> None:
    """One trains the other's turns by its own loss."""
    network = mlp()
    made = [Stack(network, sgd(network.parameters()), LOSSES[name]()) for name in ("smooth", "smooth", "focal")]
    plain = Stack(network, sgd(network.parameters()))
    assert made[0].serves(made[1])
    assert not made[0].serves(made[2])
    assert not made[0].serves(plain)
    assert not plain.serves(made[0])
    heavier = Stack(network, sgd(network.parameters()), nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 6.0])))
    assert not heavier.serves(Stack(network, sgd(network.parameters()), LOSSES["weighted"]()))


@pytest.mark.slow
def test_runs(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Cross-entropy by name is cross-entropy to the bit; another loss trains others, is measured as ever, and goes on.

    With two ranks, and Ditto's own models: by the same loss.
    """
    run = (*RUN, "--model.personal", 0.5, "--server", "QFFL")
    named = ("--model.loss", "torch.nn.CrossEntropyLoss")
    for name, loss in {"plain": (), "named": named, "smooth": SMOOTH}.items():
        ended = rffl(*run, *loss, "--run.root", tmp_path / name)
        assert ended.code == 0, ended.err
    plain, smooth = only_run(tmp_path / "plain"), only_run(tmp_path / "smooth")
    for participant in range(4):
        states = [torch.load(folder / "weights" / f"participant_{participant}.pt") for folder in (plain, smooth)]
        assert not any(torch.equal(states[0][name], states[1][name]) for name in states[0])
    ended = rffl(*run, *SMOOTH, "--trainer.max_epochs", 2, "--run.root", tmp_path / "begun")
    checkpoint = only_run(tmp_path / "begun") / "checkpoints" / "last.ckpt"
    ended = forked(2, *run, *SMOOTH, "--ckpt_path", checkpoint, root=tmp_path / "on")
    assert ended.code == 0, ended.err
    assert_same_bits(smooth, only_run(tmp_path / "on"))
    ended = rffl(*run, *WEIGHTED, "--ckpt_path", checkpoint, "--run.root", tmp_path / "changed")
    assert ended.code == 0, ended.err
    assert "--model.loss.label_smoothing 0.2 -> 0.0" in " ".join(ended.err.split())
    for folder in (plain, smooth):
        scores = rffl("test", "--config", folder / "config.yaml", "--ckpt_path", folder / "checkpoints" / "last.ckpt")
        assert scores.code == 0, scores.err
