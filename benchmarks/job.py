"""Seconds and peak memory of a whole job: 8 rounds of FedAvg on MNIST, ten participants with 600 examples, one epoch.

    RFFL_DATA_DIR=data OMP_NUM_THREADS=1 python -m benchmarks.job [--ways torchrun] [--repetitions 3]

From the start of the command to its end, with evaluation, tables and checkpoints as a run leaves them by default, but
without W&B, pictures and the standalone reference. ``--ways threads bare`` is one process with two threads beside the
plain loop of the same job, and ``imports`` and ``"bare imports"`` what both import before; ``--ways pfl`` the same job
by pfl-research, which has to be installed. Memory is the proportional set size of all processes, read five times a
second: a page that several of them share counts once. Ways take turns; the machine has to be idle. Linux alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JOB = [
    "fit", "--config", "mnist.yaml", "--config", "servers/fedavg.yaml", "--federation.participants", "10",
    "--data.split", "UNI", "--model.local_epochs", "1", "--trainer.max_epochs", "8", "--standalone.enabled", "false",
    "--run.wandb", "false", "--run.figures", "false", "--trainer.check_val_every_n_epoch", "8",
]  # fmt: skip
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "-m", "rffl_pl"]
RANKS = [sys.executable, "-m", "rffl_pl"]
WAYS = {
    "torchrun": (TORCHRUN, JOB, 1),
    "ranks": (RANKS, [*JOB, "--ranks", "2"], 1),
    "threads": (RANKS, JOB, 2),
    "bare": ([sys.executable, "benchmarks/bare_job.py"], [], 2),
    "imports": ([sys.executable, "-c", "import rffl_pl.cli.arguments"], [], 2),
    "bare imports": ([sys.executable, "-c", "import benchmarks.bare_job"], [], 2),
    "pfl": ([*TORCHRUN[:-2], "benchmarks/pfl_job.py"], [], 1),
}


def members(root: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
        except OSError:
            continue  # it has ended
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(status.parent.name))
    found, waiting = [], [root]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def proportional(process: int) -> int:
    """Its proportional set size in bytes; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def measured(command: list[str], words: list[str], threads: int = 1) -> tuple[float, float]:
    """Seconds and peak MiB of one job."""
    environment = dict(os.environ) | {"OMP_NUM_THREADS": f"{threads}"}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        job = subprocess.Popen([*command, *words, "--run.root", folder], env=environment, stdout=subprocess.DEVNULL)
        most = 0
        while job.poll() is None:
            most = max(most, sum(map(proportional, members(job.pid))))
            time.sleep(0.2)
        took = time.perf_counter() - start
    if job.returncode:
        raise SystemExit(f"{' '.join(words)} ended with code {job.returncode}")
    return took, most / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["torchrun", "ranks", "threads"])
    parser.add_argument("--repetitions", type=int, default=3)
    given = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in given.ways}
    for _ in range(given.repetitions):
        for way in given.ways:
            found[way].append(measured(*WAYS[way]))
            print(f"{way:12} {found[way][-1][0]:6.1f} s {found[way][-1][1]:8.0f} MiB", flush=True)
    for way, values in found.items():
        seconds, peaks = zip(*values, strict=True)
        print(f"{way:12} {statistics.median(seconds):6.1f} s {statistics.median(peaks):8.0f} MiB, medians", flush=True)


if __name__ == "__main__":
    main()
