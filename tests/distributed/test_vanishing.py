"""Ranks that are asked to end, are stopped, killed or orphaned: the others end with a word, and the run goes on."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rffl_pl.runs import RunFolder
from tests.cli.folders import DIGITS, assert_same_bits
from tests.conftest import ROOT, Ended, only_run
from tests.processes import living
from tests.ranks import forked
from tests.runs import kept_in
from tests.wandb.test_wandb import history, of_kind, records

pytestmark = pytest.mark.distributed

SIGNALLED = ("--trainer.callbacks+=tests.interruption.Signalled", "--trainer.callbacks.rank", 1)


def test_one_rank_that_is_asked_to_end_ends_all(tmp_path: Path) -> None:
    """Together, at the end of the round, with its checkpoint."""
    ended = forked(2, *DIGITS, "--trainer.max_epochs", 9, *SIGNALLED, root=tmp_path)
    assert ended.code == 143, ended.err
    how = "go on with: torchrun --nproc_per_node=2 -m rffl_pl fit"
    assert ended.err.count(f"Stopped by SIGTERM after round 3; {how}") == 1
    run = RunFolder.open(only_run(tmp_path))
    assert kept_in(run.checkpoints / "last.ckpt")["federation"]["round"] == 3
    assert not run.summary_file.exists()


@pytest.mark.slow
def test_a_rank_that_is_stopped_is_given_up(tmp_path: Path) -> None:
    """The others say which one and in which round, and end; the last round's checkpoint is whole."""
    stopped = (*SIGNALLED, "--trainer.callbacks.number", int(signal.SIGSTOP), "--run.patience", 10)
    ended = forked(2, *DIGITS, "--trainer.max_epochs", 9, *stopped, root=tmp_path, grace=1)
    assert ended.code == 9  # what is stopped has to be killed
    assert "Error: Rank 1 has not been heard of for 10 s, in round 3: its process is stopped" in ended.err
    assert kept_in(RunFolder.open(only_run(tmp_path)).checkpoints / "last.ckpt")["federation"]["round"] == 2


class Torchrun:
    """The real one, on two ranks, with restarts; results of a run named ``kills`` lie below ``root``."""

    def __init__(self, root: Path, rounds: int, *args: object, module: str = "rffl_pl") -> None:
        self.runs = root / ("kills" if module == "rffl_pl" else "0/kills")  # with the rounds
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max-restarts=40",
            "-m", module, *DIGITS, "--trainer.max_epochs", rounds, "--run.root", root, "--run.name", "kills",
            "--ckpt_path", "last", "--run.patience", 20, *args,
        ]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        self.said = (root / "said.txt").open("a")
        self.process = subprocess.Popen(
            list(map(str, command)), cwd=ROOT, env=environment, stdout=self.said, stderr=subprocess.STDOUT
        )

    def ranks(self) -> list[int]:
        """Their process numbers."""
        return sorted(process.number for process in living() if process.parent == self.process.pid)

    def wait_for_rounds(self, more: int, timeout: float = 120) -> bool:
        """Until so many more rounds have been logged; whether they were before the run ended."""
        until, begun = time.monotonic() + timeout, self.rounds()
        while time.monotonic() < until and self.process.poll() is None:
            if self.rounds() >= begun + more:
                return True
            time.sleep(0.02)
        assert self.process.poll() is not None, f"no round for {timeout} s"
        return False

    def rounds(self) -> int:
        """How many have been logged; none while a run that goes on begins its file anew."""
        with contextlib.suppress(FileNotFoundError):
            return max((file.read_bytes().count(b"\n") - 1 for file in self.runs.glob("*/metrics.csv")), default=0)
        return 0


def gone(numbers: list[int], within: float) -> bool:
    """Whether processes end."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        if not {process.number for process in living()}.intersection(numbers):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("module", "first"), [("rffl_pl", signal.SIGKILL), ("tests.own_disk", signal.SIGTERM)])
def test_kills_at_random_moments(rffl: Callable[..., Ended], tmp_path: Path, module: str, first: int) -> None:
    """Any rank, all ranks or torchrun, by SIGKILL or SIGTERM, mid-checkpoint too: the end is the undisturbed one's.

    Of ranks that write into one folder by one of them, and of those that have a disk each by the other.

    ``RFFL_KILLS`` has another number of kills than four; from the fifth on each goes by the other signal.
    """
    kills = int(os.environ.get("RFFL_KILLS", 4))
    rounds = 20 + 15 * kills  # of which a kill takes three to ten
    assert rffl(*DIGITS, "--trainer.max_epochs", rounds, "--run.name", "whole").code == 0
    (whole,) = (tmp_path / "runs" / "whole").iterdir()
    moments = random.Random(1)
    targets = ("rank 0", "rank 1", "all ranks", "torchrun")
    run = Torchrun(tmp_path, rounds, module=module)
    try:
        for kill in range(kills):
            number = (signal.SIGKILL, signal.SIGTERM)[(first == signal.SIGTERM) ^ (kill + kill // 4) % 2]
            target = targets[kill % 4]
            assert run.wait_for_rounds(2), (tmp_path / "said.txt").read_text()[-3000:]
            time.sleep(moments.random() / 5)
            ranks = run.ranks()
            hit = {"rank 0": ranks[:1], "rank 1": ranks[1:], "all ranks": ranks, "torchrun": [run.process.pid]}[target]
            for process in hit:
                os.kill(process, number)
            assert gone(ranks, within=60), (target, number)
            if target == "torchrun":
                run.process.wait(timeout=60)
                run = Torchrun(tmp_path, rounds, module=module)
        assert run.process.wait(timeout=300) == 0, (tmp_path / "said.txt").read_text()[-3000:]
    finally:
        run.process.kill()  # its ranks end by themselves
    (killed,) = run.runs.iterdir()
    if module == "tests.own_disk":
        shutil.copytree(tmp_path / "1" / "kills" / killed.name / "weights", killed / "weights", dirs_exist_ok=True)
    assert_same_bits(whole, killed)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_restarted_launch_goes_on_with_its_wandb_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, in the same folder: two parts of one run of W&B, which have every round between them."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    rounds = 100
    run = Torchrun(tmp_path, rounds, "--run.wandb", "true")
    try:
        assert run.wait_for_rounds(3), (tmp_path / "said.txt").read_text()[-3000:]
        os.kill(run.ranks()[1], signal.SIGKILL)
        assert run.process.wait(timeout=200) == 0, (tmp_path / "said.txt").read_text()[-3000:]
    finally:
        run.process.kill()
    parts = [list(records(file)) for file in sorted(tmp_path.glob("kills/*/wandb/offline-run-*/*.wandb"))]
    assert len(parts) == 2
    assert len({of_kind(part, "run")[0].run.run_id for part in parts}) == 1
    first, second = ([int(entry["round"]) for entry in history(part)] for part in parts)
    assert first == list(range(1, len(first) + 1))
    assert second == list(range(second[0], rounds + 1))
    assert 1 < second[0] <= len(first) + 1 < rounds
