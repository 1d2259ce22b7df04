"""Cells that fail in other ways than by a user's mistake or an exception: each is told of and stops no other."""

from __future__ import annotations

import errno
import fcntl
import os
from functools import partial
from pathlib import Path

import pytest

from rffl_pl.studies import play
from rffl_pl.studies.cells import Cell
from rffl_pl.studies.pack import together
from rffl_pl.studies.study import RunWords
from tests.cli.folders import Run
from tests.cli.test_stopping import files_of_at_most
from tests.interruption import PowerCut
from tests.studies.files import DIGITS, rows, study


class Leaving(PowerCut):
    """Ends the process, or means to, as Lightning does after Ctrl-C."""

    exception = SystemExit(1)


@pytest.mark.slow
@pytest.mark.parametrize("pack", [1, 2])
def test_a_cell_that_calls_exit_stops_no_other(rffl: Run, tmp_path: Path, pack: int) -> None:
    """It has failed, and nobody interrupted the study; alone and in a pack."""
    text = f"""\
base: {DIGITS} --trainer.max_epochs 1 --model.engine stacked
axes:
  what:
    left: --trainer.callbacks+={Leaving.__module__}.Leaving --trainer.callbacks.after 0
    fine: ""
"""
    root = tmp_path / "studies"
    ended = rffl("study", study(tmp_path, text, "two.yaml"), "--root", root, "--pack", pack)
    assert ended.code == 1, ended.err
    failed = [line for line in ended.err.splitlines() if line.startswith("Failed: ")]
    assert len(failed) == 1
    sentence, _, log = failed[0].partition(" (")
    assert sentence == "Failed: what=left seed=1: A callback or a library of its ended it by sys.exit(1)."
    assert "in on_train_batch_start" in Path(log.rstrip(")")).read_text()
    assert {row["what"] for row in rows(root / "two" / "results.csv")} == {"fine"}
    listed = rffl("study", tmp_path / "two.yaml", "--root", root, "--dry-run").out.splitlines()
    said = sentence.removeprefix("Failed: what=left seed=1: ")
    assert listed[0] == f"what=left seed=1: 1 rounds, to run; failed the last time: {said}"


def chatty(words: list[str]) -> None:
    print("x")


def interrupted(words: list[str]) -> None:
    chatty(words)
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize(("run", "state"), [(chatty, "failed"), (interrupted, "interrupted")])
def test_a_full_disk_fails_a_cell_in_a_sentence(tmp_path: Path, run: RunWords, state: str) -> None:
    """What has no room, its log, its record and its name in the lock, ends nobody else; Ctrl-C stays what it is."""
    cell = Cell(place={}, seed=1, rounds=1, words=[], settings="", digest="one")
    with files_of_at_most(1):
        alone = play.play(cell, tmp_path / "alone", run)
        ((_, packed),) = together([partial(play.play, cell, tmp_path / "packed", run, 0)])
    assert (alone.state, packed.state) == (state, state)
    if state == "failed":
        expected = "Expected to write its log, but File too large; make room, and give the same command again."
        assert alone.sentence == packed.sentence == expected
    assert play.play(cell, tmp_path / "alone", run).state == state


def failing(words: list[str]) -> None:
    print("Error: Expected more; mend it and go on with --ckpt_path last.")


def test_a_failed_cell_goes_on_with_its_study(tmp_path: Path) -> None:
    """What a run of its own is told to type would be refused in a cell's folder."""
    cell = Cell(place={}, seed=1, rounds=1, words=[], settings="", digest="one")
    assert play.play(cell, tmp_path, failing).sentence == "Expected more; mend it and run the study again."


def test_a_file_system_without_locks(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some network file systems are: a study runs there as a single run does."""

    def refused(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    text = f"base: {DIGITS} --trainer.max_epochs 1\naxes: {{what: {{fine: ''}}}}\n"
    ended = rffl("study", study(tmp_path, text, "one.yaml"), "--root", tmp_path / "studies")
    assert ended.code == 0, ended.err
    assert {row["what"] for row in rows(tmp_path / "studies" / "one" / "results.csv")} == {"fine"}
