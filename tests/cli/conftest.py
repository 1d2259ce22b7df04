"""A finished run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.folders import DIGITS, Run
from tests.conftest import only_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the run that everybody gets a copy of lies, once somebody has run it."""
    return tmp_path_factory.mktemp("finished") / "runs"


@pytest.fixture
def trained(rffl: Run, tmp_path: Path, finished: Path) -> Path:
    """The folder of a finished run of two rounds."""
    if not finished.exists():
        assert rffl(*DIGITS, "--trainer.max_epochs", 2, "--run.root", finished).code == 0
    shutil.copytree(finished, tmp_path / "runs")
    return only_run(tmp_path / "runs")
