"""Time and peak memory of every rule's step, against one reading of the uploads.

    python -m benchmarks.servers [--threads 2]

Every case has a process of its own. Peak memory is that of the step alone, beyond the uploads and all that was there
before it; state that a rule keeps (FoolsGold's histories) is in it. Times are those of a step over that of one reading,
the sum of squares row by row: the processor's time on one thread, which other work on the machine disturbs less, and
the clock's on more. Linux alone resets a peak. ``guarded`` knows everybody, ``guarded new`` has confirmed nobody; both
keep everybody.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from rffl_pl.servers import (
    AFL,
    ARC,
    CFFL,
    CGSV,
    FLAME,
    IAFL,
    NNM,
    QFFL,
    RFFL,
    TERM,
    Bucketing,
    Bulyan,
    CenteredClipping,
    DnC,
    FedAvg,
    FedMGDA,
    FedOpt,
    FoolsGold,
    GeometricMedian,
    Median,
    MultiKrum,
    NormBound,
    Server,
    SignSGD,
    Task,
    TrimmedMean,
)


class Known(RFFL):
    """All of whose participants the others' uploads have confirmed, as after a run's first rounds."""

    def start(self, task: Task) -> None:
        super().start(task)
        assert self.trust.confirmations is not None
        self.trust.confirmations.confirmed.fill_(True)


RULES: dict[str, Callable[[], Server]] = {
    "RFFL": RFFL,
    "RFFL paper": lambda: RFFL(preset="paper"),
    "guarded": lambda: Known(preset="guarded", removal_from="never"),
    "guarded new": lambda: RFFL(preset="guarded", removal_from="never"),
    "FedAvg": FedAvg,
    "QFFL": QFFL,
    "AFL": AFL,
    "TERM": TERM,
    "CFFL": CFFL,
    "CGSV": CGSV,
    "IAFL": IAFL,
    "MultiKrum": MultiKrum,
    "Bulyan": Bulyan,
    "FoolsGold": FoolsGold,
    "SignSGD": SignSGD,
    "Median": Median,
    "Trimmed": TrimmedMean,
    "Geometric": GeometricMedian,
    "Clipping": CenteredClipping,
    "Bound": NormBound,
    "FLAME": FLAME,
    "DnC": DnC,
    "NNM": NNM,
    "ARC": ARC,
    "Bucketing": Bucketing,
    "FedMGDA": FedMGDA,
    "FedOpt": FedOpt,
}
SIZES = [(10, 100_000), (100, 100_000), (1_000, 100_000), (10, 11_000_000), (50, 11_000_000)]


def memory(entry: str) -> int:
    """``VmRSS`` or ``VmHWM`` of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(entry))


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    work()
    return clock() - start


def started(rule: Callable[[], Server], participants: int, entries: int) -> Server:
    """A server before its first round."""
    server = rule()
    server.start(
        Task(
            examples=[100] * participants, classes=[10] * participants, layers=[entries], learning_rate=0.1, seed=1,
            initial=torch.zeros(entries), accuracy=lambda weights: 0.8,
        )
    )  # fmt: skip
    return server


def step(server: Server, uploads: Tensor) -> object:
    """One round in which all send."""
    return server.step(uploads, range(len(uploads)), torch.ones(len(uploads)) if server.hears_losses else None)


def case(name: str, participants: int, entries: int) -> str:
    """One line of the table."""
    warnings.simplefilter("ignore")
    step(started(RULES[name], 10, 1000), torch.rand(10, 1000))  # loads what is loaded once
    uploads = torch.empty(participants, entries).uniform_(-1e-3, 1e-3)
    server = started(RULES[name], participants, entries)
    reading = min(seconds(lambda: [row.dot(row) for row in uploads]) for _ in range(5))
    time.sleep(0.5)  # the kernel counts pages late
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    first = seconds(lambda: step(server, uploads))
    peak = memory("VmHWM") - before
    best = min([first, *(seconds(lambda: step(server, uploads)) for _ in range(2 if first < 3 else 0))])
    share = peak / (4 * participants * entries)
    return (
        f"{name:11} {participants:5} {entries:>10,} {peak / 2**20:10.0f} {share:8.2f} {best:9.3f} {best / reading:9.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", help="rule, P and D of one line; by default all")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.case:
        name, participants, entries = given.case
        print(case(name, int(participants), int(entries)), flush=True)
        return
    print("rule            P          D peak (MiB) / [P, D]  step (s) / reading", flush=True)
    for participants, entries in SIZES:
        for name in RULES:
            command = [sys.executable, "-m", "benchmarks.servers", name, str(participants), str(entries)]
            subprocess.run([*command, "--threads", str(given.threads)], check=True)


if __name__ == "__main__":
    main()
