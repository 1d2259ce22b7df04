"""Two machines whose network fails for a while: two network namespaces of this one, with a cable between them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.folders import DIGITS, assert_same_bits, rows
from tests.conftest import ROOT, Ended
from tests.slurm import wait_until


class Machines:
    """Two namespaces, ``10.99.0.1`` and ``10.99.0.2``, which reach each other through one cable and nobody else."""

    def __init__(self) -> None:
        self.names = [f"rffl{os.getpid()}-{number}" for number in (1, 2)]

    def cable(self, state: str) -> None:
        """``up`` or ``down``."""
        _ip("-n", self.names[0], "link", "set", "cable1", state)

    def connect(self) -> None:
        """Have a cable between them."""
        ends = [("cable1", "netns", self.names[0]), ("cable2", "netns", self.names[1])]
        _ip("link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1])
        for number, name in enumerate(self.names, start=1):
            _ip("-n", name, "addr", "add", f"10.99.0.{number}/24", "dev", f"cable{number}")
            for link in ("lo", f"cable{number}"):
                _ip("-n", name, "link", "set", link, "up")

    @contextlib.contextmanager
    def torchrun(self, number: int, said: Path, *args: object) -> Iterator[subprocess.Popen[bytes]]:
        """One rank of two on a machine, which is ended whatever happens."""
        command = [
            "ip", "netns", "exec", self.names[number - 1], sys.executable, "-m", "torch.distributed.run",
            "--nnodes=2", "--nproc_per_node=1", "--max-restarts=3", "--rdzv-backend=c10d", "--rdzv-id=7",
            "--rdzv-endpoint=10.99.0.1:29500", f"--rdzv-conf=is_host={number == 1}", f"--local-addr=10.99.0.{number}",
            "-m", "rffl_pl", *map(str, args),
        ]  # fmt: skip
        own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": f"cable{number}"}
        with said.open("w") as file:
            process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **own}, stdout=file, stderr=file)
            try:
                yield process
            finally:
                process.terminate()  # torchrun ends its ranks, which would end themselves without it
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()


@pytest.fixture
def machines() -> Iterator[Machines]:
    """Two of them; they are gone afterwards."""
    found = Machines()
    try:
        try:
            for name in found.names:
                _ip("netns", "add", name)
            found.connect()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', error)}")
        yield found
    finally:
        for name in found.names:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _ip("netns", "del", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30, check=True)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(600)
def test_a_cable_that_is_pulled_out(machines: Machines, rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Ranks end with a word, start again when it is back, and end in the same folder with an undisturbed run's bits."""
    rounds = 60
    assert rffl(*DIGITS, "--trainer.max_epochs", rounds, "--run.name", "whole").code == 0
    (whole,) = (tmp_path / "runs" / "whole").iterdir()
    options = ("--trainer.max_epochs", rounds, "--run.root", tmp_path, "--run.name", "cut", "--run.patience", 8)
    said = [tmp_path / "machine1.txt", tmp_path / "machine2.txt"]

    def played() -> int:
        return max((len(rows(file)) for file in tmp_path.glob("cut/*/metrics.csv")), default=0)

    def words() -> str:
        return "".join(file.read_text()[-3000:] for file in said)

    with (
        machines.torchrun(1, said[0], *DIGITS, *options) as first,
        machines.torchrun(2, said[1], *DIGITS, *options) as second,
    ):
        wait_until(lambda: played() >= 5, 120, words)
        machines.cable("down")
        time.sleep(15)
        before = played()
        machines.cable("up")
        assert first.wait(timeout=240) == 0, words()
        assert second.wait(timeout=60) == 0, words()
    assert before < rounds // 2
    assert "has not been heard of for 8 s" in words()
    (run,) = (tmp_path / "cut").iterdir()
    assert [int(row["round"]) for row in rows(run / "metrics.csv")] == list(range(1, rounds + 1))
    assert_same_bits(whole, run)
