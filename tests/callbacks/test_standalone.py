"""What everybody reaches alone: of the honest for fairness, of adversaries to tell what they took."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rffl_pl.runs import RunFolder
from rffl_pl.runs.checkpoint import read
from tests.conftest import QUICK, Ended

DIGITS = ("fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.max_epochs", 3)


def run_of(rffl: Callable[..., Ended], tmp_path: Path, name: str, *args: object) -> tuple[RunFolder, Ended]:
    """A run of that name."""
    ended = rffl(*DIGITS, "--run.name", name, *args)
    assert ended.code == 0, ended.err
    (folder,) = (tmp_path / "runs" / name).iterdir()
    return RunFolder.open(folder), ended


def test_what_the_adversary_took(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Its reference is what an honest participant with its examples reaches where nobody communicates.

    Read again from the cache, everything is the same; fairness goes by the honest alone.
    """
    flip = ("--config", "configs/adversaries/label_flip.yaml", "--standalone.enabled", "true")
    run, ended = run_of(rffl, tmp_path, "attacked", *flip)
    summary = run.summary()
    pretended = "[{'class_path': 'tests.callbacks.pretended.Honest'}]"
    alone, _ = run_of(rffl, tmp_path, "honest", "--server", "Standalone", "--adversaries", pretended)
    assert summary.standalone == pytest.approx(alone.summary().final)
    assert summary.adversary_standalone == pytest.approx(summary.standalone[5])
    assert summary.adversary_final == pytest.approx(summary.final[5])
    assert summary.adversary_gain == pytest.approx(summary.final[5] - summary.standalone[5], abs=1e-6)  # type: ignore[operator]
    assert f"the initial network has {summary.initial:.1%}" in ended.out
    gains = torch.tensor(summary.final[:5]) - torch.tensor(summary.standalone[:5])
    assert summary.gain == pytest.approx(gains.mean().item(), abs=1e-6)
    again, _ = run_of(rffl, tmp_path, "again", *flip)
    assert again.summary() == summary


def test_the_initial_network(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Its accuracy is that of the weights that checkpoints have as everybody's start, on the test set."""
    run, _ = run_of(rffl, tmp_path, "start", "--standalone.enabled", "true")
    from sklearn.datasets import load_digits

    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x, test = x.float(), torch.arange(len(y)) % 5 == 4
    x = (x - x[~test].mean()) / x[~test].std()
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
    start = read(run.checkpoints / "last.ckpt")["state_dict"]
    network.load_state_dict({name.removeprefix("network."): value for name, value in start.items()})
    accuracy = (network(x[test]).argmax(1) == y[test]).float().mean().item()
    assert json.loads(run.summary_file.read_text())["initial"] == pytest.approx(accuracy)
