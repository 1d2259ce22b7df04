"""Training that ends in what is not finite: it costs that participant the round, and nobody anything else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import flat_parameters
from rffl_pl.training.schedule import Schedule
from tests.cohorts import (
    CPU,
    FEDERATION,
    Shuffled,
    adam,
    batchnorm,
    examples,
    momentum,
    seeded,
    sgd,
    train_round,
    trained,
)


def poisoned() -> Shuffled:
    """Examples one of which is infinite."""
    bad = examples(1)
    bad.x[5, 3] = torch.inf
    return bad


class Prepared(torch.optim.SGD):
    """Makes its state when it is made, as Adagrad did, and needs it."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.state.update({p: {"there": torch.zeros(())} for group in self.param_groups for p in group["params"]})

    def step(self, closure: Any = None) -> Any:
        assert all("there" in self.state[p] for group in self.param_groups for p in group["params"])
        return super().step(closure)


@pytest.mark.parametrize("optimizer", [sgd, momentum, adam, Prepared])
def test_a_loss_that_is_not_finite_costs_the_round_and_no_more(optimizer: Any) -> None:
    """The update is NaN; reverted, weights and running statistics are those of before; others are unaffected."""
    cohort = trained(batchnorm(), [0, 1], rounds=1, optimizer=optimizer)
    weights = cohort.weights.clone()
    buffers = [buffer.clone() for buffer in cohort.networks[1].buffers()]
    losses = train_round(cohort, {0: examples(0), 1: poisoned()}, Schedule(), FEDERATION, 1)
    assert not torch.tensor(losses[1]).isfinite()
    assert torch.equal(cohort.weights[1], weights[1])
    assert all(torch.equal(a, b) for a, b in zip(cohort.networks[1].buffers(), buffers, strict=True))
    assert len(cohort.optimizers[1].state) == (optimizer is Prepared) * len([*batchnorm().parameters()])
    again = train_round(cohort, {1: examples(1)}, Schedule(), FEDERATION, 2)
    assert torch.tensor(again[1]).isfinite()
    cohort.weights[1].copy_(weights[1])
    train_round(cohort, {1: poisoned()}, Schedule(), FEDERATION, 1)
    assert torch.equal(cohort.weights[0], trained(batchnorm(), [0], rounds=2, optimizer=optimizer).weights[0])
    assert cohort.take_update(1).isnan().all()
    assert cohort.take_update(0).isfinite().all()
    assert torch.equal(cohort.weights, weights)


def test_training_goes_on_after_a_revert() -> None:
    """A participant that was put back trains soundly in the next round."""
    cohort = trained(batchnorm(), [1], rounds=1, optimizer=adam)
    train_round(cohort, {1: poisoned()}, Schedule(), FEDERATION, 1)
    losses = train_round(cohort, {1: examples(1)}, Schedule(), FEDERATION, 2)
    assert torch.tensor(losses[1]).isfinite()
    assert cohort.weights.isfinite().all()
    update = cohort.take_update(0)
    assert update.isfinite().all()
    assert update.any()


def test_an_infinite_loss_with_finite_weights_is_a_failure() -> None:
    """A loss that overflows costs the update even if every gradient is finite."""
    cohort = Cohort(nn.Linear(1, 2), [0], sgd, CPU)
    cohort.weights[0] = torch.tensor([3e38, -3e38, 0.0, 0.0])
    before = cohort.weights.clone()
    wrong = Shuffled(torch.ones(1, 1), torch.ones(1, dtype=torch.int64))
    assert train_round(cohort, {0: wrong}, Schedule(), FEDERATION, 0) == {0: torch.inf}
    assert torch.equal(cohort.weights, before)
    assert cohort.take_update(0).isnan().all()


def test_weights_that_are_not_finite_are_reverted_too() -> None:
    """A last step that overflows after a finite loss is a failure as well."""
    network = seeded(lambda: nn.Linear(6, 3))
    cohort = Cohort(network, [0], lambda parameters: torch.optim.SGD(parameters, lr=1e38), CPU)
    one_batch = Shuffled(torch.full((4, 6), 1e3), torch.zeros(4, dtype=torch.int64))
    losses = train_round(cohort, {0: one_batch}, Schedule(epochs=1), FEDERATION, 0)
    assert torch.tensor(losses[0]).isfinite()
    assert torch.equal(cohort.weights[0], flat_parameters(network))
    assert cohort.take_update(0).isnan().all()


def test_sound_participants_are_not_reverted() -> None:
    """Where all is finite, optimizers keep their state and participants theirs."""
    cohort = trained(batchnorm(), [0, 1], optimizer=momentum)
    assert all(optimizer.state for optimizer in cohort.optimizers)
    assert not torch.equal(*cohort.weights)
