"""What a round's checkpoint costs by the number of participants, by the clock: to write it, and to remove one.

    python -m benchmarks.checkpoints [--participants 10 100 1000] [--entries 10000] [--folder .]

Every participant has a file; a checkpoint is written beside the one before and takes its place, and the one before
that is removed. Removed is one also as ``shutil.rmtree`` has it, file after file. Medians of five. What is waited for
is the disk, so give a folder on the one in question.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from rffl_pl.runs.checkpoint import write
from rffl_pl.runs.disks import Disk
from rffl_pl.runs.durable import remove

TIMES = 5


def checkpoint(participants: int, entries: int) -> dict[str, Any]:
    """What Lightning would collect of one rank that hosts everybody."""
    everybody = range(participants)
    states = {i: lambda: {"weights": torch.rand(entries)} for i in everybody}
    members = dict.fromkeys(everybody, True)
    return {"federation": {"total": participants, "round": 1, "members": members, "participants": states}}


def milliseconds(work: Callable[[], object]) -> float:
    """By the clock."""
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def costs(participants: int, entries: int, folder: Path) -> dict[str, float]:
    """Median milliseconds of a round's checkpoint, and of removing one in either way."""
    found: dict[str, list[float]] = {"checkpoint": [], "removed": [], "removed by rmtree": []}
    state = checkpoint(participants, entries)

    def save(target: Path, whole: set[Path]) -> None:
        write(state, target, mark="0", first=True, disk=Disk(leads=True, common=True), whole=whole, agree=lambda it: it)

    whole: set[Path] = set()
    for _ in range(2 + TIMES):
        found["checkpoint"].append(milliseconds(lambda: save(folder / "last.ckpt", whole)))
    for _ in range(TIMES):
        for name, removing in (("removed", remove), ("removed by rmtree", shutil.rmtree)):
            save(folder / "gone.ckpt", set())
            found[name].append(milliseconds(partial(removing, folder / "gone.ckpt")))
    return {name: statistics.median(values[-TIMES:]) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--participants", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--folder", default=".")
    given = parser.parse_args()
    print("| participants | a round's checkpoint, ms | one removed, ms | by `shutil.rmtree`, ms |\n|---|---|---|---|")
    for participants in given.participants:
        with TemporaryDirectory(dir=given.folder) as folder:
            found = costs(participants, given.entries, Path(folder))
        print(f"| {participants} | {' | '.join(f'{value:.0f}' for value in found.values())} |", flush=True)


if __name__ == "__main__":
    main()
