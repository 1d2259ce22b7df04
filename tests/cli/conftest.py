"""A finished run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.folders import DIGITS, Run
from tests.conftest import only_run


@pytest.fixture
def trained(rffl: Run, tmp_path: Path) -> Path:
    """The folder of a finished run of two rounds."""
    assert rffl(*DIGITS, "--trainer.max_epochs", 2).code == 0
    return only_run(tmp_path / "runs")
