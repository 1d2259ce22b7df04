"""A disk that has no room, or takes nothing: one sentence, and what was written before stays."""

from __future__ import annotations

import contextlib
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rffl_pl.runs.circumstances import circumstances
from tests.cli.folders import DIGITS, Run, assert_same_bits, rows, whole
from tests.runs import kept_in


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses to write more than so many bytes into a file."""
    circumstances()  # now, and once: git would be ended as it writes the checkout's index, and leave its lock for good
    before, compiled = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # what is imported meanwhile would be cut off as well, in the checkout and for good
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = compiled


def test_no_room_for_a_checkpoint(rffl: Run, tmp_path: Path) -> None:
    """One sentence; the run ends, or goes on if the user says so."""
    args = (*DIGITS, "--trainer.max_epochs", 2)
    with files_of_at_most(12_000):
        ended = rffl(*args, "--run.name", "full")
    assert ended.code == 2, ended.err
    assert ended.err.count("Expected to write the checkpoint") == 1
    assert "give --run.checkpoint_errors warn to train on without" in ended.err
    assert "Traceback" not in ended.err
    (full,) = (tmp_path / "runs" / "full").iterdir()
    assert not list((full / "checkpoints").glob("*.ckpt"))
    with files_of_at_most(12_000):
        ended = rffl(*args, "--run.name", "on", "--run.checkpoint_errors", "warn")
    assert "This run goes on." in ended.err
    assert "--run.checkpoint_errors" not in ended.err  # which is given
    with files_of_at_most(12_000):
        ended = rffl(*args, "--run.name", "own", "--trainer.callbacks+=ModelCheckpoint")
    assert "and start again.\n" in ended.err
    assert "--run.checkpoint_errors" not in ended.err  # which is refused beside one of one's own
    (on,) = (tmp_path / "runs" / "on").iterdir()
    assert len(rows(on / "metrics.csv")) == 2


def test_no_room_for_the_configuration(rffl: Run, tmp_path: Path) -> None:
    """The file is named, and nothing half-made stays."""
    with files_of_at_most(2_000):
        ended = rffl(*DIGITS, "--trainer.max_epochs", 1, "--run.name", "full")
    assert ended.code == 2, ended.err
    assert re.search(r"^Error: Expected to write \S+/config.yaml, but File too large; make room, and", ended.err)
    assert not (tmp_path / "runs" / "full").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 KB: room for two checkpoints of the digits, not for a third beside them."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("errors", ["stop", "warn"])
def test_a_full_disk(rffl: Run, small_disk: Path, errors: str) -> None:
    """What was written before stays whole, what did not fit makes room again, and nobody sees a traceback."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 8, "--run.checkpoint_errors", errors, "--run.root", small_disk)
    assert ended.code == 2
    at_the_end = re.search(r"weights/participant_\d.pt, but No space left", ended.err)
    assert (at_the_end is not None) == (errors == "warn"), ended.err
    assert ended.err.count("last.ckpt, but No space left on device") == 1, ended.err
    assert "Traceback" not in ended.err
    (run,) = (small_disk / "digits").iterdir()
    assert not list((run / "checkpoints").glob(".*"))
    kept = kept_in(run / "checkpoints" / "last.ckpt")["federation"]["round"]
    assert len(rows(run / "metrics.csv")) == (kept + 1 if errors == "stop" else 8)


def test_a_disk_that_only_reads(rffl: Run, small_disk: Path) -> None:
    """One sentence, for a run that begins and for one that goes on."""
    begun = rffl(*DIGITS, "--trainer.max_epochs", 1, "--run.root", small_disk)
    assert begun.code == 0, begun.err
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for more in ((), ("--ckpt_path", "last")):
        ended = rffl(*DIGITS, "--trainer.max_epochs", 2, "--run.root", small_disk, *more)
        assert ended.code == 2
        assert "Read-only file system" in ended.err
        assert ended.err.count("Error: Expected") == ended.err.count("\n") == 1, ended.err


def test_a_folder_that_nobody_may_write_to(rffl: Run) -> None:
    """One sentence, whoever asks; the kernel's own folder takes none of anybody."""
    ended = rffl(*DIGITS, "--run.root", "/proc", "--run.name", "self")
    assert ended.code == 2
    assert ended.err.startswith("Error: Expected --run.root to be a folder that can be written to, but No such file")
    assert "Traceback" not in ended.err


def test_a_checkpoint_that_fails_leaves_the_one_before(rffl: Run, tmp_path: Path) -> None:
    """A run that goes on and finds no room loses nothing that it had."""
    args = (*DIGITS, "--run.name", "run")
    assert rffl(*args, "--trainer.max_epochs", 2).code == 0
    (run,) = (tmp_path / "runs" / "run").iterdir()
    with files_of_at_most(12_000):
        assert rffl(*args, "--trainer.max_epochs", 4, "--ckpt_path", "last").code == 2
    assert kept_in(run / "checkpoints" / "last.ckpt")["federation"]["round"] == 2
    assert rffl(*args, "--trainer.max_epochs", 4, "--ckpt_path", "last").code == 0
    assert_same_bits(whole(rffl, tmp_path, 4), run)
