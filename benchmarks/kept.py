"""How long a study's results take where there are many: reading them, adding a cell, and a table.

    python -m benchmarks.kept

Of the takeover's, in seconds of processor time, the least of several: reading all, keeping the rows of a cell anew in a
copy, and `rffl study takeover --table` of one task as a process of its own, imports and all.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rffl_pl.studies import Study, results

ROOT = Path(__file__).parent.parent
TIMES = 5
WORDS = (
    "study", "takeover", "--root", "results", "--only", "task=MNIST 5+1", "--table", "server", "attack", "--measure",
    "taken",
)  # fmt: skip


def seconds(task: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """The least of several times."""
    found = []
    for _ in range(TIMES):
        begun = clock()
        task()
        found.append(clock() - begun)
    return min(found)


def of_children() -> float:
    """Processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table() -> None:
    """Print a table, in a process of its own."""
    subprocess.run([sys.executable, "-m", "rffl_pl", *WORDS], cwd=ROOT, capture_output=True, check=True)


def main() -> None:
    """Print all three."""
    study = Study.read(ROOT / "configs" / "studies" / "takeover.yaml")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.csv.gz"
        shutil.copy(ROOT / "results" / "takeover" / file.name, file)
        rows = results.read(study, file)
        again = [row for row in rows if row["cell"] == rows[0]["cell"]]
        print(f"{len(rows)} rows")
        print(f"read: {seconds(lambda: results.read(study, file)):.2f} s")
        print(f"keep {len(again)} of them anew: {seconds(lambda: results.keep(study, file, again)):.2f} s")
    print(f"table: {seconds(table, of_children):.2f} s")


if __name__ == "__main__":
    main()
