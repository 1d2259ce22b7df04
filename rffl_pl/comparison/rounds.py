"""What a comparison has of the rounds of runs, which are read once, and which runs have none that can be read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rffl_pl.comparison.curves import curves
from rffl_pl.comparison.measures import Value
from rffl_pl.comparison.reading import Result, readable, seconds
from rffl_pl.errors import UserError
from rffl_pl.runs import Round, RunFolder, Summary


@dataclass(frozen=True)
class Played:
    """A finished run and what its rounds come to.

    Attributes:
        result: The run.
        summary: Its result.
        totals: Bytes of all rounds and seconds, by the name of the measure.
        curves: Those of every round.
    """

    result: Result
    summary: Summary
    totals: Mapping[str, Value]
    curves: Mapping[str, Any]


def played(results: Sequence[Result]) -> tuple[list[Played], dict[Path, str]]:
    """Finished runs, at least one, with what their rounds come to; by folder why those of a run cannot be read.

    Raises:
        UserError: If those of none can be read, the first one's mistake.
    """
    found: list[Played] = []
    damaged: dict[Path, str] = {}
    for result in results:
        try:
            with readable(result.path):
                found.append(_played(result))
        except UserError as mistake:
            damaged[result.path] = str(mistake)
    if not found:
        raise UserError(next(iter(damaged.values())))
    return found, damaged


def _played(result: Result) -> Played:
    assert result.summary is not None
    rounds = _rounds(RunFolder(result.path), result.summary)
    totals = {name: _total(rounds, name) for name in ("bytes_up", "bytes_down")} | {"seconds": seconds(result.path)}
    return Played(result, result.summary, totals, curves(rounds))


def _rounds(folder: RunFolder, summary: Summary) -> list[Round]:
    """Every round of an ended run, or none where it has no file of them."""
    if not folder.metrics_file.is_file():
        return []
    rounds = folder.rounds()
    last = rounds[-1].number if rounds else 0
    if last < summary.rounds:
        raise UserError(
            f"Expected {folder.metrics_file} to have all {summary.rounds} rounds of the result beside it, but it ends "
            f"after {last}: it was cut short; copy it again from where it is whole."
        )
    return rounds


def _total(rounds: Sequence[Round], name: str) -> Value:
    every = [value for entry in rounds for value in entry.measures.get(name, []) if not math.isnan(value)]
    return sum(every) if every else None
