"""RESULTS.md says what the kept results say."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import measured
from benchmarks.measured import PAGE, shown, tables
from benchmarks.results import RESULTS, commands, each_file_read_once
from rffl_pl.studies import Study, results
from rffl_pl.studies.settings import settings_digest
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
    assert shown(PAGE.read_text()) == tables()


def test_runs_with_other_words_than_now_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables leave them out, and the page said that they were measured."""
    file = tmp_path / "configs" / "studies" / "takeover.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("axes: {task: {MNIST: ''}, server: {RFFL: ''}, attack: {nobody: ''}}\nseeds: [1, 2]\n")
    study = Study.read(file)
    (place,) = study.places()
    digests = {"1": settings_digest(study, place), "2": "of other words"}
    kept = [
        place | {"study": study.name, "seed": seed, "rounds": "5", "value": "1", "settings": of}
        for seed, of in digests.items()
    ]
    results.keep(study, tmp_path / "results" / "takeover" / "results.csv.gz", kept)
    monkeypatch.setattr(measured, "ROOT", tmp_path)
    assert "| RFFL | 1 of 2, 0 of 0 |" in tables()["measured"]
    assert "| RFFL | none |" in tables()["worst"]
