"""Callbacks of Lightning that would save what ranks do not have together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.folders import DIGITS, Run


@pytest.mark.parametrize(
    "words",
    [
        ("--trainer.callbacks+=OnExceptionCheckpoint", "--trainer.callbacks.dirpath", "saved"),
        ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.save_on_exception", "true"),
    ],
)
def test_nothing_is_saved_after_a_failure(rffl: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    """A rank that fails would wait for the others to write their part, and they for it."""
    ended = rffl(*DIGITS, *words)
    assert ended.code == 2
    assert ended.err.startswith("Error: Expected --trainer.callbacks that save whole rounds, but got "), ended.err
    assert not (tmp_path / "runs").exists()
