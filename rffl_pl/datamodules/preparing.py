"""What a data set's own code meets before its examples are there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

from rffl_pl import launch
from rffl_pl.errors import UserError, reason

T = TypeVar("T")


def held(prepare: Callable[[Any], None]) -> Callable[[Any], None]:
    """``prepare_data``, which one rank of a node runs: its mistake waits for `setup`, where all ranks hear of it."""

    @wraps(prepare)
    def holding(self: Any) -> None:
        self.mistake = None  # one that has been mended
        try:
            called(partial(prepare, self), f"prepare_data() of {type(self).__name__} to put the data in place")
        except UserError as mistake:
            if launch.world_size() == 1:
                raise
            self.mistake = mistake

    return holding


def called(load: Callable[[], T], what: str) -> T:
    """What a user's own code gives.

    Raises:
        UserError: If it fails, whatever files and that code can meet; ``what`` is what was expected of it.
    """
    try:
        return load()
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"Expected {what}, but {reason(error)}.") from error
