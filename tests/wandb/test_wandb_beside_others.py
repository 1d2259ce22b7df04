"""TensorBoard and CSV lose nothing that W&B gets, and W&B nothing where somebody else logs to the same run."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, LightningModule, Trainer

from tests.conftest import QUICK, Ended, only_run
from tests.wandb.test_wandb import history, of_kind, records, values

DIGITS = ("--config", "configs/digits.yaml", "--server", "tests.extensions.Measured", "--server.gamma", 0.5)
OURS = {"_runtime", "_step", "_timestamp", "trainer/global_step"}
"""What W&B adds of its own."""
Rounds = list[dict[str, float]]


def rows(file: Path) -> Rounds:
    """Every round of a CSV file, without the cells that are empty."""
    with file.open() as lines:
        read = [{name: float(cell) for name, cell in row.items() if cell} for row in csv.DictReader(lines)]
    return [{name: value for name, value in row.items() if name not in ("step", "epoch")} for row in read]


def scalars(folder: Path) -> Rounds:
    """Every round of TensorBoard's files, by TensorBoard's own reader."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    found: dict[int, dict[str, float]] = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            found.setdefault(event.step, {})[name] = event.value
    return [found[step] for step in sorted(found)]


def test_without_tensorboard_it_says_what_to_install(
    rffl: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning's own sentence, and no traceback."""
    for name in ("_TENSORBOARD_AVAILABLE", "_TENSORBOARDX_AVAILABLE"):
        monkeypatch.setattr(f"lightning.fabric.loggers.tensorboard.{name}", False)
    logger = ("--trainer.logger", "TensorBoardLogger", "--trainer.logger.save_dir", tmp_path)
    ended = rffl("fit", *DIGITS, *QUICK, *logger, "--trainer.max_epochs", 1)
    assert ended.code == 2
    assert ended.err.startswith("Error: Neither `tensorboard` nor `tensorboardX` is available.")


def test_every_logger_gets_the_same(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Every number of every round, a server's own among them; and the run folder has its metrics as ever."""
    pytest.importorskip("tensorboard", reason="TensorBoard is in the extra test")
    loggers = (
        "--trainer.logger+=TensorBoardLogger", "--trainer.logger.save_dir", tmp_path / "tensorboard",
        "--trainer.logger+=CSVLogger", "--trainer.logger.save_dir", tmp_path / "csv",
        "--trainer.logger+=WandbLogger", "--trainer.logger.save_dir", tmp_path, "--trainer.logger.offline", "true",
    )  # fmt: skip
    ended = rffl("fit", *DIGITS, *QUICK, *loggers, "--trainer.max_epochs", 2)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    expected = rows(folder / "metrics.csv")
    assert [row["round"] for row in expected] == [1, 2]
    assert {"length/participant_0", "reputation/honest_median", "honest_members"} <= expected[1].keys()
    (own,) = (tmp_path / "csv").rglob("metrics.csv")
    assert rows(own) == expected
    (wandb,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    logged = history(list(records(wandb)))
    assert [{name: value for name, value in row.items() if name not in OURS} for row in logged] == [
        pytest.approx(row) for row in expected
    ]
    found = scalars(next((tmp_path / "tensorboard").glob("*/version_0")))
    assert found == [pytest.approx(row) for row in expected]  # TensorBoard's are float32
    checkpoint = folder / "checkpoints" / "last.ckpt"
    ended = rffl("fit", *DIGITS, *QUICK, *loggers[:3], "--trainer.max_epochs", 3, "--ckpt_path", checkpoint)
    assert ended.code == 0, ended.err
    again = scalars(next((tmp_path / "tensorboard").glob("*/version_1")))
    assert [row["round"] for row in again] == [1, 2, 3]
    assert again[:2] == found


class Talkative(Callback):
    """Logs at many moments, as Lightning's documentation shows."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        for logger in trainer.loggers:
            logger.log_metrics({"theirs/batch": 1.0}, step=trainer.global_step)
        pl_module.log("theirs/epoch", 2.0, on_step=True, on_epoch=True, batch_size=1)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        pl_module.log("theirs/measured", 3.0)


@pytest.mark.parametrize("own", [False, True])
def test_rounds_arrive_beside_what_callbacks_log(rffl: Callable[..., Ended], tmp_path: Path, own: bool) -> None:
    """W&B takes no step less than its last: every round and the pictures, in both parts of a run, none in another's."""
    logger = ("--trainer.logger", "WandbLogger", "--trainer.logger.save_dir", tmp_path, "--trainer.logger.id", "mine")
    quiet = ("--standalone.enabled", "false", "--trainer.enable_progress_bar", "false", "--run.name", "one")
    callback = "--trainer.callbacks+=tests.wandb.test_wandb_beside_others.Talkative"
    steps: list[int] = []
    for rounds, on in ((3, ()), (5, ("--ckpt_path", "last"))):
        offline = ("--trainer.logger.offline", "true") if own else ()
        words = (*DIGITS, *quiet, *(logger if own else ()), *offline, callback, "--trainer.max_epochs", rounds, *on)
        ended = rffl("fit", *words)
        assert ended.code == 0, ended.err
        parts = sorted((tmp_path if own else only_run(tmp_path / "runs")).glob("wandb/offline-run-*/*.wandb"))
        every = list(records(parts[-1]))
        rows = [values(record.history.item) for record in of_kind(every, "history")]
        assert [entry["round"] for entry in history(every)] == ([4, 5] if on else [1, 2, 3])
        assert {"theirs/batch", "theirs/epoch_epoch", "theirs/measured"} <= {key for row in rows for key in row}
        (pictures,) = (row for row in rows if any(key.startswith("pictures/") for key in row))
        assert pictures["round"] == rounds
        steps += [row["_step"] for row in rows]
    assert len(parts) == 2
    assert steps == sorted(set(steps))
