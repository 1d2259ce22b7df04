"""How long a study's table takes, and adding a cell to its results, where there are many.

    python -m benchmarks.kept

Of the takeover's kept results, in seconds of processor time: reading those of one task, and keeping the rows of a cell
anew in a copy. The process is that of `rffl study --table`, without its imports.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rffl_pl.studies import Study, results

ROOT = Path(__file__).parent.parent
TIMES = 5


def seconds(task: Callable[[], object]) -> float:
    """The least of several times."""

    def each() -> Iterator[float]:
        for _ in range(TIMES):
            begun = time.process_time()
            task()
            yield time.process_time() - begun

    return min(each())


def main() -> None:
    """Print both."""
    study = Study.read(ROOT / "configs" / "studies" / "takeover.yaml")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.csv.gz"
        shutil.copy(ROOT / "results" / "takeover" / file.name, file)
        rows = results.read(study, file)
        again = [row for row in rows if row["cell"] == rows[0]["cell"]]
        print(f"{len(rows)} rows")
        print(f"read: {seconds(lambda: results.read(study, file)):.2f} s")
        print(f"keep {len(again)} of them anew: {seconds(lambda: results.keep(study, file, again)):.2f} s")


if __name__ == "__main__":
    main()
