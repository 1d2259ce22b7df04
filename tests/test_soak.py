"""A federation that runs for long holds on to nothing: memory, open files, time, checkpoints, warnings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import QUICK, Ended, only_run

ROUNDS, SETTLED = 2000, 400
PARTICIPANTS, DIMENSION = 64, 64 * 8 + 8 + 8 * 10 + 10
RECORD = 32 * 9 * PARTICIPANTS
"""Bytes of nine numbers of everybody, in memory as in text: what a round adds to the record on the disk, at most."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_thousand_rounds(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """64 participants, of whom a quarter takes part in each round and noise is removed: something piles up."""
    ended = rffl(
        "fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.max_epochs", ROUNDS, "--server.preset", "guarded",
        "--federation.participants", 56, "--federation.adversaries", 8, "--federation.participation", 0.25,
        "--data.examples_per_participant", 16, "--data.adversary_examples", 16, "--data.split", "UNI",
        "--model.local_epochs", 1, "--model.lr_decay", 1.0, "--model.network.hidden", 8,
        "--trainer.check_val_every_n_epoch", 100, "--run.checkpoint_every", 100,
        "--trainer.callbacks+=tests.gauge.Gauge", "--trainer.callbacks.file", tmp_path / "gauge.jsonl",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    measured = [json.loads(line) for line in (tmp_path / "gauge.jsonl").read_text().splitlines()]
    assert len(measured) == ROUNDS
    slopes = {name: slope([entry[name] for entry in measured]) for name in ("memory", "files", "seconds")}
    seconds = np.array([entry["seconds"] for entry in measured])
    print(f"per round: {slopes['memory']:.0f} bytes, {slopes['files']:.6f} open files, {slopes['seconds']:.2e} seconds")
    print(
        f"seconds of a round: {np.median(seconds[:SETTLED]):.3f} at first, {np.median(seconds[-SETTLED:]):.3f} at last"
    )
    assert slopes["memory"] < 0.1 * RECORD
    assert abs(slopes["files"]) < 1e-3

    folder = only_run(tmp_path / "runs")
    assert {path.name for path in (folder / "checkpoints").iterdir()} <= {"last.ckpt", "last.previous.ckpt"}
    sizes = {path.name: path.stat().st_size for path in (folder / "checkpoints" / "last.ckpt").iterdir()}
    print(sizes["server.pt"], sizes["run.pt"], sizes["participant_0.pt"], sizes["rounds.jsonl"])
    assert sizes["server.pt"] < 3 * 8 * PARTICIPANTS**2  # what `guarded` keeps of every pair, whatever the round
    assert (folder / "rounds.jsonl").samefile(folder / "checkpoints" / "last.ckpt" / "rounds.jsonl")
    assert sizes["rounds.jsonl"] < ROUNDS * RECORD
    assert max(size for name, size in sizes.items() if name.startswith("participant")) < 4 * DIMENSION + 8192
    assert (folder / "metrics.csv").stat().st_size < ROUNDS * RECORD
    assert len(ended.err.splitlines()) < 4 * PARTICIPANTS
    removed = json.loads((folder / "summary.json").read_text())["removed_in_round"]
    assert [at is not None for at in removed[56:]] == [True] * 8


def slope(values: list[float]) -> float:
    """The least-squares slope per round, once the first rounds are over."""
    settled = np.array(values[SETTLED:])
    return float(np.polyfit(np.arange(len(settled)), settled, 1)[0])
