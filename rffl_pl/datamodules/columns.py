"""Columns of a table as entries of an input: numbers standardised, categories one entry each."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

import torch
from torch import Tensor

from rffl_pl.datamodules.class_names import listed
from rffl_pl.datamodules.labelled import by_number
from rffl_pl.errors import UserError
from rffl_pl.functional.finite import all_finite

GAPS = ("", "?", "na", "n/a", "nan", "none", "null")
"""What stands for no number, in whatever case."""

_OTHER_NUMBER = re.compile(r"\(?[-+\u2212]?\d+([.,\s'\u2019]\d+)*\s?%?\)?")
"""A number as a table for readers has it: with a decimal comma, marks between thousands, in brackets, in per cent."""

MOST_CATEGORIES = 100
"""So many different texts are categories unasked; a column with more is rather a name or an identifier."""


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        where: The words for where it stands.
        values: What it has in each column, as text.
    """

    where: str
    values: Sequence[str]


@dataclass(frozen=True)
class Numbers:
    """A column of numbers: (x - mean) / deviation, and 0, the mean, in a gap.

    Attributes:
        name: The column's.
        mean: Of the numbers that there are.
        deviation: Their standard deviation, of all of them and not of a sample; 1 where all are the same.
        gaps: Whether some are missing: a second entry is 1 in a gap and 0 elsewhere.
    """

    name: str
    mean: float
    deviation: float
    gaps: bool

    @property
    def entries(self) -> list[str]:
        """What its entries are called."""
        return [self.name, f"{self.name} missing"] if self.gaps else [self.name]

    def encode(self, values: Sequence[str], rows: Sequence[Row]) -> Tensor:
        """Its entries ``[n, 1 or 2]`` float32 where it has these values in rows.

        Raises:
            UserError: If one is no number and no gap, or one so far from the mean that float32 has none for it.
        """
        found = numbers_of(values)
        if None in found:
            other = found.index(None)
            raise UserError(
                f"Expected a number in column {self.name}, as in others of its rows, but {rows[other].where} has "
                f"{values[other]!r}; correct it, or leave it empty."
            )
        numbers = torch.tensor(found, dtype=torch.float64)
        missing = numbers.isnan()
        scaled = ((numbers - self.mean) / self.deviation).masked_fill(missing, 0.0).float()
        if not all_finite(scaled):
            far = int(scaled.isfinite().logical_not().nonzero()[0])
            raise UserError(
                f"Expected numbers in column {self.name} that are not endlessly far from its mean, {self.mean:g}, but "
                f"{rows[far].where} has {values[far]!r}; correct it."
            )
        return torch.stack([scaled, missing.float()] if self.gaps else [scaled], dim=1)


@dataclass(frozen=True)
class Categories:
    """A column of categories: an entry for each, 1 where a row has it; all 0 where it has another one, or none.

    Where all are numbers, and no two the same, ``1`` is the category ``1.0``: a column with gaps is often written so.

    Attributes:
        name: The column's.
        values: The categories.
    """

    name: str
    values: tuple[str, ...]

    @property
    def entries(self) -> list[str]:
        """What its entries are called."""
        return [f"{self.name}={value}" for value in self.values]

    def encode(self, values: Sequence[str]) -> Tensor:
        """Its entries ``[n, categories]`` float32 where it has these values."""
        known = self._numbered({*values})
        found = torch.tensor([known.get(text, len(self.values)) for text in values], dtype=torch.int64)
        entries = torch.zeros(len(values), len(self.values) + 1)  # one_hot has 8 bytes for each, and then others
        return entries.scatter_(1, found.unsqueeze(1), 1.0)[:, :-1]

    def unknown(self, values: Sequence[str], rows: Sequence[Row]) -> str | None:
        """The sentence on rows of which a tenth of those that have a value, or more, have no category; else None."""
        known = self._numbered({*values})
        others = [text for text in values if text and text not in known and not (known and text.lower() in GAPS)]
        there = len(others) + sum(text in known for text in values)
        if not others or 10 * len(others) < there:
            return None
        return (
            f"{f'{len(others)} of {there} rows have no' if known else 'No row has a'} category of column {self.name}, "
            f"of which there are {', '.join(self.values[:5])}: {_where(others[0], values, rows)} has {others[0]!r}, "
            "which counts as none."
        )

    def _numbered(self, texts: Collection[str]) -> dict[str, int]:
        """Of those texts that are a category its number."""
        exact = {value: number for number, value in enumerate(self.values)}
        alike = {number_of(value): number for value, number in exact.items()}
        if len(alike) < len(exact) or any(value is None or math.isnan(value) for value in alike):
            alike = {}
        found = {text: exact[text] if text in exact else alike.get(number_of(text)) for text in texts}
        return {text: number for text, number in found.items() if number is not None}


