"""What a checkpoint and the run that loads it must agree on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.runs.identity import Identity, check_identity, identity


def of(network: nn.Module) -> Identity:
    """The identity of a run of that network."""
    trained = [p for p in network.parameters() if p.requires_grad]
    return identity(network, Federation(participants=3), {"split": "POW"}, torch.optim.SGD(trained, lr=0.1))


def adapter(value: float, *, frozen: bool = True) -> nn.Module:
    """A layer under one that trains."""
    network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    nn.init.constant_(network[0].weight, value)  # type: ignore[arg-type]
    nn.init.zeros_(network[0].bias)  # type: ignore[arg-type]
    network[0].requires_grad_(not frozen)
    return network


def test_frozen_parameters_are_compared_by_value() -> None:
    """No checkpoint holds them: another frozen layer is refused, what trains may have any values."""
    check_identity(of(adapter(1.0)), of(adapter(1.0)), training=False)
    with pytest.raises(UserError, match=r"0\.weight is 4x3 frozen \w+ there and 4x3 frozen \w+ here"):
        check_identity(of(adapter(1.0)), of(adapter(2.0)), training=False)
    check_identity(of(adapter(1.0, frozen=False)), of(adapter(2.0, frozen=False)), training=False)


def test_freezing_is_a_difference() -> None:
    """What was trained there and is frozen here is not the same federation."""
    with pytest.raises(UserError, match=r"0\.weight is 4x3 there and 4x3 frozen"):
        check_identity(of(adapter(1.0, frozen=False)), of(adapter(1.0)), training=False)
