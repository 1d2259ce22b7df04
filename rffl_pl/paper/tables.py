"""The paper's tables: a line with what was published, a line with what is measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from rffl_pl.paper.contents import TABLES
from rffl_pl.paper.measured import Kept, parts
from rffl_pl.paper.published import Published, published
from rffl_pl.studies.estimate import Estimate
from rffl_pl.studies.tables import reach
from rffl_pl.studies.written import latex, markdown

_CSV = ("row", "column", "participant", "measure", "published")
SETTINGS = "fi_hyperparameters"
"""The table of options, which no run is needed for."""


class PaperTable:
    """One table of the paper.

    Args:
        name: One of `TABLES`.
        kept: The results.
        options: Of `SETTINGS` the options that the studies have, by study and name.
    """

    def __init__(self, name: str, kept: Kept, options: Mapping[tuple[str, str], Any]) -> None:
        self.name, self.kept, self.options = name, kept, options
        self.entries = published(name)
        self.estimates = {entry: kept.estimate(entry) for entry in self.entries} if name != SETTINGS else {}
        self.rows = list(dict.fromkeys(entry.row for entry in self.entries))
        self.columns = list(dict.fromkeys(entry.column for entry in self.entries))

    def written(self, how: str) -> str:
        """As Markdown (``md``), LaTeX (``tex``) or ``csv``."""
        if how == "csv":
            return self._csv()
        return (markdown if how == "md" else latex)(self.caption(), self._grid())

    def caption(self) -> str:
        """What is shown: schedule, interval, number of seeds and rounds, and what is missing."""
        if self.name == SETTINGS:
            return (
                f"{TABLES[self.name]}; first line: Xu & Lyu 2021, second line: configured here, {self._schedule()}; ≠ "
                "where they part."
            )
        there = [estimate for estimate in self.estimates.values() if estimate is not None]
        if not there:
            other = "" if self._is_reduced() else ", --reduced shows what was run by the small schedule"
            return f"{TABLES[self.name]}; Xu & Lyu 2021. Nothing is measured yet: --run runs what is missing{other}."
        seeds, rounds = ({getattr(estimate, name) for estimate in there} for name in ("seeds", "rounds"))
        lacking = len({_cell(entry) for entry in self.entries if not self.kept.at(entry.study, entry.place)})
        return (
            f"{TABLES[self.name]}; first line: Xu & Lyu 2021, second line: measured, {self._schedule()}, mean ± 95 % "
            f"interval of Student's t over {reach(seeds)} seed{'' if seeds == {1} else 's'}"
            f"{' (of one there is none, and no ≠)' if 1 in seeds else ''}, after the last round, {reach(rounds)}; "
            f"≠ where they part by more than the interval and the rounding of the print"
            f"{f'; missing: {_runs(lacking)}' if lacking else ''}."
        )

    def _schedule(self) -> str:
        return "reduced schedule" if self._is_reduced() else "the paper's schedule"

    def _is_reduced(self) -> bool:
        return any(self.kept.studies[entry.study].name.endswith("-reduced") for entry in self.entries)

    def _grid(self) -> list[list[str]]:
        grid = [["", *self.columns]]
        for row in self.rows:
            cells = [[entry for entry in self.entries if (entry.row, entry.column) == (row, c)] for c in self.columns]
            if any(entry.text for cell in cells for entry in cell):
                grid.append([f"{row}, published", *(_printed(cell) for cell in cells)])
            second = "configured" if self.name == SETTINGS else "measured"
            grid.append([f"{row}, {second}", *(self._measured(cell) for cell in cells)])
        return grid

    def _measured(self, cell: Sequence[Published]) -> str:
        """``53.6 ± 0.2 (94.1 ± 0.3) ≠``."""
        if self.name == SETTINGS:
            (entry,) = cell
            value = self.options[entry.study, entry.measure]
            return f"{value:g}" + ("" if float(value) == entry.value else " ≠")
        texts = [self._text(entry) for entry in cell]
        mark = " ≠" if any(parts(entry, self.estimates[entry]) for entry in cell) else ""
        return _bracketed(texts) + mark

    def _text(self, entry: Published) -> str:
        estimate = self.estimates[entry]
        if estimate is not None:
            return estimate.text(100, 1)
        ran = bool(self.kept.at(entry.study, entry.place))
        return "undefined" if ran else "-"  # constant accuracies have no correlation

    def _csv(self) -> str:
        """A line per figure, in %, unrounded."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow([*_CSV, "mean", "half_width_95_student_t", "seeds", "rounds", "parts"])
        for entry in self.entries:
            table.writerow(
                [entry.row, entry.column, entry.participant, entry.measure, entry.text, *self._numbers(entry)]
            )
        return text.getvalue().rstrip("\n")

    def _numbers(self, entry: Published) -> list[Any]:
        if self.name == SETTINGS:
            value = self.options[entry.study, entry.measure]
            return [value, "", "", "", value != entry.value]
        estimate: Estimate | None = self.estimates[entry]
        if estimate is None:
            return [""] * 5
        half = "" if estimate.half is None else 100 * estimate.half
        tested = "" if estimate.half is None or entry.value is None else parts(entry, estimate)
        return [100 * estimate.mean, half, estimate.seeds, estimate.rounds, tested]


def _cell(entry: Published) -> tuple[Any, ...]:
    return entry.study, *entry.place.values()


def _printed(cell: Sequence[Published]) -> str:
    return _bracketed([entry.text or "-" for entry in cell])


def _bracketed(texts: Sequence[str]) -> str:
    """The first, and the second in brackets if there is one."""
    first, *rest = texts
    return f"{first} ({rest[0]})" if rest and set(texts) != {"-"} else first


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
