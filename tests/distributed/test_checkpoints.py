"""Checkpoints on ranks of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rffl_pl.federation import Federation
from rffl_pl.runs import RunFolder
from tests.conftest import QUICK, Ended, only_run
from tests.ranks import forked

pytestmark = pytest.mark.distributed


def test_a_part_that_another_rank_cannot_read_ends_all(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """What rank 1 alone reads is damaged: rank 0 says so, once, and nobody waits."""
    assert rffl("fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.max_epochs", 1).code == 0
    run = RunFolder.open(only_run(tmp_path / "runs"))
    hosted = Federation(participants=5, adversaries=1).hosted_by(1, 2)[0]
    part = run.checkpoints / "last.ckpt" / f"participant_{hosted}.pt"
    part.write_bytes(part.read_bytes()[:-100])
    given = ("--config", run.config_file, "--ckpt_path", run.checkpoints / "last.ckpt")
    ended = forked(2, "test", *given, root=tmp_path / "two")
    assert ended.code == 2
    assert ended.err.count(f"Error: Expected --ckpt_path {part} to be a whole checkpoint") == 1
