"""A mistake that shows in the course of a run is one sentence; what shows before is in `tests/bad_input`."""

from __future__ import annotations

import pytest

from tests.cli.folders import DIGITS, Run
from tests.conftest import QUICK


@pytest.mark.parametrize("callback", ["EarlyStopping", "ModelCheckpoint"])
def test_a_metric_that_nobody_logs_is_one_sentence(rffl: Run, callback: str) -> None:
    """With its name, and the one that there is."""
    watching = (f"--trainer.callbacks+={callback}", "--trainer.callbacks.monitor", "val_acc")
    ended = rffl(*DIGITS, *QUICK, *watching, "--trainer.max_epochs", 2)
    assert ended.code == 2
    (sentence,) = (line for line in ended.err.splitlines() if line.startswith("Error: "))
    assert "val_acc" in sentence
    assert "accuracy/mean" in sentence
