"""What every bad input must come to."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import QUICK, Ended

FIT = ("fit", "--config", "digits.yaml", *QUICK, "--trainer.max_epochs", 1)

Row = tuple[tuple[object, ...], str]
"""Words, and a fragment of the sentence."""


def assert_refused(ended: Ended, expected: str) -> None:
    """Exit code 2 and one sentence, nothing else."""
    said = [line for line in ended.err.splitlines() if line and not line.startswith("Warning: ")]
    assert ended.code == 2, ended
    assert len(said) == 1, ended.err
    assert said[0].startswith("Error: Expected "), said
    assert said[0].endswith((".", "?")), said
    assert expected in said[0]


def below(folder: Path) -> set[Path]:
    """Everything in a test's folder, however deep."""
    return {*folder.rglob("*")}
