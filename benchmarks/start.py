"""CPU seconds of a process with one round on the digits, and of every further run of two rounds in one process.

    OMP_NUM_THREADS=1 python -m benchmarks.start [--processes 3] [--runs 60]

To compare two versions, call it in the folder of each, in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import resource
import subprocess
import sys
import tempfile
import time

from rffl_pl.cli import main as rffl

RUN = [
    "fit", "--config", "digits.yaml", "--run.wandb", "false", "--run.figures", "false", "--standalone.enabled", "false",
    "--trainer.enable_progress_bar", "false", "--trainer.max_epochs",
]  # fmt: skip


def of_a_process(root: str) -> float:
    """From its start to its end, of all that it starts too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "rffl_pl", *RUN, "1", "--run.root", root], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def of_a_run(root: str, runs: int) -> float:
    """Of each of so many, behind a first one that imports."""
    sys.argv = ["rffl"]  # Lightning warns of words beside those that it is given
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        rffl([*RUN, "2", "--run.root", root])
        start = time.process_time()
        for _ in range(runs):
            rffl([*RUN, "2", "--run.root", root])
        return (time.process_time() - start) / runs


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--runs", type=int, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        each = [of_a_process(root) for _ in range(given.processes)]
        print("a process:", ", ".join(f"{seconds:.1f}" for seconds in each), "s", flush=True)
        print(f"a further run: {of_a_run(root, given.runs):.2f} s")


if __name__ == "__main__":
    main()
