"""Runs beside each other on a terminal that has no room for all that there is to say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rffl_pl.cli import compare
from rffl_pl.comparison import table
from rffl_pl.comparison.reading import Result
from tests.runs_room.test_records import SUMMARY

FEW = {f"--server.option_{k}": "1" for k in range(20)}
EACH = [
    {"--server": "RFFL", "--data": "Digits", "--model.width": "8"},
    {"--server": "FedAvg", "--data": "Digits", "--model.width": "8"},
    {"--server": "my.Own", "--data": "MNIST", "--model.width": "8"} | FEW,
    {"--server": "NNM", "--data": "MNIST", "--model.width": "9"} | dict.fromkeys(FEW, "2"),
]
"""Two runs differ in much of which the others know nothing."""
RESULTS = [
    Result(path=Path(f"runs/digits/{k}"), options=settings, settings=settings, rounds="3", summary=SUMMARY)
    for k, settings in enumerate(EACH)
]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (45, ["run", "--server", "rounds", "mean", "maximum"]),
        (60, ["run", "--server", "rounds", "mean", "maximum", "honest removed"]),
        (70, ["run", "--server", "--data", "rounds", "mean", "maximum", "honest removed"]),
        (90, ["run", "--server", "--server.option_0", "--data", "rounds", "mean", "maximum", "honest removed"]),
    ],
)
def test_what_tells_runs_apart_and_the_results_come_first(width: int, shown: list[str]) -> None:
    """Lines of a thousand characters wrap, mostly of settings that few runs have, with the results at their ends."""
    lines = table(RESULTS, width).splitlines()
    assert re.split(" {2,}", lines[0]) == shown
    assert all(len(line) <= width for line in lines[:6])
    left = len(EACH[-1]) + 4 - (len(shown) - 1)
    assert lines[6].startswith(f"{left} more columns have no room here ({'honest removed; ' if width == 45 else '--'}")
    assert len(lines) == 7


def test_a_table_that_fits_is_whole() -> None:
    """It is the same that goes into a file; what no run has is left out first, without a word."""
    whole = table(RESULTS)
    width = max(map(len, whole.splitlines()))
    assert table(RESULTS, width) == whole
    assert "taken, points" in whole
    less = table(RESULTS, width - 1)
    assert "taken, points" not in less
    assert "no room" not in whole + less
    assert "1 more column has no room here (--model.width); " in table(RESULTS, len(less.partition("\n")[0]) - 1)


def test_runs_of_the_same_settings_have_results_alone() -> None:
    """Nothing tells them apart, however narrow a terminal is."""
    lines = table([RESULTS[0], RESULTS[0]], 50).splitlines()
    assert lines[0].split()[:3] == ["run", "rounds", "mean"]
    assert lines[-1] == "all options are the same"


def test_the_terminal_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file and a pipe have no width."""
    monkeypatch.setenv("COLUMNS", "77")
    for there, width in ((True, 77), (False, None)):
        monkeypatch.setattr(sys.stdout, "isatty", lambda there=there: there)
        assert compare._terminal() == width
