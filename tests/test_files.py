"""Files that several processes come by."""

from __future__ import annotations

import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from rffl_pl.callbacks import StandaloneReference
from rffl_pl.files import replaced


def test_what_is_not_finished_replaces_nothing(tmp_path: Path) -> None:
    """What was there is kept, and nothing is left beside it."""
    file = tmp_path / "kept"
    file.write_text("before")

    def interrupted() -> None:
        with replaced(file) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]
    with replaced(file) as partial:
        partial.write_text("after")
    assert file.read_text() == "after"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_one(tmp_path: Path) -> None:
    """Results that lie on another disk are cut off from it."""
    there, here = tmp_path / "there.csv", tmp_path / "here.csv"
    there.write_text("before")
    here.symlink_to(there)
    with replaced(here) as partial:
        partial.write_text("after")
    assert here.is_symlink()
    assert there.read_text() == "after"


def test_runs_that_keep_one_reference(tmp_path: Path) -> None:
    """Cells of a study that differ in the server alone have one, and may come to it at once."""
    file, known = tmp_path / "key.json", (torch.zeros(1000), torch.ones(1000))

    def keep(_: int) -> bool:
        StandaloneReference._write(file, known)
        return bool(json.loads(file.read_text()) == {"initial": [0.0] * 1000, "accuracies": [1.0] * 1000})

    with warnings.catch_warnings(), ThreadPoolExecutor(8) as pool:
        warnings.simplefilter("error")
        assert all(pool.map(keep, range(200)))
