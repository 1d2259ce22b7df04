"""What a checkpoint and the run that loads it must agree on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from rffl_pl.datamodules import Sources
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.runs.identity import Identity, check_identity, identity
from tests.datamodules.small import WithValidation, ready


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


def test_what_is_to_be_given_where_frozen_parameters_differ() -> None:
    """The run's own configuration, which was given, names a file whose weights are others by now."""
    with pytest.raises(UserError, match=r"here; give the network the frozen weights that the run began with, which no"):
        check_identity(of(adapter(1.0)), of(adapter(2.0)), training=False)
    saved, here = of(adapter(1.0)), of(adapter(2.0))
    here["model"]["1.weight"] = "5x4"
    for other in (here, of(nn.Sequential(nn.Linear(3, 5).requires_grad_(False), nn.Linear(5, 2)))):
        with pytest.raises(UserError, match=r"give the config\.yaml that lies beside it"):
            check_identity(saved, other, training=False)


def test_what_is_to_be_given_where_data_differ() -> None:
    """The run's own configuration, which was given, names a file that has changed."""
    saved, here = of(adapter(1.0)), of(adapter(1.0))
    here["data"]["split"] = "dbd8"
    with pytest.raises(UserError, match=r"that lies beside it, and data as it was then\.$"):
        check_identity(saved, here, training=False)


def test_freezing_is_a_difference() -> None:
    """What was trained there and is frozen here is not the same federation."""
    with pytest.raises(UserError, match=r"0\.weight is 4x3 there and 4x3 frozen"):
        check_identity(of(adapter(1.0, frozen=False)), of(adapter(1.0)), training=False)


def test_other_validation_examples_are_other_data() -> None:
    """A rule that validates decides by their labels; a checkpoint of an earlier version tells nothing of them.

    To be measured on they may be others.
    """

    class Flipped(WithValidation):
        def load(self) -> Sources:
            found = super().load()
            x, y = found.validation.tensors  # type: ignore[union-attr]  # a TensorDataset
            return replace(found, validation=TensorDataset(x, y.flip(0)))

    ours, others = (
        ready(kind(Federation(participants=2), split="UNI")).identity() for kind in (WithValidation, Flipped)
    )
    assert ours["shards"] == others["shards"]
    others["data set"] = ours["data set"]

    def told(data: dict[str, str]) -> Identity:
        return of(nn.Linear(2, 1)) | {"data": data}

    with pytest.raises(UserError, match=r"data: validation is \w+ there and \w+ here"):
        check_identity(told(others), told(ours), training=True)
    assert not check_identity(told(others), told(ours), training=False)
    assert check_identity(told(ours), told(ours), training=True)
    older = {fact: value for fact, value in others.items() if fact != "training examples"}  # which may be others, too
    with pytest.raises(UserError, match=r"data: validation is \w+ there and \w+ here"):
        check_identity(told(older), told(ours), training=False)
    del others["validation"]
    assert check_identity(told(others), told(ours), training=True)
