"""What this package measured for the paper's figures, from the results that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from rffl_pl.paper.published import Published
from rffl_pl.studies import Study, results
from rffl_pl.studies.estimate import Estimate, interval
from rffl_pl.studies.results import Row
from rffl_pl.studies.settings import left_out, of_today
from rffl_pl.studies.study import CURVE_COLUMNS

_OVER: Mapping[str, Callable[[Iterable[float]], float]] = {"mean": fmean, "max": max}


class Kept:
    """The results of the packaged studies that lie in a folder.

    Args:
        folder: With a file per study, ``mnist-reduced.csv.gz``, and one of every round where the study keeps that.
        studies: The packaged studies by the name that `Published` has, reduced if that is wanted.

    Attributes:
        left_out: A sentence on every file that was read and has runs of other words than its study has now.
    """

    def __init__(self, folder: Path, studies: Mapping[str, Study]) -> None:
        self.folder, self.studies = folder, studies
        self.left_out: list[str] = []
        self._rows: dict[Path, dict[tuple[str, ...], list[Row]]] = {}

    def file(self, study: str) -> Path:
        """Where a study's results are."""
        return self.folder / f"{self.studies[study].name}.csv.gz"

    def at(self, study: str, place: Mapping[str, str]) -> list[Row]:
        """All rows at a place of a study, of the longest runs that there are."""
        return _longest(self._read(study, self.file(study), results.COLUMNS, place))

    def curves(self, study: str, place: Mapping[str, str]) -> list[Row]:
        """All rows of every round at a place of a study, of the longest runs that there are."""
        return _longest(self._read(study, results.curves_beside(self.file(study)), CURVE_COLUMNS, place))

    def _read(self, name: str, file: Path, columns: Sequence[str], place: Mapping[str, str]) -> list[Row]:
        if file not in self._rows:
            study = self.studies[name]
            by_place: dict[tuple[str, ...], list[Row]] = {}
            rows, others = of_today(study, results.read(study, file, columns) if file.is_file() else [])
            for row in rows:
                by_place.setdefault(tuple(row[axis] for axis in study.axes), []).append(row)
            self._rows[file] = by_place
            if others:
                self.left_out.append(left_out(study, others))
        return self._rows[file].get(tuple(place[axis] for axis in self.studies[name].axes), [])

    def estimate(self, entry: Published) -> Estimate | None:
        """Mean and interval over seeds of what stands beside a published figure, as a share; None if there is none."""
        by_seed: dict[str, list[float]] = {}
        rounds = 0
        for row in self.at(entry.study, entry.place):
            if row["measure"] == entry.measure and _fits(row, entry.participant):
                by_seed.setdefault(row["seed"], []).append(float(row["value"]))
                rounds = int(row["rounds"])
        values = [_OVER.get(entry.participant, fmean)(several) for several in by_seed.values()]
        return Estimate(fmean(values), interval(values), len(values), rounds) if values else None


def _fits(row: Row, participant: str) -> bool:
    if participant in _OVER:
        return row["role"] == "honest"
    return row["participant"] == participant


def _longest(rows: list[Row]) -> list[Row]:
    most = max((int(row["rounds"]) for row in rows), default=0)
    return [row for row in rows if int(row["rounds"]) == most]


def parts(entry: Published, estimate: Estimate | None) -> bool:
    """Whether published and measured figure differ by more than the interval and the rounding of the print."""
    if entry.value is None or estimate is None or estimate.half is None:
        return False
    return abs(entry.value - 100 * estimate.mean) > 100 * estimate.half + entry.rounding
