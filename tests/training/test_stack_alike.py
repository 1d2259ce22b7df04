"""What one stack trains for several: others' turns, where steps and loss are the same, and turns that are the same."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam
from torch.utils.data import TensorDataset

from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.training.schedule import OptimizerFactory
from rffl_pl.training.stack import Loss, Stack, Turn
from tests.cohorts import seeded

momentum = partial(SGD, lr=0.1, momentum=0.9)
smooth = partial(nn.CrossEntropyLoss, label_smoothing=0.1)


def linear() -> nn.Module:
    return seeded(lambda: nn.Linear(4, 3))


def stack(optimizer: OptimizerFactory, loss: Loss = cross_entropy) -> Stack:
    network = linear()
    return Stack(network, optimizer(network.parameters()), loss)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (stack(momentum), stack(partial(SGD, lr=0.2, momentum=0.9)), True),  # of rates each row has its own
        (stack(momentum), stack(partial(SGD, lr=0.1, momentum=0.8)), False),
        (stack(momentum), stack(partial(momentum, weight_decay=0.1)), False),
        (stack(Adam), stack(partial(Adam, betas=(0.5, 0.999))), False),
        (stack(Adam), stack(torch.optim.AdamW), False),
        (stack(momentum, smooth()), stack(momentum, smooth()), True),
        (stack(momentum, smooth()), stack(momentum, smooth(label_smoothing=0.2)), False),
        (stack(momentum, smooth()), stack(momentum), False),
    ],
)
def test_whose_turns_it_trains(one: Stack, other: Stack, same: bool) -> None:
    """A cell would train with the optimizer or the loss of another of its pack."""
    assert (one.serves(other), other.serves(one)) == (same, same)


DATA, OTHERS = (
    TensorDataset(torch.randn(20, 4, generator=torch.Generator().manual_seed(k)), torch.arange(20) % 3) for k in (1, 2)
)


def turn(
    *, seed: int = 1, count: int = 20, batch: int = 8, data: TensorDataset = DATA, start: float = 0.0,
    steps: float = 1.0, slope: float = 1.0, **more: Any,
) -> Turn:  # fmt: skip
    """Of somebody whose optimizer has taken a step."""
    network = linear()
    optimizer = Adam(network.parameters())
    torch.autograd.backward([slope * p.sum() for p in network.parameters()])
    optimizer.step()
    for state in optimizer.state.values():
        state["step"].fill_(steps)
    return Turn(torch.full((15,), start), optimizer, Shard(Reader(data), torch.arange(count), batch), seed, **more)


ONES: Tensor = torch.ones(15)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 2}, {"proximal": 0.5}, {"anchor": ONES}, {"correction": ONES}, {"start": 1.0}, {"steps": 2.0},
        {"slope": 2.0}, {"count": 19}, {"batch": 4}, {"data": OTHERS},
    ],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_whoever_differs_in_anything_is_trained_apart(other: dict[str, Any]) -> None:
    """One participant's training would pass for another's."""
    serving = stack(Adam)
    assert serving.same([turn(), turn()], [turn(), turn()])
    assert not serving.same([turn(), turn()], [turn(), turn(**other)])
