"""The same seed, machine and versions: the same bits, whatever else the process has done or drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
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


@pytest.mark.parametrize(("server", "engine"), [("QFFL", "loop"), ("CFFL", "loop"), ("FedAvg", "stacked")])
def test_examples_that_draw_at_random(rffl: Callable[..., Ended], tmp_path: Path, server: str, engine: str) -> None:
    """Reports, validation or training read them from streams that are elsewhere in a run that goes on."""
    line = (
        "fit", "--data", "tests.own_data.Augmented", "--model.network", "Perceptron", "--model.network.inputs", 2,
        "--model.network.classes", 2, "--model.optimizer", "SGD", "--model.optimizer.lr", 0.1, *QUICK,
        "--federation.participants", 3, "--server", server, "--model.engine", engine,
    )  # fmt: skip
    assert rffl(*line, "--trainer.max_epochs", 3, "--run.name", "whole").code == 0
    random.seed(5)
    np.random.seed(5)
    assert rffl(*line, "--trainer.max_epochs", 1, "--run.name", "parts").code == 0
    ended = rffl(*line, "--trainer.max_epochs", 3, "--run.name", "parts", "--ckpt_path", "last")
    assert ended.code == 0, ended.err
    whole, parts = (only_run(tmp_path / "runs", name) for name in ("whole", "parts"))
    assert_same_bits(whole, parts)
