"""A tiny run's trajectory must not move unless somebody means it to.

Made with:

    python -m rffl_pl fit --config configs/digits.yaml --trainer.max_epochs 12 --run.name golden --run.wandb false

and ``python -m tests.test_golden runs/golden/<date and time>/metrics.csv > tests/golden/digits.csv``.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.conftest import QUICK, Ended, only_run

GOLDEN = Path(__file__).parent / "golden" / "digits.csv"
COLUMNS = ["round", "accuracy/mean", *(f"{name}/participant_{i}" for name in ("reputation", "quota") for i in range(6))]


def table(lines: Iterable[str]) -> list[list[float]]:
    """The columns of a metrics CSV that are kept."""
    return [[float(row[column]) for column in COLUMNS] for row in csv.DictReader(lines)]


def test_the_trajectory_is_the_golden_one(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Reputations and quotas to 1e-4, accuracies to one of 144 images: other processors round differently."""
    assert rffl("fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.max_epochs", 12).code == 0
    measured = table((only_run(tmp_path / "runs") / "metrics.csv").read_text().splitlines())
    golden = table(GOLDEN.read_text().splitlines())
    assert len(measured) == len(golden) == 12
    for new, old in zip(measured, golden, strict=True):
        assert new[1] == pytest.approx(old[1], abs=1 / 144)
        assert new[2:] == pytest.approx(old[2:], abs=1e-4)


if __name__ == "__main__":
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([f"{value:.9g}" for value in row] for row in table(Path(sys.argv[1]).read_text().splitlines()))
