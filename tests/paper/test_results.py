"""RESULTS.md says what the kept results say."""

from __future__ import annotations

import pytest

from benchmarks.measured import PAGE, shown, table
from benchmarks.results import RESULTS, commands, each_file_read_once
from tests.cli.folders import Run
from tests.conftest import ROOT


@pytest.mark.slow
def test_the_tables_are_drawn_from_the_results(rffl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table was written by hand, or results came that it does not show: `python -m benchmarks.results`."""
    monkeypatch.chdir(ROOT)
    found = commands(RESULTS.read_text())
    assert found
    with each_file_read_once():
        for words, below in found:
            assert rffl(*words).out.strip() == below, words


def test_what_has_been_measured_is_told() -> None:
    """Results came, or were taken out, and the page says otherwise: `python -m benchmarks.measured`."""
    assert shown(PAGE.read_text()) == table()
