"""The batch file for Slurm, under Slurm itself: two nodes on this machine, a job that is put back, the same bits."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.folders import DIGITS, assert_same_bits, rows
from tests.conftest import QUICK, ROOT, Ended
from tests.slurm import Cluster, cannot_run, cluster, wait_until

BATCH = ROOT / "examples" / "slurm" / "train.sbatch"


def test_the_batch_file_is_bash() -> None:
    """It has no slip of the pen."""
    assert subprocess.run(["bash", "-n", BATCH], check=False).returncode == 0


@pytest.mark.parametrize("job", [{}, {"SLURM_NTASKS": "2"}, {"SLURM_NTASKS": "1", "SLURM_NNODES": "2"}])
def test_a_process_alone_on_a_machine_with_slurm(
    rffl: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: dict[str, str]
) -> None:
    """It trains alone, without a word on srun, however many tasks and nodes the job has in which it was started."""
    (tmp_path / "srun").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    ended = rffl(*DIGITS, "--trainer.max_epochs", 1)
    assert ended.code == 0, ended.err
    assert "srun" not in ended.err


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes of two processors each; ``torchrun`` is this Python's."""
    if (reason := cannot_run()) is not None:
        pytest.skip(reason)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with contextlib.ExitStack() as stack:
        try:
            environment = {**os.environ, "PATH": path, "CUDA_VISIBLE_DEVICES": "", "RUNS": str(tmp_path)}
            running = stack.enter_context(cluster(environment))
        except AssertionError as error:
            pytest.skip(f"Slurm's daemons do not start here: {str(error)[-1000:]}")
        yield running


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(900)
def test_a_job_that_is_put_back_goes_on(slurm: Cluster, rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """By its user, then by a job that wants the nodes: one folder, every round once, an undisturbed run's bits."""
    rounds = 100
    assert rffl(*DIGITS, "--trainer.max_epochs", rounds, "--run.name", "whole").code == 0
    (whole,) = (tmp_path / "runs" / "whole").iterdir()
    said = tmp_path / "said.txt"
    small = ("--gpus-per-node=0", "--cpus-per-task=1", f"--output={said}")
    words = ("digits.yaml", *QUICK, "--trainer.max_epochs", rounds, "--run.name", "slurm")
    job = slurm.call("sbatch", "--parsable", *small, BATCH, *words, cwd=ROOT)

    def played() -> int:
        return max((len(rows(file)) for file in tmp_path.glob("slurm/*/metrics.csv")), default=0)

    def wait_for_rounds(number: int) -> None:
        wait_until(lambda: played() >= number, 180, lambda: f"job is {slurm.job(job)}: {said.read_text()[-3000:]}")

    wait_for_rounds(5)
    slurm.call("scontrol", "requeue", job)
    slurm.put_back(job, 1)
    before = played()
    assert before < rounds // 2
    wait_for_rounds(before + 5)
    other = slurm.call(
        "sbatch", "--parsable", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"
    )
    slurm.put_back(job, 2)
    assert played() < rounds
    assert "Stopped by SIGTERM after round" in said.read_text()
    wait_until(lambda: slurm.job(job)[0] not in ("PENDING", "RUNNING", "COMPLETING"), 240, said.read_text)
    assert slurm.job(job) == ("COMPLETED", 2), said.read_text()[-3000:]
    assert slurm.job(other) == ("COMPLETED", 0)
    (run,) = (tmp_path / "slurm").iterdir()
    assert [int(row["round"]) for row in rows(run / "metrics.csv")] == list(range(1, rounds + 1))
    assert_same_bits(whole, run)
