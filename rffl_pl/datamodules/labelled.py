"""Rows with their labels, and the groups that they are of."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload
from unicodedata import normalize

from torch import Tensor
from torch.utils.data import TensorDataset

from rffl_pl.errors import UserError

_NUMBER = re.compile(r"([-+]?)(?=\.?\d)(0*)(\d*)(?:\.(\d*))?(?:[eE]([-+]?\d{1,9}))?", re.ASCII)
"""Sign, zeros in front, what stands before the point and behind it, and the power of ten."""


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """One part of a data set.

    Attributes:
        rows: What is read of each row: a list, or a ``datasets.Dataset``.
        labels: The class of each, from 0 on.
        groups: Which of them belong together, where a column says so.
        places: Where each lies, as a split or a file is looked at.
    """

    rows: Any
    labels: Sequence[int]
    groups: Groups | None = None
    places: Sequence[str]


class Groups(list[int]):
    """The group of every row by its number, in the order of the groups' names.

    Args:
        called: What the group of each is called.

    Attributes:
        names: What groups are called, by their numbers.
    """

    def __init__(self, called: Sequence[str]) -> None:
        self.names = sorted({*called}, key=by_number)
        numbers = {name: number for number, name in enumerate(self.names)}
        super().__init__(numbers[name] for name in called)


class Lines(Sequence[str]):
    """Where rows stand, ``line 87``, as numbers: texts for millions of them would take more memory than the rows.

    Args:
        word: What they count.
        numbers: Of each row its own.
    """

    def __init__(self, word: str, numbers: Iterable[int]) -> None:
        self.word, self.numbers = word, array("q", numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Lines: ...
    def __getitem__(self, at: int | slice) -> str | Lines:
        return Lines(self.word, self.numbers[at]) if isinstance(at, slice) else f"{self.word} {self.numbers[at]}"


class Placed(TensorDataset):
    """Inputs and classes in memory, and where each example comes from.

    Args:
        tensors: Inputs and classes.
        places: A text for each.
    """

    def __init__(self, *tensors: Tensor, places: Sequence[str]) -> None:
        super().__init__(*tensors)
        self.places = places


def label_of(given: Any) -> str:
    """A label as a class is called: text, in one way to write its characters, a number or a truth; of none nothing."""
    if isinstance(given, float):
        given = (int(given) if given.is_integer() else given) if math.isfinite(given) else ""
    return normalize("NFC", str(given).strip()) if isinstance(given, str | int | float) else ""


def check_alike(names: Iterable[str], what: str, where: str, more: str = "") -> None:
    """See that no number is there twice, in several spellings.

    Args:
        names: What classes or groups are called.
        what: Which of these they are.
        where: The words for the column that they stand in.
        more: What to do where they are two.

    Raises:
        UserError: If one is.
    """
    found: dict[str, str] = {}
    for name in sorted(names):
        other = found.setdefault(spelling(name), name)
        if other != name:
            raise UserError(
                f"Expected every number in {where} to be written in one way, but {other} and {name} are one, and would "
                f"be two {what}; write them alike{more}."
            )


def written_alike(label: str, names: Iterable[str]) -> str | None:
    """The name that is the same number as a label, written in another way; None if none is."""
    return next((name for name in names if spelling(name) == spelling(label)), None)


def spelling(name: str) -> str:
    """One text for all spellings of a number, ``1``, ``+1``, ``1.0`` and ``10e-1``; any other name as it is.

    Zeros in front are kept, ``007`` is another name than ``7``. No digit is lost, as it would be in a float.
    """
    found = _NUMBER.fullmatch(name)
    if found is None:
        return name
    sign, zeros, whole, behind, power = found.groups("")
    zeros = zeros if whole else zeros[1:]  # one alone is the number's own
    digits = (whole + behind).lstrip("0")
    ending = len(digits) - len(digits.rstrip("0"))
    if not digits:
        return f"{zeros}0"
    return f"{sign.strip('+')}{zeros}{digits.rstrip('0')}e{int(power or 0) - len(behind) + ending}"


def by_number(label: str) -> tuple[bool, float, str]:
    """Numbers by their value, before other labels."""
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    return not math.isfinite(value), value if math.isfinite(value) else 0.0, label
