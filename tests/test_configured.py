"""What objects remember of their construction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pytest
import torch

from rffl_pl import FederatedModule, Federation, Perceptron
from rffl_pl.configured import Configured
from rffl_pl.datamodules import Digits, ImageFolder
from rffl_pl.errors import UserError
from rffl_pl.servers import NNM, RFFL, FedAvg, MultiKrum
from tests.servers.tasks import task

if TYPE_CHECKING:
    from fractions import Fraction


class Base(Configured):
    """Has an argument with a default."""

    def __init__(self, *, size: int = 3) -> None:
        self.size = size


class Special(Base):
    """Hands what it does not know itself to its base, as the data sets do."""

    def __init__(self, where: str, *, rate: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.where, self.rate = where, rate


def test_what_goes_on_to_a_base_class_is_remembered() -> None:
    """A run resumed with another batch size or split of MNIST, which its base takes, is not told of it."""
    made = Special("here", size=5).settings("data")
    assert made == {"data": "Special", "data.where": "here", "data.rate": "0.5", "data.size": "5"}
    assert Base().settings("x") == {"x": "Base", "x.size": "3"}


class Several(Base):
    """Somebody's own, with what is no plain value."""

    def __init__(self, *, table: dict[str, Any], weights: Any) -> None:
        super().__init__()


def test_what_is_no_plain_value() -> None:
    """A run that goes on with other numbers is not told of it."""
    long = torch.arange(100.0)
    told = [
        Several(table={"a": {"b": 1}, "c": [1, 2]}, weights=each).settings("x") for each in (np.ones(2), long, -long)
    ]
    assert told[0] == {"x": "Several", "x.table.a.b": "1", "x.table.c": "[1, 2]", "x.weights": "[1.0, 1.0]"}
    assert told[1]["x.weights"].startswith("[0.0, 1.0, 2.0")
    assert max(len(each["x.weights"]) for each in told) < 80
    assert told[1] != told[2]


class Capped(FedAvg):
    """Somebody's own, with an option that is called as what a server is told."""

    def __init__(self, *, examples: torch.Tensor) -> None:
        super().__init__()
        self.examples = examples


def test_an_option_in_whose_place_the_package_has_its_own() -> None:
    """The number that was given counts for nothing, and the run's configuration says that it does."""
    with pytest.raises(UserError, match=r"--server Capped to store its options .*, but start overwrites examples, one"):
        Capped(examples=torch.ones(2)).start(task([1, 2], [4]))
    with pytest.raises(UserError, match=r"Expected --server\.rule Capped to store"):
        NNM(rule=Capped(examples=torch.ones(2))).start(task([1, 2, 3], [4]))


def test_what_a_shell_shows() -> None:
    """A notebook shows an address in memory of what it was given."""
    federation = Federation(participants=2, seed=1)
    assert repr(federation) == "Federation(participants=2, seed=1)"
    assert repr(RFFL(preset="guarded", gamma=0.5)) == "RFFL(preset='guarded')"
    assert repr(NNM(rule=MultiKrum(byzantine=2))) == "NNM(rule=MultiKrum(byzantine=2))"
    assert repr(Special("here", size=5)) == "Special(where='here', size=5)"
    assert repr(Several(table={}, weights=torch.arange(100.0))).startswith("Several(table={}, weights=tensor([ 0.,  1.")
    assert len(repr(Several(table={}, weights=torch.arange(100.0)))) < 100
    assert "Linear(in_features=4" in repr(FederatedModule(federation, Perceptron(4, 4, 2)))


class Own(Special):
    """Somebody's own, annotated with what is imported for type checkers alone."""

    def __init__(self, *, kind: Literal["warm", "cold"] = "warm", share: Fraction | None = None, **more: Any) -> None:
        super().__init__("here", **more)


def test_an_argument_of_another_kind() -> None:
    """Python takes any, and goes on by another rule, or ends rounds later; the command line has a parser."""
    federation, wrong = Federation(participants=2), cast("Any", "relesed")
    for make, expected in (
        (lambda: RFFL(removal_from=wrong), "--server.removal_from to be a whole number or never, but got relesed"),
        (lambda: RFFL(gamma=wrong), "--server.gamma to be a number, but got 'relesed'"),
        (lambda: RFFL(clip=cast("Any", 1)), "--server.clip to be true or false, but got 1"),
        (lambda: MultiKrum(byzantine=cast("Any", 0.5)), "--server.byzantine to be a whole number, but got 0.5"),
        (lambda: RFFL(preset=wrong), "--server.preset to be one of released, paper, .* did you mean released"),
        (lambda: FedAvg(variant=wrong), "--server.variant to be one of fedavg, released, but got relesed"),
        (lambda: Digits(federation, watch=wrong), "--data.watch to be one of validation, test, but got relesed"),
        (
            lambda: FederatedModule(federation, Perceptron(4, 4, 2), engine=wrong),
            "--model.engine to be one of auto, loop, stacked, but got relesed",
        ),
    ):
        with pytest.raises(UserError, match=expected):
            make()
    assert Own(kind=wrong, size=4).arguments["kind"] == wrong  # which says itself what it takes
    assert MultiKrum(byzantine=cast("Any", np.int64(1))).byzantine == 1
    assert ImageFolder(federation, folder=cast("Any", Path("images"))).arguments["folder"] == Path("images")
    assert RFFL(gamma=1, removal_from="never").arguments["gamma"] == 1
