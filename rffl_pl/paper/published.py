"""The figures that the paper prints, and which measurement of a packaged study stands beside each."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

from rffl_pl.studies.study import Place


@dataclass(frozen=True, kw_only=True, eq=False)
class Published:
    """One figure of the paper and what is measured for it.

    Attributes:
        table: One of `contents.TABLES`.
        row: The label of its row, a framework or a data set.
        column: The label of its column.
        study: The packaged study whose result it is, ``mnist`` of ``studies/paper/mnist.yaml``.
        place: Labels on the study's axes.
        participant: The number of a participant, ``mean`` or ``max`` over the honest, or nothing: one value per run.
        measure: As results call it, or an option of the configuration such as ``data.batch_size``.
        text: As it was printed; nothing for what the paper does not have.
    """

    table: str
    row: str
    column: str
    study: str
    place: Place
    participant: str
    measure: str
    text: str

    @property
    def value(self) -> float | None:
        """The figure."""
        return float(self.text) if self.text else None

    @property
    def rounding(self) -> float:
        """Half a unit of the last digit that was printed."""
        digits = self.text.partition(".")[2]
        return 0.5 * 10.0 ** -len(digits)


@functools.cache
def published(table: str) -> tuple[Published, ...]:
    """Every figure of a table, rows and columns in the order of the paper."""
    return tuple(entry for entry in _all() if entry.table == table)


@functools.cache
def _all() -> tuple[Published, ...]:
    with (Path(__file__).parent / "published.csv").open(newline="", encoding="utf-8") as lines:
        return tuple(
            Published(
                table=row["table"], row=row["row"], column=row["column"], study=row["study"],
                place=dict(pair.split("=", 1) for pair in row["place"].split(";") if pair),
                participant=row["participant"], measure=row["measure"], text=row["value"],
            )
            for row in csv.DictReader(lines)
        )  # fmt: skip
