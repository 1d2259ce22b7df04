"""What objects remember of their construction."""

from __future__ import annotations

from typing import Any

from rffl_pl.configured import Configured


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
