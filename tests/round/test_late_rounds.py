"""Late in a run, when updates sink below the rounding of the weights, nobody honest is judged by noise."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import QUICK, Ended, only_run

Run = Callable[..., Ended]
ALONE = ("--federation.adversaries", 0, "--adversaries", "[]")
# The learning rate is at 1e-15 after 70 rounds; without the rule all five honest are removed in rounds 25 to 31.
FAST = ("--model.lr_decay", 0.85, "--trainer.max_epochs", 70, "--trainer.check_val_every_n_epoch", 70)


@pytest.mark.slow
@pytest.mark.parametrize("company", [ALONE, ()], ids=["the honest alone", "with a free-rider"])
def test_nobody_honest_is_removed_by_noise(rffl: Run, tmp_path: Path, company: tuple[object, ...]) -> None:
    """With every honest participant silent its reputation stays where it was, and each is told of once."""
    ended = rffl("fit", "--config", "configs/digits.yaml", *QUICK, *company, *FAST)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    assert json.loads((folder / "summary.json").read_text())["removed_in_round"][:5] == [None] * 5
    for i in range(5):
        assert ended.err.count(f"participant {i}'s upload tells nothing") == 1
    if company:
        rows = list(csv.DictReader((folder / "metrics.csv").open()))[-30:]
        assert len({tuple(row[f"reputation/participant_{i}"] for i in range(5)) for row in rows}) == 1
        assert all(row[f"similarity/participant_{i}"] == "" for row in rows for i in range(5))
        assert ended.err.count("nobody's upload tells anything") == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("company", [ALONE, ()], ids=["the honest alone", "with a free-rider"])
def test_four_hundred_rounds_of_the_demo(rffl: Run, tmp_path: Path, company: tuple[object, ...]) -> None:
    """The released decay over 400 rounds, in which honest participants were removed in rounds 167 to 206."""
    ended = rffl(
        "fit", "--config", "configs/digits.yaml", *QUICK, *company, "--trainer.max_epochs", 400,
        "--trainer.check_val_every_n_epoch", 400, "--run.checkpoint_every", 400,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    removed = json.loads((only_run(tmp_path / "runs") / "summary.json").read_text())["removed_in_round"]
    assert removed == [None] * 5 + ([] if company else [11])
