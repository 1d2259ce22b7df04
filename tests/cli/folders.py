"""What a run leaves, read back."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import torch

from tests.conftest import QUICK, Ended

Run = Callable[..., Ended]
DIGITS = ("fit", "--config", "configs/digits.yaml", *QUICK)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def weights(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.name: torch.load(path, weights_only=True) for path in sorted((folder / "weights").iterdir())}


def assert_same_bits(a: Path, b: Path) -> None:
    one, other = weights(a), weights(b)
    assert one.keys() == other.keys()
    for name, state in one.items():
        assert state.keys() == other[name].keys()
        for key, value in state.items():
            assert torch.equal(value, other[name][key]), (name, key)


def whole(rffl: Run, tmp_path: Path, rounds: int) -> Path:
    """A run that nothing disturbs."""
    assert rffl(*DIGITS, "--trainer.max_epochs", rounds, "--run.name", "whole").code == 0
    (folder,) = (tmp_path / "runs" / "whole").iterdir()
    return folder
