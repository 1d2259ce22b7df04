"""A program on several ranks: what it does between and behind its runs is its own, and runs are watched over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.distributed

PATIENCE = 5
PROGRAM = f"""
import os, signal, sys, time
from pathlib import Path
from rffl_pl import RunFolder
from tests.python.test_python import small

rank = int(os.environ["RANK"])

def played(name):
    trainer, module, data = small(RunFolder(name))
    trainer.strategy.patience = {PATIENCE}
    trainer.fit(module, data)
    return trainer, module, data

def work(seconds):
    time.sleep(seconds)
    print(f"rank {{rank}} has done its work", flush=True)

"""


def started(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    """Two ranks of a program, in the folder."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + body)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(program)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("who", [0, 1])
def test_who_works_on_after_the_runs_is_left_alone(tmp_path: Path, who: int) -> None:
    """A rank that had ended took the other with it, with the analysis that it was at, after the run was over.

    Likewise one that still works while the other waits in the next run for it.
    """
    body = f"""
played("one")
if rank == {1 - who}:
    work({2 * PATIENCE})
trainer, module, data = played("two")
trainer.test(module, data)
if rank == {who}:
    work({2 * PATIENCE})
"""
    program = started(tmp_path, body)
    said, _ = program.communicate(timeout=150)
    assert program.returncode == 0, said
    assert sorted(line for line in said.splitlines() if "has done" in line) == [
        f"rank {rank} has done its work" for rank in (0, 1)
    ]
    assert (tmp_path / "two" / "scores.json").is_file()


STOPPED = """
    Path("stopped").write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
"""
BETWEEN_RUNS = f"""
trainer, module, data = played("one")
if rank == 1:
{STOPPED}
trainer.validate(module, data)
"""
BEFORE_CONNECTING = f"""
import torch.distributed

def connect(*_, **more):
{STOPPED}
if rank == 1:
    torch.distributed.init_process_group = connect
played("one")
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("body", [BETWEEN_RUNS, BEFORE_CONNECTING], ids=["between runs", "before connecting"])
def test_who_is_stopped_is_given_up(tmp_path: Path, body: str) -> None:
    """Each run is watched over from the moment on that ranks have met: the other would wait for it for hours."""
    program = started(tmp_path, body)
    try:
        assert program.stdout is not None
        told = next((line for line in program.stdout if "has not been heard of" in line), "")
        assert f"Rank 1 has not been heard of for {PATIENCE} s" in told
    finally:
        stopped = tmp_path / "stopped"
        if stopped.exists():
            os.kill(int(stopped.read_text()), signal.SIGKILL)
        program.wait(timeout=60)
    assert program.returncode == 1


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_who_fails_and_works_on_is_given_up(tmp_path: Path) -> None:
    """A program that catches the error, as sweeps do: the other waited in the middle of its run for hours."""
    body = f"""
from lightning.pytorch import Callback

class Failing(Callback):
    def on_train_epoch_start(self, *_):
        if rank == 1:
            raise OSError("no space left")

trainer, module, data = small(RunFolder("one"), callbacks=[Failing()])
trainer.strategy.patience = {PATIENCE}
try:
    trainer.fit(module, data)
except OSError:
    work(60)
"""
    program = started(tmp_path, body)
    said, _ = program.communicate(timeout=150)
    assert program.returncode == 1, said
    assert f"Rank 1 has not been heard of for {PATIENCE} s" in said
    assert "has done its work" not in said


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_interpreter_that_ends_leaves_its_group(tmp_path: Path) -> None:
    """A watch that talked to the store at that moment aborted the process, when all results had been written."""
    always = """
import threading, types
from rffl_pl.launch import watch

class Now(threading.Event):
    def wait(self, timeout=None):
        return super().wait(0 if timeout == 1 else timeout)

watch.threading = types.SimpleNamespace(**{**vars(threading), "Event": Now})
watch.Heartbeats.__call__ = lambda self: self._listen(time.monotonic()) and None  # not every few seconds
played("one")
"""
    program = started(tmp_path, always)
    said, _ = program.communicate(timeout=100)
    assert program.returncode == 0, said
    assert "terminate called" not in said
