"""Runs beside each other on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rffl_pl.comparison.reading import Result, names
from rffl_pl.comparison.settings import differing
from rffl_pl.runs.records import percent

_RESULTS = ("mean", "maximum", "fairness", "gain, points", "adversaries removed", "honest removed", "taken, points")


def table(results: Sequence[Result]) -> str:
    """A row per run: its folder, the settings that differ, and the results."""
    differ = differing([result.settings for result in results])
    head = ["run", *differ, "rounds done" if "rounds" in differ else "rounds", *_RESULTS]
    rows = [
        [called, *(result.settings.get(name, "-") for name in differ), result.rounds, *_values(result)]
        for called, result in zip(names(results), results, strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [_line(cells, widths) for cells in (head, ["-" * width for width in widths], *rows)]
    return "\n".join([*lines, *_same(results, differ)])


def _same(results: Sequence[Result], differ: Sequence[str]) -> list[str]:
    """What is said of settings that no column shows."""
    unknown = [called for called, result in zip(names(results), results, strict=True) if not result.settings]
    if unknown:
        return [f"settings of {', '.join(unknown)} are not known: there is no config.yaml"]
    return [] if differ or len(results) < 2 else ["all settings are the same"]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = cells
    padded = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
    return "  ".join([first.ljust(widths[0]), *padded])


def _values(result: Result) -> list[str]:
    summary = result.summary
    if summary is None:
        return ["-"] * len(_RESULTS)
    gone = [number is not None for number in summary.removed_in_round]
    adversaries = gone[summary.honest :]
    return [
        percent(summary.mean),
        percent(summary.maximum),
        "-" if summary.fairness is None else f"{summary.fairness:.3f}",
        _points(summary.gain),
        f"{sum(adversaries)} of {len(adversaries)}" if adversaries else "-",
        f"{sum(gone[: summary.honest])} of {summary.honest}",
        _points(summary.taken),
    ]


def _points(difference: float | None) -> str:
    return "-" if difference is None else f"{100 * difference:+z.1f}"