@dataclass(frozen=True)
class Columns:
    """How the rows of a table are read, as some rows of it say.

    Attributes:
        columns: In their order.
    """

    columns: tuple[Numbers | Categories, ...]

    @classmethod
    def of(cls, names: Sequence[str], rows: Sequence[Row], categories: Collection[str]) -> Columns:
        """Columns of numbers and of texts, by what rows have in them.

        Args:
            names: What the columns are called.
            rows: With a value for each.
            categories: Columns whose values are categories though they be numbers, or many.

        Raises:
            UserError: If a column has no value, numbers and texts, numbers written as ``1,5``, or too many texts.
        """
        by_column = zip(names, _by_column(rows) or [()] * len(names), strict=True)
        return cls(tuple(_column(name, values, rows, name in categories) for name, values in by_column))

    @property
    def entries(self) -> list[str]:
        """What the entries of an input are called."""
        return [entry for column in self.columns for entry in column.entries]

    @property
    def digest(self) -> str:
        """A digest of all that inputs depend on beside their rows: categories, means and deviations."""
        return hashlib.sha256(repr(self.columns).encode()).hexdigest()[:16]

    def encode(self, rows: Sequence[Row], warn: Callable[[str], None]) -> Tensor:
        """Inputs ``[n, entries]`` float32.

        Args:
            rows: With a value for each column.
            warn: Told of each column in which many rows have a category that is none of its.

        Raises:
            UserError: If a row has something else than a number where numbers are, or one that is endlessly far away.
        """
        if not rows:
            return torch.empty(0, len(self.entries))
        pairs = [*zip(self.columns, _by_column(rows), strict=True)]
        for column, values in pairs:
            if isinstance(column, Categories) and (told := column.unknown(values, rows)) is not None:
                warn(told)
        encoded = (
            column.encode(values, rows) if isinstance(column, Numbers) else column.encode(values)
            for column, values in pairs
        )
        return torch.cat([*encoded], dim=1)


def number_of(text: str) -> float | None:
    """The finite number that a text is, NaN where it stands for none, None where it is another text."""
    try:
        number = float(text)
    except ValueError:
        return math.nan if text.lower() in GAPS else None
    return None if math.isinf(number) or "_" in text else number


def gaps_among(names: Sequence[str]) -> tuple[list[str], bool]:
    """Those of different names that stand for nothing; where there are any, whether all others are numbers."""
    gaps = [name for name in names if name.lower() in GAPS]
    return gaps, 0 < len(gaps) < len(names) and all(number_of(name) is not None for name in names)


def numbers_of(texts: Sequence[str]) -> Sequence[float | None]:
    """`number_of` each; where they are numbers alone, as most columns are, without a step of Python for each."""
    try:
        plain = [*map(float, texts)]
    except ValueError:
        plain = []
    if plain and "_" not in "".join(texts) and all(map(math.isfinite, plain)):
        return plain
    known = {text: number_of(text) for text in {*texts}}
    return [known[text] for text in texts]


def text_of(value: Any) -> str | None:
    """A field as text, blanks around it taken away, its characters written in one way (NFC).

    A truth is 1 or 0; of a list or an object None.
    """
    if isinstance(value, str):
        text = value.strip()
        return text if text.isascii() else normalize("NFC", text)  # of ASCII there is one way
    if value is None:
        return ""
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    return str(value) if isinstance(value, int | float) else None


def _by_column(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """What rows have in each column, without a step of Python for each."""
    return [*zip(*(row.values for row in rows), strict=True)]


def _column(name: str, values: Sequence[str], rows: Sequence[Row], category: bool) -> Numbers | Categories:
    texts = [text for text in dict.fromkeys(values) if text]
    if not texts or (not category and all(text.lower() in GAPS for text in texts)):
        raise UserError(
            f"Expected values in column {name}, but all {len(rows)} rows lack one; leave it out with --data.leave_out "
            f"{listed(name)}."
        )
    numbers = {} if category else dict(zip(texts, numbers_of(texts), strict=True))
    other = next((text for text, number in numbers.items() if number is None), None)
    if any(number is not None and not math.isnan(number) for number in numbers.values()):
        if other is not None:  # one that is misspelt would make categories of all of them
            raise UserError(
                f"Expected numbers alone in column {name}, or none, but {_where(other, values, rows)} has {other!r} "
                "and others have numbers; correct it, leave the column out with --data.leave_out "
                f"{listed(name)}, or say with --data.categories {listed(name)} that each of its values is a category."
            )
        known = {"": math.nan} | {text: number for text, number in numbers.items() if number is not None}
        return _numbers(name, [*map(known.__getitem__, values)])
    said = [text for text in texts if text.lower() not in GAPS]
    if not category and all(map(_OTHER_NUMBER.fullmatch, said)):
        raise UserError(
            f"Expected numbers in column {name} as 1234.5, but {_where(said[0], values, rows)} has {said[0]!r}; write "
            f"them so, or say with --data.categories {listed(name)} that each is a category."
        )
    if not category and len(texts) > MOST_CATEGORIES:
        raise UserError(
            f"Expected numbers in column {name}, or at most {MOST_CATEGORIES} different texts, but there are "
            f"{len(texts)}, {texts[0]!r} in {_where(texts[0], values, rows)} for one; leave it out with "
            f"--data.leave_out {listed(name)}, or say with --data.categories {listed(name)} that each is a category."
        )
    return Categories(name, tuple(sorted(texts, key=by_number)))


def _numbers(name: str, values: Sequence[float]) -> Numbers:
    """A column with these numbers, NaN in gaps.

    Sums are exact and then rounded, so that they do not depend on the number of threads.
    """
    there = [value for value in values if not math.isnan(value)]
    _, power = math.frexp(max(map(abs, there)))  # beside which squares neither overflow nor vanish
    scaled = [math.ldexp(value, -power) for value in there]
    mean = math.fsum(scaled) / len(scaled)
    variance = math.fsum((value - mean) ** 2 for value in scaled) / len(scaled)
    deviation = 1.0 if min(there) == max(there) else math.ldexp(math.sqrt(variance), power)
    return Numbers(name, math.ldexp(mean, power), deviation, len(there) < len(values))


def _where(text: str, values: Sequence[str], rows: Sequence[Row]) -> str:
    """The words for where a text stands first among what rows have in a column."""
    return rows[values.index(text)].where
