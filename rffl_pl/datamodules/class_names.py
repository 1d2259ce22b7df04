"""Classes by the names that files and users give them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rffl_pl.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """One part of a data set.

    Attributes:
        rows: What is read of each row: a list, or a ``datasets.Dataset``.
        labels: The class of each, from 0 on.
    """

    rows: Any
    labels: Sequence[int]


def given_classes(names: Sequence[str | int | float | bool] | None) -> tuple[str, ...] | None:
    """The names in ``--data.classes``; None where none are given.

    Raises:
        UserError: If there are fewer than two, or one twice, or one that YAML has taken for something else.
    """
    if names is None:
        return None
    if isinstance(names, str):
        raise UserError(
            f"Expected --data.classes to be a list of names, but got {names}; give for instance [cat, dog]."
        )
    taken = [name for name in names if isinstance(name, bool | float)]
    if taken:
        raise UserError(
            f"Expected --data.classes to be texts or whole numbers, but YAML reads one as {taken[0]}; quote it, as in "
            "\"['yes', 'no']\"."
        )
    found = tuple(str(name).strip() for name in names)
    if len(found) < 2 or len({*found}) < len(found) or "" in found:
        raise UserError(
            f"Expected --data.classes to be two names or more that differ, but got {', '.join(found) or 'none'}; give "
            "for instance '[cat, dog]'."
        )
    return found


def label_of(given: Any) -> str:
    """A label as a class is called: text, a number or a truth; of what is none nothing."""
    if isinstance(given, float):
        given = (int(given) if given.is_integer() else given) if math.isfinite(given) else ""
    return str(given).strip() if isinstance(given, str | int | float) else ""


def by_number(label: str) -> tuple[bool, float, str]:
    """Numbers by their value, before other labels."""
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    return not math.isfinite(value), value if math.isfinite(value) else 0.0, label
