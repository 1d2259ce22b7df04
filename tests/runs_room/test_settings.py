"""How a run was trained, as its objects were constructed, and what differs."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rffl_pl.adversaries import Adversary, FreeRider, LabelFlip
from rffl_pl.datamodules import Digits
from rffl_pl.federation import Federation
from rffl_pl.models import Perceptron
from rffl_pl.module import FederatedModule
from rffl_pl.runs.settings import attributes, changes, optimizer_settings, settings_of
from rffl_pl.servers import RFFL, FedAvg, Server

FEDERATION = Federation(participants=2, adversaries=1)


class Own(FedAvg):
    """Somebody's own server, which passes some options on."""

    def __init__(self, scale: float, *, names: tuple[str, ...] = ("a",), **rest: float) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self.scale = scale


def settings(
    server: Server, attack: Adversary, dropout: float = 0.5, loss: nn.Module | None = None, **data: Any
) -> dict[str, str]:
    """Of a run on the digits."""
    network = nn.Sequential(Perceptron(64, 64, 10), nn.Dropout(dropout))
    return settings_of(
        federation=FEDERATION,
        server=server,
        model=FederatedModule(FEDERATION, network, local_epochs=2, adversaries=[attack]),
        network=network,
        loss=loss,
        objective=None,
        data=Digits(FEDERATION, **data),
        rates={"lr": "0.1"},
        precision="32-true",
    )


def test_every_option_is_there_as_it_is_typed() -> None:
    """Defaults too, of the constructor that was called; neither objects nor what changes no result."""
    flat = settings(RFFL(gamma=0.3), LabelFlip(target=8), batch_size=7)
    expected = {
        "--server": "RFFL", "--server.gamma": "0.3", "--server.preset": "released", "--adversaries.0": "LabelFlip",
        "--adversaries.0.target": "8", "--data": "Digits", "--data.batch_size": "7", "--model.local_epochs": "2",
        "--model.optimizer.lr": "0.1", "--trainer.precision": "32-true", "--federation.adversaries": "1",
    }  # fmt: skip
    assert expected.items() <= flat.items()
    assert not [name for name in flat if "num_workers" in name or "federation.participants" in name]


def test_differences() -> None:
    """Of what both know, old and new: another class is named, not the options that it alone has."""
    before, after = settings(RFFL(), FreeRider()), settings(RFFL(alpha=0.9), LabelFlip())
    assert changes(before, after) == ["--adversaries.0 FreeRider -> LabelFlip", "--server.alpha 0.95 -> 0.9"]
    assert changes(before, before) == []
    assert changes(before, settings(RFFL(), FreeRider(), dropout=0.25)) == [
        "--model.network.1 Dropout(p=0.5, inplace=False) -> Dropout(p=0.25, inplace=False)"
    ]


def test_a_loss() -> None:
    """What it is, is made with and weighs by; another release's options are no difference."""
    plain, smooth, heavy = (
        settings(RFFL(), FreeRider(), loss=loss)
        for loss in (None, nn.CrossEntropyLoss(label_smoothing=0.1), nn.CrossEntropyLoss(torch.tensor([1.0, 2.0])))
    )
    assert changes(plain, smooth) == ["--model.loss None -> CrossEntropyLoss"]
    assert changes(smooth, heavy) == ["--model.loss.label_smoothing 0.1 -> 0.0"]
    assert heavy["--model.loss.weight"] == "[1.0, 2.0]"


@dataclass
class Options:
    scale: float
    act: object = nn.functional.gelu


class Odd(nn.Module):
    """Keeps its options in whatever there is to keep them in."""

    def __init__(self, options: object) -> None:
        super().__init__()
        self.options = options
        self.layer = nn.LSTM(3, 4)  # which keeps its weights in a list too, and they train


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"scale": 1.0}, {"scale": 0.5}),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}),
        ({1, 2}, {1, 3}),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])),
        (np.arange(300), np.arange(1, 301)),
        (torch.arange(1e6), torch.arange(1e6) + 1),
        (Options(1.0), Options(2.0)),
        (SimpleNamespace(scale=1.0), SimpleNamespace(scale=2.0)),
        (partial(nn.functional.leaky_relu, negative_slope=0.1), partial(nn.functional.leaky_relu, negative_slope=0.2)),
    ],
    ids=["dictionary", "nested", "set", "tensor", "array", "large tensor", "dataclass", "namespace", "partial"],
)
def test_options_of_any_kind(one: object, other: object) -> None:
    """What it trained with would pass for the same, and its standalone reference for another's."""
    told, others = attributes(Odd(one)), attributes(Odd(other))
    assert told["options"] != others["options"]
    assert told == attributes(Odd(copy.deepcopy(one)))
    assert len(told["options"]) < 120
    assert set(attributes(Odd(object()))) == set()  # of which nobody can say anything
    assert "0x" not in told["options"]


