"""The same seed, machine and versions: the same bits, whatever else the process has done or drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from tests.cli.folders import assert_same_bits
from tests.conftest import QUICK, Ended, only_run
from tests.ranks import forked

LINE = (
    "fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.max_epochs", 6, "--server.preset", "guarded",
    "--federation.participation", 0.7, "--federation.adversaries", 3, "--adversaries+=LabelFlip",
    "--adversaries+=Sybil", "--adversaries.jitter", 0.1, "--data.split", "DIR",
    "--model.optimizer", "Adam", "--model.optimizer.lr", 0.003,
)  # fmt: skip


def test_a_run_again(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """A second run, in a process of its own with other hashes, ends otherwise; or one with another seed does not."""
    ended = forked(1, *LINE, "--run.name", "fresh", root=tmp_path / "runs")
    assert ended.code == 0, ended.err
    random.seed(7)
    np.random.seed(7)  # the stream that libraries draw from
    torch.manual_seed(7)
    assert rffl(*LINE, "--run.name", "again").code == 0
    torch.randn(5)
    assert rffl(*LINE, "--run.name", "other", "--seed_everything", 2).code == 0
    fresh, again, other = (only_run(tmp_path / "runs", name) for name in ("fresh", "again", "other"))
    assert_same_bits(fresh, again)
    assert (fresh / "metrics.csv").read_bytes() == (again / "metrics.csv").read_bytes()
    assert (fresh / "metrics.csv").read_bytes() != (other / "metrics.csv").read_bytes()
