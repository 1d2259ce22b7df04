"""What objects remember of their construction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

from rffl_pl import FederatedModule, Federation, Perceptron
from rffl_pl.configured import Configured
from rffl_pl.datamodules import Digits
from rffl_pl.errors import UserError
from rffl_pl.servers import RFFL, FedAvg

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


class Chosen(Special):
    """Has choices of its own, one of them beside numbers, and an annotation that only type checkers know."""

    def __init__(
        self, *, kind: Literal["warm", "cold"] | None = None, turn: int | Literal["never"] = 3, **more: Any
    ) -> None:
        super().__init__("here", **more)


class Unread(Base):
    """Its hints cannot be read while it runs."""

    def __init__(self, *, share: Fraction | None = None, kind: Literal["warm"] = "warm") -> None:
        super().__init__()


def test_a_word_that_is_no_choice() -> None:
    """Python takes any, and another rule, or none, goes on in silence; the command line is checked by its parser."""
    federation, wrong = Federation(participants=2), cast("Any", "relesed")
    for make, expected in (
        (lambda: Chosen(kind=wrong), "kind of Chosen to be one of warm, cold, but got relesed"),
        (lambda: RFFL(preset=wrong), "preset of RFFL to be one of released, paper, .* did you mean released"),
        (lambda: FedAvg(variant=wrong), "variant of FedAvg to be one of fedavg, released, but got relesed"),
        (lambda: Digits(federation, watch=wrong), "watch of Digits to be one of validation, test, but got relesed"),
        (
            lambda: FederatedModule(federation, Perceptron(4, 4, 2), engine=wrong),
            "engine of FederatedModule to be one of auto, loop, stacked, but got relesed",
        ),
    ):
        with pytest.raises(UserError, match=expected):
            make()
    assert Chosen(kind="cold", turn="never", size=4).arguments["turn"] == "never"
    assert Unread(kind=wrong).arguments["kind"] == wrong  # nobody can tell