def test_a_set_is_told_in_one_order() -> None:
    """That of a set of words is another in every process, and each would have a reference of its own."""
    assert attributes(Odd({*"hgfedcba"}))["options"] == "[a, b, c, d, e, f, g, h]"


class Clipped(torch.optim.SGD):
    """Clips by what it keeps hidden."""

    def __init__(self, params: Any, *, clip: float, lr: float = 0.1) -> None:
        super().__init__(params, lr=lr)
        self._clip = clip


def test_what_an_optimizer_of_ones_own_keeps_hidden() -> None:
    """It is an option as any other; what torch's keep so is none."""
    parameters = [nn.Parameter(torch.zeros(1))]
    assert optimizer_settings(Clipped(parameters, clip=0.5))["_clip"] == "0.5"
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad, torch.optim.NAdam):
        assert not [name for name in optimizer_settings(kind(parameters, lr=0.1)) if name.startswith("_")]


class Folded(nn.Module):
    """Somebody's own network, which computes by what it does not print."""

    def __init__(self, act: str = "relu") -> None:
        super().__init__()
        self.act, self.sizes, self.function = act, (3, 4), nn.functional.gelu
        self.layer = nn.Linear(3, 4)


def test_what_a_network_keeps() -> None:
    """Plain values and functions by name, of networks that print less than they know; a layer of torch's prints all."""
    folded = {"act": "relu", "sizes": "(3, 4)", "function": attributes(Folded())["function"]}
    assert attributes(Folded()) == folded
    assert folded["function"].endswith(".gelu")
    flats = []
    for act in ("relu", "sin"):
        flats.append(
            settings_of(
                federation=FEDERATION,
                server=FedAvg(),
                model=FederatedModule(FEDERATION, nn.Linear(1, 1), adversaries=[FreeRider()]),
                network=Folded(act),
                loss=None,
                objective=None,
                data=Digits(FEDERATION),
                rates={},
                precision="32-true",
            )
        )
    assert changes(*flats) == ["--model.network.act relu -> sin"]


def test_a_server_of_somebody_elses() -> None:
    """Positional arguments and tuples are remembered under their names, and survive a copy."""
    own = Own(0.5)
    assert own.settings("--server").items() >= {"--server": "Own", "--server.scale": "0.5"}.items()
    assert own.settings()[".names"] == "['a']"
    for other in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        assert other.settings() == own.settings()


class Mode(Enum):
    """Two of them."""

    SLOW = 1
    FAST = 2


class Chosen(FedAvg):
    """Has options that are no plain values."""

    def __init__(self, *, option: object) -> None:
        super().__init__()
        self.option = option


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (Mode.SLOW, Mode.FAST, "--server.option Mode.SLOW -> Mode.FAST"),
        (Path("one"), Path("other"), "--server.option one -> other"),
        ({1, 2}, {1, 3}, "--server.option ['1', '2'] -> ['1', '3']"),
        (nn.functional.gelu, nn.functional.relu, "--server.option torch._C._nn.gelu -> torch.nn.functional.relu"),
        (Options(1.0), Options(2.0), "--server.option.scale 1.0 -> 2.0"),
        (partial(max, key=1), partial(max, key=2), "--server.option.key 1 -> 2"),
    ],
    ids=["a member", "a path", "a set", "a function", "a record", "a partial function"],
)
def test_options_of_ones_own_that_are_no_plain_values(one: object, other: object, told: str) -> None:
    """A run went on with others, and nobody was told."""
    before, after = (settings(Chosen(option=option), FreeRider()) for option in (one, other))
    assert changes(before, after) == [told]
    assert before == settings(Chosen(option=copy.deepcopy(one)), FreeRider())


def test_what_is_told_of_the_packages_own_stays() -> None:
    """References that were kept are known by it: how an optimizer is made is told by what it is made with."""
    module = FederatedModule(Federation(participants=2), nn.Linear(1, 1), optimizer=lambda p: torch.optim.SGD(p, 0.1))
    assert not [name for name in module.settings("--model") if "optimizer" in name]


def test_a_wrong_argument_is_the_constructors_to_refuse() -> None:
    """As without us: Python's own message."""
    with pytest.raises(TypeError, match=r"Own\.__init__\(\) missing 1 required positional argument: 'scale'"):
        Own()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"RFFL\.__init__\(\) got an unexpected keyword argument 'gama'"):
        RFFL(gama=1)  # type: ignore[call-arg]
