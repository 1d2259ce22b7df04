"""Rounds of a number of steps in place of whole epochs, `--model.local_steps`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from rffl_pl.adversaries import LabelFlip
from rffl_pl.adversaries.cast import Poisoned
from rffl_pl.callbacks import StandaloneReference
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.servers import FedAvg
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import flat_parameters
from rffl_pl.training.schedule import Examples, Schedule
from tests.cli.folders import assert_same_bits
from tests.cohorts import CPU, FEDERATION, adam, batchnorm, dropout, examples, mlp, momentum, sgd, train_round
from tests.conftest import QUICK, Ended, only_run
from tests.ranks import assert_goes_on
from tests.runs import federate

RUN = (
    "fit", "--config", "configs/digits.yaml", "--federation.participants", 3, "--federation.adversaries", 1,
    "--adversaries", "[LabelFlip]", "--data.split", "POW", "--data.examples_per_participant", 60,
    "--data.adversary_examples", 40, "--model.local_steps", 4, "--trainer.max_epochs", 3, *QUICK,
)  # fmt: skip


def newcomer(network: nn.Module, participant: int, optimizer: Any, steps: int, rounds: int) -> tuple[Tensor, float]:
    """Weights, and the last round's mean loss, of a plain loop that draws a new order where the examples end."""
    network, shard = copy.deepcopy(network).train(), examples(participant)
    stepper = optimizer(network.parameters())
    rate, total, seen = stepper.param_groups[0]["lr"], 0.0, 0
    for number in range(rounds):
        torch.manual_seed(FEDERATION.seed_for("training", participant, number))
        stepper.param_groups[0]["lr"] = rate * 0.7**number
        # All orders before the first step, and what loaders take: dropout draws after them.
        orders = [torch.randperm(len(shard)).split(shard.batch_size) for _ in range(-(-steps // shard.batches))]
        torch.empty((), dtype=torch.int64).random_()
        total, seen = 0.0, 0
        for _, rows in zip(range(steps), (rows for order in orders for rows in order), strict=False):
            x, y = shard.x[rows], shard.y[rows]
            stepper.zero_grad()
            loss = cross_entropy(network(x), y)
            loss.backward()
            stepper.step()
            total, seen = total + loss.item() * len(y), seen + len(y)
    return flat_parameters(network), total / seen


def of_memory(participant: int) -> Shard:
    """The same examples as a shard of a data set."""
    own = examples(participant)
    return Shard(Reader(TensorDataset(own.x, own.y)), torch.arange(len(own)), own.batch_size)


@pytest.mark.parametrize("network", [mlp, dropout, batchnorm])
@pytest.mark.parametrize("optimizer", [sgd, momentum, adam])
@pytest.mark.parametrize(("steps", "decay_every"), [(1, "epoch"), (3, "round"), (4, "epoch"), (11, "epoch")])
def test_training_is_what_a_newcomer_would_write(network: Any, optimizer: Any, steps: int, decay_every: Any) -> None:
    """Less than a pass of four batches, one pass, and nearly three: weights, losses and learning rates."""
    schedule = Schedule(epochs=5, steps=steps, decay=0.7, decay_every=decay_every)
    cohort = Cohort(network(), [1, 4], optimizer, CPU)
    for number in range(3):
        losses = train_round(cohort, {i: of_memory(i) for i in (1, 4)}, schedule, FEDERATION, number)
    for index, participant in enumerate([1, 4]):
        expected, loss = newcomer(network(), participant, optimizer, steps, rounds=3)
        assert torch.allclose(cohort.weights[index], expected, atol=1e-6)
        assert losses[participant] == pytest.approx(loss, abs=1e-6)


def test_passes_follow_one_another() -> None:
    """Every pass has every example once, in another order; what is left of the last one is left out."""
    shard = Shard(Reader(TensorDataset(torch.arange(20.0), torch.zeros(20))), torch.arange(5, 15), 4)
    torch.manual_seed(0)
    order = shard.steps(7).order
    assert [len(part) for part in order] == [4, 4, 2, 4, 4, 2, 4]
    first, second = torch.cat([*order[:3]]), torch.cat([*order[3:6]])
    assert first.sort().values.tolist() == second.sort().values.tolist() == [*range(5, 15)]
    assert first.tolist() != second.tolist()
    torch.manual_seed(0)
    assert all(map(torch.equal, shard.epoch().order, order[:3]))


@pytest.mark.parametrize("steps", [2, 7])
@pytest.mark.parametrize("scaffold", [False, True])
def test_a_stack_trains_as_the_loop_does(steps: int, scaffold: bool) -> None:
    """Shards of one batch and of many, of which some pretend to have other labels, take as many steps."""
    sizes = {0: 3, 1: 28, 2: 70, 3: 17}

    def cohort(stacked: bool) -> Cohort:
        shards: dict[int, Examples] = {
            i: Shard(Reader(TensorDataset(own.x, own.y)), torch.arange(n), 8)
            for i, n in sizes.items()
            for own in [examples(i, n)]
        }
        shards[2] = Poisoned(shards[2], lambda x, y: (x, 2 - y))
        cohort = Cohort(mlp(), list(sizes), sgd, CPU, stacked=stacked, scaffold=scaffold)
        for number in range(3):
            cohort.train_all(shards, Schedule(steps=steps, decay=0.9), number, {i: 10 * number + i for i in sizes})
            for i in sizes:
                cohort.download(i, 0.9 * cohort.take_update(i), whole=True)
            if cohort.corrections is not None:
                cohort.corrections.end_round()
        return cohort

    one, other = cohort(False), cohort(True)
    torch.testing.assert_close(other.weights, one.weights, rtol=1e-5, atol=1e-5)
    assert not torch.equal(one.weights[0], one.weights[1])


def test_everybody_takes_as_many(tmp_path: Path) -> None:
    """Few examples and many, adversaries too; alone as together, and another number is another reference."""
    for steps in (4, 5):
        module = federate(
            FedAvg(),
            [LabelFlip()],
            StandaloneReference(cache_dir=str(tmp_path)),
            rounds=3,
            local_steps=steps,
            optimizer=lambda p: torch.optim.Adam(p, lr=1e-3),
            split="POW",
            adversary_examples=5,
        )
        taken = {int(entry["step"]) for o in module.cohort.optimizers for entry in o.state_dict()["state"].values()}
        assert taken == {3 * steps}
        assert len({len(shard) for shard in module.data.shards}) > 2
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.slow
def test_two_ranks_and_going_on(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Other bits on two ranks, or what a round goes through depends on how it began."""
    checkpoint = assert_goes_on(rffl, RUN, tmp_path)
    other = rffl(*RUN, "--model.local_steps", 5, "--ckpt_path", checkpoint, "--run.root", tmp_path / "other")
    assert other.code == 0
    assert "--model.local_steps 4 -> 5" in other.err
    with pytest.raises(AssertionError):
        assert_same_bits(only_run(tmp_path / "whole"), only_run(tmp_path / "other"))
