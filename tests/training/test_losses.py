"""The losses that participants report, against float64 loops."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import nn

from rffl_pl.models import MNISTCNN
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Schedule
from tests.cohorts import (
    CPU,
    FEDERATION,
    Shuffled,
    adam,
    batchnorm,
    dropout,
    examples,
    losses_of,
    mlp,
    momentum,
    seeded,
    sgd,
    train_round,
    trained,
)


def naive_loss(network: nn.Module, shard: Shuffled) -> float:
    """Mean cross-entropy in float64, one example after another."""
    network = copy.deepcopy(network).double().eval()
    with torch.no_grad():
        logits = [network(x.double().unsqueeze(0)).numpy()[0] for x in shard.x]
    return -float(np.mean([log_softmax(row)[int(y)] for row, y in zip(logits, shard.y, strict=True)]))


@pytest.mark.parametrize("network", [mlp, dropout, batchnorm])
def test_losses_are_the_mean_cross_entropy(network: Any) -> None:
    """Of every participant's own model on its own examples, without dropout, batch statistics or batches' sizes."""
    cohort = trained(network(), [3, 0, 1])
    losses = losses_of(cohort, {i: examples(i) for i in (0, 1, 3)})
    assert losses.dtype == torch.float64
    expected = [naive_loss(net, examples(i)) for i, net in zip([3, 0, 1], cohort.networks, strict=True)]
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-5)
    assert len(losses.unique()) == 3


def test_losses_of_images() -> None:
    """The paper's network, whose inputs are laid out anew on their way, has the same loss."""
    generator = torch.Generator().manual_seed(0)
    shard = Shuffled(torch.randn(12, 1, 32, 32, generator=generator), torch.arange(12) % 10, batch_size=5)
    cohort = Cohort(seeded(MNISTCNN), [2], sgd, CPU)
    assert float(losses_of(cohort, {2: shard})) == pytest.approx(naive_loss(cohort.networks[0], shard), rel=1e-5)


def test_losses_of_whoever_has_no_examples() -> None:
    """NaN, never 0; and examples of somebody who is not hosted here are nobody's."""
    cohort = Cohort(mlp(), [0, 1, 2], sgd, CPU)
    losses = losses_of(cohort, {0: examples(0), 2: examples(2), 4: examples(4)})
    assert losses.isnan().tolist() == [False, True, False]
    assert losses_of(cohort, {}).isnan().all()


@pytest.mark.parametrize("network", [mlp, dropout, batchnorm])
def test_losses_do_not_hang_on_company_or_order(network: Any) -> None:
    """The same bits whoever else is hosted; the same number in whatever order the examples lie."""
    alone, together = trained(network(), [2]), trained(network(), [4, 2, 0])
    shards = {i: examples(i) for i in (0, 2, 4)}
    assert losses_of(alone, shards)[0] == losses_of(together, shards)[1]
    backwards = Shuffled(shards[2].x.flip(0), shards[2].y.flip(0), batch_size=3)
    assert float(losses_of(alone, {2: backwards})) == pytest.approx(float(losses_of(alone, shards)), rel=1e-6)


@pytest.mark.parametrize("optimizer", [sgd, momentum, adam])
@pytest.mark.parametrize("network", [mlp, dropout, batchnorm])
def test_losses_change_nothing(network: Any, optimizer: Any) -> None:
    """Weights, running statistics, gradients, the random stream and the rounds to come are as without them."""
    cohort, shards = trained(network(), [0, 1], rounds=1, optimizer=optimizer), {i: examples(i) for i in (0, 1)}
    before = copy.deepcopy([net.state_dict() for net in cohort.networks])
    torch.manual_seed(5)
    stream = torch.get_rng_state()
    losses_of(cohort, shards)
    assert torch.equal(torch.get_rng_state(), stream)
    for net, state in zip(cohort.networks, before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    train_round(cohort, shards, Schedule(), FEDERATION, 1)
    undisturbed = trained(network(), [0, 1], rounds=2, optimizer=optimizer)
    assert torch.equal(cohort.weights, undisturbed.weights)


def test_losses_that_are_not_finite() -> None:
    """A model or an example that overflows has a loss that says so; the neighbours' are theirs."""
    cohort = Cohort(mlp(), [0, 1, 2], sgd, CPU)
    cohort.weights[0] = torch.inf
    bad = examples(1)
    bad.x[5, 3] = torch.nan
    losses = losses_of(cohort, {0: examples(0), 1: bad, 2: examples(2)})
    assert losses.isfinite().tolist() == [False, False, True]
