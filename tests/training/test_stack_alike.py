"""What one stack trains for several: networks and turns that are alike, turns that are the same, and examples once."""

from __future__ import annotations

import copy
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
from rffl_pl.training.objective import Loss
from rffl_pl.training.schedule import OptimizerFactory
from rffl_pl.training.stack import Stack, Turn
from rffl_pl.training.stack.batches import Held
from rffl_pl.training.stack.networks import Draws, adapted, alike
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
    weights, shard = torch.full((15,), start), Shard(Reader(data), torch.arange(count), batch)
    return Turn(weights, optimizer, shard, seed, **{"anchor": weights} | more)


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


class Scaled(nn.Module):
    """A network with a setting, a buffer, a frozen parameter and one that trains."""

    def __init__(self, factor: float = 1.0, buffer: float = 1.0, frozen: float = 1.0, width: int = 3) -> None:
        super().__init__()
        self.factor = factor
        self.register_buffer("buffer", torch.full((2,), buffer))
        self.frozen = nn.Parameter(torch.full((2,), frozen), requires_grad=False)
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Dropout(0.5))
        self.circle = (self.layers,)


def test_which_networks_are_one_stack() -> None:
    """Those that differ in nothing but the values of what trains."""
    one, other = (adapted(copy.deepcopy(net), Draws()) for net in (Scaled(), Scaled()))
    assert alike(one, other)
    for different in (Scaled(factor=2.0), Scaled(buffer=2.0), Scaled(frozen=2.0), Scaled(width=4), nn.Linear(2, 3)):
        assert not alike(Scaled(), different)
    odd, looser, dropped = Scaled(), Scaled(), Scaled()
    vars(odd)["activation"] = lambda x: x
    looser.frozen.requires_grad_(True)
    vars(dropped.layers[1])["p"] = 0.4
    for different in (odd, looser, dropped):
        assert not alike(different, Scaled())
        assert alike(different, different)


def test_tied_weights_are_one_stack_with_tied_ones_alone() -> None:
    """What each layer holds is the same, the vector that trains is shorter."""
    tied, untied = (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(2))
    tied[1].weight = tied[0].weight
    networks = (tied, copy.deepcopy(tied), untied)
    one, same, other = (Stack(network, torch.optim.SGD(network.parameters(), lr=0.1)) for network in networks)
    assert one.serves(same)
    assert not one.serves(other)
    assert not other.serves(one)


def test_examples_lie_on_the_device_once() -> None:
    """However many copies there are; others lie behind them, and those of another shape are read as they are drawn."""
    data = [(torch.randn(9, 6, generator=torch.Generator().manual_seed(seed)), torch.arange(9)) for seed in (1, 1, 2)]
    held = Held(torch.device("cpu"), None)
    assert [held.first(each, None) for each in (*data, data[1])] == [0, 0, 9, 0]
    assert torch.equal(held.x, torch.cat([data[0][0], data[2][0]]))
    assert held.first((torch.randn(9, 5), torch.arange(9)), None) is None
    assert held.first((*data[0][:1], torch.arange(9) + 1), torch.sin) is None
