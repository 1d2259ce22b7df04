"""Which of a folder's checkpoints is the newest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rffl_pl.runs.checkpoint import RUN, choices


def leave(folder: Path, **written: int) -> None:
    """Checkpoints by the moment that they were written in."""
    for name, moment in written.items():
        checkpoint = folder / f"{name.replace('_', '.')}.ckpt"
        checkpoint.mkdir()
        (checkpoint / RUN).touch()
        os.utime(checkpoint / RUN, (moment, moment))


def test_of_one_moment_the_one_before_comes_second(tmp_path: Path) -> None:
    """Clocks are coarse, and a copy of a folder may be of one moment."""
    leave(tmp_path, last_previous=1, last=1)
    assert [path.name for path in choices(tmp_path)] == ["last.ckpt", "last.previous.ckpt"]


def test_a_copy_in_another_order(tmp_path: Path) -> None:
    """What `cp -r` copied first is no older for that: the one that was replaced comes behind what replaced it."""
    leave(tmp_path, last=2, last_previous=3, best=1)
    assert [path.name for path in choices(tmp_path)] == ["last.ckpt", "last.previous.ckpt", "best.ckpt"]
    leave(tmp_path, newest=4)
    assert choices(tmp_path)[0].name == "newest.ckpt"


def test_the_one_before_alone(tmp_path: Path) -> None:
    """A write that was cut between its two renames leaves it; among others it goes by its own moment."""
    leave(tmp_path, last_previous=3, best=2)
    assert [path.name for path in choices(tmp_path)] == ["last.previous.ckpt", "best.ckpt"]


def test_a_run_that_renames_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks at it: there is one all the time."""
    leave(tmp_path, last=1)
    is_file = Path.is_file

    def renamed_first(path: Path) -> bool:
        if path.parent == tmp_path / "last.ckpt" and path.parent.exists():
            path.parent.rename(tmp_path / "last.previous.ckpt")
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", renamed_first)
    assert [path.name for path in choices(tmp_path)] == ["last.previous.ckpt"]
