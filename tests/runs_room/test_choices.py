"""Which of a folder's checkpoints is the newest."""

from __future__ import annotations

import os
from pathlib import Path

from rffl_pl.runs.checkpoint import RUN, choices


def test_of_one_moment_the_one_before_comes_second(tmp_path: Path) -> None:
    """Clocks are coarse, and a copy of a folder may be of one moment."""
    for name in ("last.previous.ckpt", "last.ckpt"):
        (tmp_path / name).mkdir()
        (tmp_path / name / RUN).touch()
        os.utime(tmp_path / name / RUN, (1, 1))
    assert [path.name for path in choices(tmp_path)] == ["last.ckpt", "last.previous.ckpt"]
