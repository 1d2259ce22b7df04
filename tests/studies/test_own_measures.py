"""What a user's own metric measures of final models reaches whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rffl_pl.evaluation import OF_STUDIES
from rffl_pl.runs import RunFolder
from rffl_pl.runs.shown import table_of
from rffl_pl.studies.cells import Cell
from rffl_pl.studies.results import NAMES, PLAYED, rows_of
from tests.conftest import Ended
from tests.runs_room.test_records import SUMMARY

STUDY = """
name: own
base: >-
  --config digits.yaml --run.wandb false --run.figures false --standalone.enabled false --trainer.max_epochs 1
  --federation.participants 2 --federation.adversaries 1 --data.examples_per_participant 30
  --trainer.enable_progress_bar false --model.measures+=torchmetrics.classification.MulticlassCalibrationError
  --model.measures.num_classes 10
axes:
  server:
    FedAvg: --server FedAvg
seeds: [1]
"""


def test_ones_own_measure_of_final_models(
    rffl: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is measured on the test set, and neither the result, the run's last words nor a study's table have it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(STUDY)
    assert rffl("study", "own.yaml", "--root", "results").code == 0
    (folder,) = {path.parent for path in (tmp_path / "results").rglob("summary.json")}
    summary = RunFolder.open(folder).summary()
    ((name, values),) = summary.measured.items()
    assert name == "multiclass_calibration_error"
    assert [value is not None and 0 < value < 1 for value in values] == [True] * 3
    mean = sum(value or 0 for value in values[:2]) / 2
    assert f"{name}: mean {mean:.4f} of the honest" in table_of(summary)
    table = rffl("study", "own.yaml", "--root", "results", "--table", "server", "--measure", name)
    assert table.code == 0, table.err
    assert f"{name} of the honest: 1 seed" in table.out
    assert f"| {mean:.3f} |" in table.out


def test_names_that_tables_have() -> None:
    """A metric of one's own that is called so would stand in a table as the accuracy, or be chosen by."""
    assert {*NAMES.values(), PLAYED} - {"accuracy"} == OF_STUDIES


def test_a_metric_that_is_called_as_a_field_of_the_summary() -> None:
    """Its rows would pass for the accuracies', or these be gone."""
    summary = replace(SUMMARY, spread=0.25, measured={"spread": [1.0, 2.0, None]})
    cell = Cell(place={"server": "FedAvg"}, seed=1, rounds=2, words=[], settings="", digest="one")
    found = [(row["measure"], row["participant"], row["value"]) for row in rows_of("own", cell, summary, {})]
    assert [row for row in found if "spread" in row[0] and "gain" not in row[0]] == [
        ("accuracy_spread", "", "0.25"),
        ("spread", "0", "1"),
        ("spread", "1", "2"),
    ]
    assert not [row for row in found if row[0] in ("honest", "rounds", "attacks")]
