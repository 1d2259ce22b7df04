"""Results that are made of a study's, as of a study with other axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rffl_pl.studies.results import Row
from rffl_pl.studies.study import Study


@dataclass(frozen=True)
class Derived:
    """Results that are made of others.

    Attributes:
        study: The study as it is with the axes that these have.
        rows: The results.
        left_out: The sentence on what is lacking among those that they are made of, if anything is.
    """

    study: Study
    rows: list[Row]
    left_out: str | None


def by_label(rows: Iterable[Row], columns: Sequence[str], axis: str) -> dict[tuple[str, ...], dict[str, list[float]]]:
    """The values at each label of an axis, by what rows have in some columns."""
    found: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for row in rows:
        where = tuple(row[column] for column in columns)
        found.setdefault(where, {}).setdefault(row[axis], []).append(float(row["value"]))
    return found


def and_more(several: Sequence[object]) -> str:
    """The words `` and 2 more`` behind the first of three, say; empty behind the only one."""
    return f" and {len(several) - 1} more" if len(several) > 1 else ""
