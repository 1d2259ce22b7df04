"""Ranks without a file system in common: each disk has its participants' part of the run, and the run goes on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from rffl_pl.federation import Federation
from rffl_pl.runs import RunFolder
from rffl_pl.runs.checkpoint import stamps
from tests.cli.folders import DIGITS, assert_same_bits, rows
from tests.conftest import QUICK, ROOT, Ended, only_run
from tests.ranks import forked

pytestmark = pytest.mark.distributed

ROUNDS = ("--trainer.max_epochs", 6)
CUT = ("--trainer.callbacks+=tests.interruption.Signalled", "--trainer.callbacks.rank", 1)
HOSTED = [sorted(Federation(participants=5, adversaries=1).hosted_by(rank, 2)) for rank in range(2)]


class Disks:
    """Two of them, and what a run leaves on each.

    Args:
        above: The folder in which they lie.
    """

    def __init__(self, above: Path) -> None:
        self.roots = [above / "here", above / "there"]

    def run(self, *args: object, **options: Any) -> Ended:
        """A command on two ranks that have a disk each."""
        return forked(2, *args, each=[["--run.root", root] for root in self.roots], **options)

    def goes_on(self) -> Ended:
        """The run, by the same command on every machine."""
        return self.run(*DIGITS, *ROUNDS, "--ckpt_path", "last")

    def folders(self) -> list[RunFolder]:
        """The run's, on each disk."""
        return [RunFolder.open(only_run(root)) for root in self.roots]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Disks:
    """What a run leaves that ended after its third round."""
    disks = Disks(tmp_path_factory.mktemp("once"))
    ended = disks.run(*DIGITS, *ROUNDS, *CUT)
    assert ended.code == 143, ended.err
    assert ended.err.count("Not all ranks see the same folder") == 1
    return disks


