"""Where bad input is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.folders import Run


@pytest.fixture
def here(rffl: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder in which the command is given, with nothing of anybody's in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
