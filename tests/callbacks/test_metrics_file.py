"""The table of metrics is added to, whoever takes part."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rffl_pl import RunFolder
from rffl_pl.callbacks.metrics_file import ExperimentWriter
from tests.cli.folders import DIGITS, Run
from tests.conftest import only_run


def test_who_takes_part_for_the_first_time(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New columns of theirs had the whole file written anew, round after round until everybody had been asked."""
    rewritten: list[object] = []
    monkeypatch.setattr(ExperimentWriter, "_rewrite_with_new_header", lambda writer, names: rewritten.append(names))
    ended = rffl(*DIGITS, "--trainer.max_epochs", 6, "--federation.participation", 0.4)
    assert ended.code == 0, ended.err
    assert rewritten == []
    rounds = RunFolder.open(only_run(tmp_path / "runs")).rounds()
    asked = [[not math.isnan(loss) for loss in entry.measures["train_loss"]] for entry in rounds]
    assert len(rounds) == 6
    assert asked[0] != asked[1] or asked[1] != asked[2]
