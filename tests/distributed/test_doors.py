"""The package is extended from outside it, on one and on two ranks, by class path alone, to the same bits."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import QUICK, only_run
from tests.ranks import forked
from tests.runs import kept_in

pytestmark = pytest.mark.distributed
HERE = "tests.extensions"
LINE = (
    "fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.max_epochs", 4, "--federation.adversaries", 3,
    "--adversaries", f"[{HERE}.Echo,{HERE}.Hoard]", f"--adversaries+={HERE}.Trigger", "--adversaries.target", 3,
    "--server", f"{HERE}.Measured", "--server.gamma", 0.5, "--data.split", f"{HERE}.Turns",
    "--model.measures+=torchmetrics.classification.MulticlassCalibrationError", "--model.measures.num_classes", 10,
)  # fmt: skip
NAMES = ("backdoor_success", "length", "multiclass_calibration_error")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The run on one rank and on two."""
    found = []
    for ranks in (1, 2):
        root = tmp_path_factory.mktemp(f"ranks{ranks}")
        ended = forked(ranks, *LINE, root=root)
        assert ended.code == 0, ended.err
        found.append(only_run(root))
    return found


def history(folder: Path) -> list[dict[str, Any]]:
    """The rounds in the checkpoint."""
    rounds: list[dict[str, Any]] = kept_in(folder / "checkpoints" / "last.ckpt")["server"]["history"]
    return rounds


@pytest.mark.slow
def test_what_is_added_shows_everywhere(folders: list[Path]) -> None:
    """Measures of an attack, a server and a metric are in the CSV and in the checkpoint's history, per participant."""
    for folder in folders:
        rows = list(csv.DictReader((folder / "metrics.csv").open()))
        assert len(rows) == 4
        for row, entry in zip(rows, history(folder), strict=True):
            for name in NAMES:
                values = [float(row[f"{name}/participant_{i}"]) for i in range(8)]
                assert all(math.isfinite(value) and value >= 0 for value in values), (name, values)
                assert entry["measures"][name] == pytest.approx(values)
    last = history(folders[0])[-1]["measures"]
    assert max(last["backdoor_success"]) == last["backdoor_success"][7] > 0.9  # its own model, of participant 7
    assert max(last["length"]) <= 0.5 + 1e-6


def test_the_attacks_remember(folders: list[Path]) -> None:
    """Similarity shows that the replay sends what came last; what attacks keep is in their part of a checkpoint."""
    similarities = [entry["measures"]["similarity"] for entry in history(folders[0])]
    assert similarities[0][5] < 0.3 < min(similarity[5] for similarity in similarities[1:])
    saved = kept_in(folders[0] / "checkpoints" / "last.ckpt")["federation"]["participants"]
    assert list(saved[5]["attack"]) == ["download"]
    assert list(saved[6]["attack"]) == ["sum"]
    assert [list(saved[i]["attack"]) for i in (0, 7)] == [[], []]


def test_the_split_is_the_users(folders: list[Path]) -> None:
    """Whoever sits at an odd number has twice as many examples."""
    from rffl_pl.runs import RunFolder

    examples = RunFolder.open(folders[0]).summary().examples
    assert examples[1] == pytest.approx(2 * examples[0], abs=2)


def test_ranks_do_not_matter(folders: list[Path]) -> None:
    """Two ranks give the bits of one."""
    one, two = (kept_in(folder / "checkpoints" / "last.ckpt") for folder in folders)
    assert repr(one["server"]["history"]) == repr(two["server"]["history"])
    for i, mine in one["federation"]["participants"].items():
        for part in ("network", "attack"):
            for key, value in mine[part].items():
                assert torch.equal(value, two["federation"]["participants"][i][part][key]), (i, key)
