"""Ranks whose main threads wait for each other for ever, and are asked to end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rffl_pl.runs import RunFolder
from tests.cli.folders import DIGITS
from tests.conftest import only_run
from tests.ranks import forked
from tests.runs import kept_in

pytestmark = pytest.mark.distributed


@pytest.mark.slow
def test_who_waits_for_others_hears_it_too(tmp_path: Path) -> None:
    """The grace of a round is over and they wait on; or nobody says which round is given up."""
    words = ("--trainer.max_epochs", 9, "--run.grace", 1, "--trainer.callbacks+=tests.stuck.Stuck", "--ranks", 2)
    ended = forked(1, *DIGITS, *words, root=tmp_path)
    assert ended.code == 128 + signal.SIGTERM, ended.err
    assert ended.err.count("Stopped by SIGTERM: the round did not end within 1 s and is given up") == 1
    assert kept_in(RunFolder.open(only_run(tmp_path)).checkpoints / "last.ckpt")["federation"]["round"] == 2
