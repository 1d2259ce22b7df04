"""Cells that fail in other ways than by a user's mistake or an exception: each is told of and stops no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.folders import Run
from tests.interruption import PowerCut
from tests.studies.files import DIGITS, rows, study


class Leaving(PowerCut):
    """Ends the process, or means to, as Lightning does after Ctrl-C."""

    exception = SystemExit(1)


@pytest.mark.parametrize("pack", [1, 2])
def test_a_cell_that_calls_exit_stops_no_other(rffl: Run, tmp_path: Path, pack: int) -> None:
    """It has failed, and nobody interrupted the study; alone and in a pack."""
    text = f"""\
base: {DIGITS} --trainer.max_epochs 1 --model.engine stacked
axes:
  what:
    left: --trainer.callbacks+={Leaving.__module__}.Leaving --trainer.callbacks.after 0
    fine: ""
"""
    root = tmp_path / "studies"
    ended = rffl("study", study(tmp_path, text, "two.yaml"), "--root", root, "--pack", pack)
    assert ended.code == 1, ended.err
    failed = [line for line in ended.err.splitlines() if line.startswith("Failed: ")]
    assert len(failed) == 1
    sentence, _, log = failed[0].partition(" (")
    assert sentence == "Failed: what=left seed=1: A callback or a library of its ended it by sys.exit(1)."
    assert "in on_train_batch_start" in Path(log.rstrip(")")).read_text()
    assert {row["what"] for row in rows(root / "two" / "results.csv")} == {"fine"}
