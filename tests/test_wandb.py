"""What W&B receives, read back from the file of an offline run."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wandb.proto.wandb_internal_pb2 import Record

from rffl_pl.runs.checkpoint import header
from tests.conftest import QUICK, Ended, only_run

BLOCK, HEADER = 32768, 7


def records(path: Path) -> Iterator[Record]:
    """The records of a ``.wandb`` file: a LevelDB log behind seven bytes of W&B's own."""
    data, position, parts = path.read_bytes(), HEADER, b""
    while position + HEADER <= len(data):
        if BLOCK - position % BLOCK < HEADER:
            position += BLOCK - position % BLOCK
            continue
        length, kind = struct.unpack("<HB", data[position + 4 : position + HEADER])
        parts += data[position + HEADER : position + HEADER + length]
        position += HEADER + length
        if kind in (1, 4):  # full or last
            yield Record.FromString(parts)
            parts = b""


def values(items: Any) -> dict[str, Any]:
    """Key to value of a history, summary or configuration record."""
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


@pytest.fixture
def logged(rffl: Callable[..., Ended], tmp_path: Path) -> list[Record]:
    """All that a run of two rounds without a login logged."""
    args = ("--config", "configs/digits.yaml", "--trainer.max_epochs", 2, "--trainer.enable_progress_bar", "false")
    ended = rffl("fit", *args)
    assert ended.code == 0, ended.err
    (folder,) = only_run(tmp_path / "runs").glob("wandb/offline-run-*")
    assert f"wandb sync {folder}" in ended.out
    return list(records(next(folder.glob("*.wandb"))))


def test_a_resumed_run_goes_on_in_the_same_run(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Both parts have one identity, the second has only its own rounds, and the user is told which goes first."""
    args = ("--config", "configs/digits.yaml", *QUICK[2:])
    assert rffl("fit", *args, "--trainer.max_epochs", 2, "--run.name", "first").code == 0
    first = only_run(tmp_path / "runs")
    ended = rffl("fit", *args, "--trainer.max_epochs", 3, "--ckpt_path", first / "checkpoints" / "last.ckpt")
    assert ended.code == 0, ended.err
    parts = {path.parent.parent.parent: path for path in (tmp_path / "runs").glob("*/*/wandb/offline-run-*/*.wandb")}
    assert len(parts) == 2
    (resumed,) = (path for folder, path in parts.items() if folder != first)
    identities, rounds = {}, {}
    for path in parts.values():
        every = list(records(path))
        identities[path] = {r.run.run_id for r in every if r.WhichOneof("record_type") == "run"}
        logged = [values(r.history.item) for r in every if r.WhichOneof("record_type") == "history"]
        rounds[path] = [entry["round"] for entry in logged]
    (identity,) = set().union(*identities.values())
    assert rounds == {parts[first]: [1, 2], resumed: [3]}
    assert header(first / "checkpoints" / "last.ckpt")["wandb"] == identity
    assert f"it goes on with W&B run {identity}: upload the earlier part first" in ended.out


def test_every_round_is_logged_with_the_round_as_axis(logged: list[Record]) -> None:
    """Per participant accuracy, loss, reputation, quota and bytes, removals, and the round that charts go by."""
    history = [values(record.history.item) for record in logged if record.WhichOneof("record_type") == "history"]
    assert [entry["round"] for entry in history] == [1, 2]
    for name in ("accuracy", "loss", "train_loss", "reputation", "quota", "bytes_up", "bytes_down"):
        assert all(f"{name}/participant_{i}" in history[1] for i in range(5))
    assert {"accuracy/mean", "accuracy/max", "members", "removed", "bytes_up/total"} <= history[1].keys()
    axes = [record.metric for record in logged if record.WhichOneof("record_type") == "metric"]
    assert [axis.step_metric for axis in axes if axis.glob_name == "*"][-1] == "round"


def test_summary_and_configuration_are_logged(logged: list[Record]) -> None:
    """The result in the summary, everything resolved in the configuration."""
    summary: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for record in logged:
        summary |= values(record.summary.update)
        config |= values(record.config.update)
        config |= values(record.run.config.update)
    assert {"mean", "maximum", "fairness", "initial", "adversary_final", "adversary_standalone"} <= summary.keys()
    assert 0 < summary["mean"] <= summary["maximum"] <= 1
    assert config["federation"]["participants"] == 5
    assert config["server"]["init_args"]["alpha"] == 0.95
    assert config["trainer"]["max_epochs"] == 2