@pytest.fixture
def disks(once: Disks, tmp_path: Path) -> Disks:
    """The same, to go on with."""
    shutil.copytree(once.roots[0].parent, tmp_path, dirs_exist_ok=True)
    return Disks(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run that nobody stopped, on one rank."""
    root = tmp_path_factory.mktemp("whole")
    assert forked(1, *DIGITS, *ROUNDS, root=root).code == 0
    return only_run(root)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """Of every file, and when it was written."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def of(participants: list[int]) -> set[str]:
    return {f"participant_{i}.pt" for i in participants}


def kept(run: RunFolder) -> list[int]:
    """The rounds of the checkpoints on a disk."""
    return [stamp.round for stamp in stamps(run.checkpoints)[0]]


def ended_as(whole: Path, here: RunFolder, there: RunFolder) -> None:
    """With every round once, both disks in step and the same bits."""
    assert kept(here) == kept(there) == [6, 5]
    assert [int(row["round"]) for row in rows(here.metrics_file)] == [1, 2, 3, 4, 5, 6]
    assert [names(run.path / "weights") for run in (here, there)] == [of(HOSTED[0]), of(HOSTED[1])]
    shutil.copytree(there.path / "weights", here.path / "weights", dirs_exist_ok=True)
    assert_same_bits(whole, here.path)


@pytest.mark.slow
def test_a_run_goes_on_from_what_lies_on_each(disks: Disks, whole: Path) -> None:
    """Of others' participants and of the server nothing lies on a disk; and what has ended ends again."""
    here, there = disks.folders()
    assert here.path.name == there.path.name
    assert names(here.checkpoints / "last.ckpt") == {"run.pt", "server.pt", "rounds.jsonl"} | of(HOSTED[0])
    assert names(there.checkpoints / "last.ckpt") == {"run.pt"} | of(HOSTED[1])
    assert names(there.path) == {"checkpoints", "config.yaml", "launch", "starts.jsonl"}
    assert there.config()["run"]["root"] != here.config()["run"]["root"]
    for _ in range(2):
        ended = disks.goes_on()
        assert ended.code == 0, ended.err
        assert ended.out.count("run folder") == 2
        assert f"run folder of this machine's participants: {there.path}" in ended.out
        ended_as(whole, here, there)
        shutil.rmtree(here.path / "weights")
    # That a callback ended the first launch, and none the others, is another option of the rounds before.
    assert names(there.path) == {"checkpoints", "config.3.yaml", "config.yaml", "launch", "starts.jsonl", "weights"}


@pytest.mark.slow
def test_a_finished_run_is_left_as_it_is(disks: Disks, whole: Path) -> None:
    """On all disks, once each has all that its machine is to have; else it is measured and written again, on all."""
    here, there = disks.folders()
    assert disks.goes_on().code == 0
    before = [contents(run.path) for run in (here, there)]
    again = disks.goes_on()
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith(f"The run in {here.path} has its 6 rounds and its result: nothing is left to do; ")
    assert again.out.count("\n") == 1
    assert [contents(run.path) for run in (here, there)] == before
    assert [run.path for run in disks.folders()] == [here.path, there.path]
    other = disks.run(*DIGITS, *ROUNDS, "--ckpt_path", "last", "--server.gamma", 0.7)
    assert other.code == 2
    assert other.err.count("has its 6 rounds, but got another --server.gamma; give more rounds") == 1
    assert [contents(run.path) for run in (here, there)] == before
    there.weights_file(HOSTED[1][0]).unlink()
    ended = disks.goes_on()
    assert ended.code == 0, ended.err
    assert ended.out.count("run folder") == 2
    ended_as(whole, here, there)


@pytest.mark.slow
def test_a_disk_that_is_a_round_behind(disks: Disks, whole: Path) -> None:
    """As one whose machine was killed between the two renames: all go on from the last round that all have."""
    here, there = disks.folders()
    shutil.rmtree(there.checkpoints / "last.ckpt")
    (there.checkpoints / "last.previous.ckpt").rename(there.checkpoints / "last.ckpt")
    assert [kept(here), kept(there)] == [[3, 2], [2]]
    ended = disks.goes_on()
    assert ended.code == 0, ended.err
    ended_as(whole, here, there)


def test_a_damaged_part_on_one_disk(disks: Disks, whole: Path) -> None:
    """All go on from the one before, and say so once."""
    here, there = disks.folders()
    part = there.checkpoints / "last.ckpt" / f"participant_{HOSTED[1][0]}.pt"
    part.write_bytes(part.read_bytes()[:-100])
    ended = disks.goes_on()
    assert ended.code == 0, ended.err
    assert ended.err.count("Going on from the one before.") == 1
    assert str(part) in ended.err
    ended_as(whole, here, there)


def test_a_disk_that_has_none_of_it(disks: Disks) -> None:
    """One sentence, and nothing is written; the other disk's checkpoints stay."""
    here, _ = disks.folders()
    shutil.rmtree(disks.roots[1])
    ended = disks.goes_on()
    assert ended.code == 2
    assert ended.err.count("Error: Expected every rank to have a checkpoint to go on from, but rank 1 has none") == 1
    assert not disks.roots[1].exists()
    assert kept(here) == [3, 2]


def test_a_disk_that_has_another_run(disks: Disks) -> None:
    """Of the same rounds: it is told by the mark that the parts of a checkpoint have in common."""
    here, there = disks.folders()
    for checkpoint in there.checkpoints.glob("*.ckpt"):
        for file in checkpoint.iterdir():
            torch.save(torch.load(file, weights_only=True) | {"mark": "another"}, file)
    ended = disks.goes_on()
    assert ended.code == 2
    said = (
        "Error: Expected every rank to find its part of one checkpoint at --ckpt_path, but rank 0's (round 3, 2) and "
    )
    assert ended.err.count(f"{said}rank 1's (round 3, 2) are of different ones; give the folder checkpoints") == 1
    assert kept(here) == [3, 2]


def test_a_server_in_parts_needs_one_disk(tmp_path: Path) -> None:
    """What it remembers is read by every rank: said before the first round, and nothing stays."""
    disks = Disks(tmp_path)
    ended = disks.run(*DIGITS, *ROUNDS, "--exchange", "sharded")
    assert ended.code == 2
    assert (
        ended.err.count("Error: Expected --run.root on a file system that all ranks see under --exchange sharded") == 1
    )
    assert not any(root.exists() for root in disks.roots)


def test_the_best_rounds_are_kept_on_each(tmp_path: Path) -> None:
    """By a callback of Lightning's, to which rank 0 says where, as it was given the folder: each has the best alone."""
    disks = Disks(tmp_path)
    disks.roots[0] = Path(os.path.relpath(disks.roots[0], ROOT))
    best = (
        "--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.monitor", "accuracy/mean",
        "--trainer.callbacks.mode", "max", "--trainer.callbacks.save_top_k", 2,
    )  # fmt: skip
    ended = disks.run(*DIGITS, *ROUNDS, *best)
    assert ended.code == 0, ended.err
    disks.roots[0] = ROOT / disks.roots[0]
    here, there = (run.checkpoints for run in disks.folders())
    assert names(here) == names(there)
    assert len(names(here)) == 2
    for hosted, folder in zip(HOSTED, (here, there), strict=True):
        assert {path.name for path in folder.rglob("participant_*.pt")} == of(hosted)


def test_predictions_lie_where_their_participants_are(disks: Disks) -> None:
    """Every rank is given its own part of the checkpoint, and nobody is told that all lie in one place."""
    each = [["--run.root", run.path.parents[1], "--ckpt_path", run.checkpoints] for run in disks.folders()]
    ended = forked(2, "predict", *DIGITS[1:3], *QUICK[:4], each=each)
    assert ended.code == 0, ended.err
    for root in disks.roots:
        assert f"predictions of this machine's participants: {root}" in ended.out
    written = [{path.name for path in root.rglob("predictions/*.csv")} for root in disks.roots]
    assert written == [{f"participant_{i}.csv" for i in hosted} for hosted in HOSTED]
