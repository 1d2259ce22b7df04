"""Options of Lightning's trainer: what they do is as they say, from Python and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    EarlyStopping,
    LambdaCallback,
    ModelCheckpoint,
    StochasticWeightAveraging,
    TQDMProgressBar,
)
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.plugins.io import AsyncCheckpointIO
from torch.optim import SGD

from rffl_pl import RFFL, Federation, Perceptron, Round, RunFolder, UserError, federated_trainer, strategy
from rffl_pl.callbacks import RoundCallback, RoundCheckpoint, StandaloneReference
from rffl_pl.callbacks.agreement import named_alike
from rffl_pl.module import FederatedModule
from rffl_pl.servers import FedAvg
from rffl_pl.strategy import leave_process_group
from tests.conftest import QUICK, ROOT, Ended, only_run
from tests.python.test_python import small
from tests.runs import digits


@pytest.mark.parametrize(
    ("option", "value"),
    [("limit_train_batches", 3), ("limit_train_batches", 0.5), ("overfit_batches", 1), ("val_check_interval", 2)],
)
def test_an_option_that_divides_a_round(tmp_path: Path, option: str, value: float) -> None:
    """It would do nothing, and nobody would be told."""
    with pytest.raises(UserError, match=f"--trainer.{option} to be left alone, but got {value}: a round is one batch;"):
        federated_trainer(RFFL(), folder=RunFolder.make(tmp_path), **{option: value})


@pytest.mark.parametrize(("option", "least"), [("check_val_every_n_epoch", 1), ("log_every_n_steps", 0)])
def test_every_how_many_rounds(tmp_path: Path, option: str, least: int) -> None:
    """Lightning divides by it in the first round."""
    with pytest.raises(UserError, match=f"--trainer.{option} to be at least {least}, but got {least - 1}"):
        federated_trainer(RFFL(), folder=RunFolder.make(tmp_path), **{option: least - 1})


def test_nodes_of_unlike_numbers_of_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rffl: Callable[..., Ended]
) -> None:
    """Lightning was told one node where there are two."""
    for name, value in {"WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 2, "RANK": 0, "LOCAL_RANK": 0, "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    expected = "as many ranks on every node, but 3 ranks are not a multiple of the 2 of this one; give the same"
    with pytest.raises(UserError, match=expected):
        federated_trainer(RFFL(), folder=RunFolder.make(tmp_path), accelerator="cpu")
    monkeypatch.setattr(strategy, "_ABSENCE", 1)  # nobody comes to hear why this rank does not
    ended = rffl("fit", "--config", "digits.yaml", "--trainer.accelerator", "cpu", *QUICK)
    assert ended.code == 2
    assert expected in ended.err


def test_a_progress_bar_of_ones_own(tmp_path: Path) -> None:
    """Beside the usual one Lightning refuses two."""
    bar = TQDMProgressBar()
    trainer = federated_trainer(RFFL(), folder=RunFolder.make(tmp_path), accelerator="cpu", callbacks=[bar])
    assert trainer.progress_bar_callback is bar
    leave_process_group()


@pytest.mark.parametrize("precision", ["64-true", "bf16-true", "16-true"])
def test_a_precision_that_uploads_do_not_have(tmp_path: Path, precision: Any) -> None:
    """It would end in a complaint of torch's, or train without scaled losses."""
    trainer = federated_trainer(
        RFFL(), folder=RunFolder.make(tmp_path), accelerator="cpu", precision=precision, enable_progress_bar=False
    )
    federation = Federation(participants=2)
    module = FederatedModule(federation, Perceptron(64, 8, 10))
    with pytest.raises(UserError, match=f"precision to be 32-true or bf16-mixed, but got {precision}"):
        trainer.fit(module, datamodule=digits(federation))
    leave_process_group()


@pytest.mark.parametrize(
    ("callback", "expected"),
    [
        (EarlyStopping("accuracy/mean"), r"--trainer\.callbacks\.mode max for accuracy/mean"),
        (StochasticWeightAveraging(0.1), r"but got StochasticWeightAveraging, which is for how a single model is"),
    ],
)
def test_a_callback_that_watches_for_the_wrong_end(tmp_path: Path, callback: Callback, expected: str) -> None:
    """A run would end while accuracy rises, or nothing would be averaged, without a word."""
    with pytest.raises(UserError, match=expected):
        federated_trainer(RFFL(), folder=RunFolder.make(tmp_path), callbacks=[callback])
    federated_trainer(RFFL(), folder=RunFolder.make(tmp_path), callbacks=EarlyStopping("accuracy/mean", mode="max"))


class Told(RoundCallback):
    """Has numbers of its own, which Lightning's callbacks do not see."""

    def on_round_end(self, trainer: Trainer, played: Round) -> None:
        pass


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"sync_batchnorm": True}, r"--trainer\.sync_batchnorm to be left alone, but got True"),
        ({"profiler": "pytorch"}, r"--trainer\.profiler to be simple or advanced"),
        ({"max_epochs": 0}, r"--trainer\.max_epochs to be at least 1, but got 0"),
        ({"max_epochs": 2.0}, r"--trainer\.max_epochs to be a whole number of rounds, but got 2\.0"),
        ({"max_steps": "3"}, r"--trainer\.max_steps to be a whole number of rounds, but got '3'"),
        ({"val_check_interval": "00:00:01:00"}, r"--trainer\.val_check_interval to be left alone"),
        ({"plugins": AsyncCheckpointIO()}, r"--trainer\.plugins that write checkpoints, but got AsyncCheckpointIO"),
        ({"callbacks": ModelCheckpoint("elsewhere")}, r"--trainer\.callbacks\.dirpath to be left alone"),
    ],
)
def test_options_that_the_command_line_refuses(tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    """They would do nothing, or end in an exception of a library's."""
    with pytest.raises(UserError, match=expected):
        federated_trainer(RFFL(), folder=RunFolder.make(tmp_path), accelerator="cpu", **options)


def test_checkpoints_of_ones_own_have_every_round(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Also where models are not measured in every round, and beside a logger; who goes on has all."""
    words = (
        "fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.check_val_every_n_epoch", 2,
        "--trainer.callbacks+=ModelCheckpoint", "--trainer.logger", "CSVLogger", "--trainer.logger.save_dir",
        tmp_path / "logs",
    )  # fmt: skip
    for rounds in (3, 5):
        ended = rffl(*words, "--trainer.max_epochs", rounds, "--ckpt_path", "last")
        assert ended.code == 0, ended.err
    run = only_run(tmp_path / "runs")
    assert [json.loads(line)["number"] for line in (run / "rounds.jsonl").open()] == [1, 2, 3, 4, 5]
    assert list((run / "checkpoints").glob("*.ckpt"))


def test_checkpoints_of_ones_own_in_a_program(tmp_path: Path) -> None:
    """One that is given to a second trainer is refused there, or one of the package's stands beside it."""
    own = ModelCheckpoint(monitor="accuracy/mean", mode="max")
    for name in ("one", "two"):
        folder = RunFolder.make(tmp_path / name)
        trainer = federated_trainer(RFFL(), folder=folder, accelerator="cpu", callbacks=[own])
        assert [one for one in trainer.callbacks if isinstance(one, ModelCheckpoint)] == [own]
        assert own.dirpath == str(folder.checkpoints)
    every_tenth = RoundCheckpoint(tmp_path / "elsewhere", every=10)
    trainer = federated_trainer(RFFL(), folder=folder, accelerator="cpu", callbacks=[every_tenth])
    assert [one for one in trainer.callbacks if isinstance(one, ModelCheckpoint)] == [every_tenth]
    assert every_tenth.dirpath == str(folder.checkpoints)


class Saving(RoundCallback):
    """Writes a checkpoint where a round was measured, or has been recorded."""

    def __init__(self, path: Path, *, early: bool) -> None:
        self.path, self.early = path, early

    def _save(self, trainer: Trainer, of: bool) -> None:
        if of == self.early and trainer.current_epoch == 1:
            trainer.save_checkpoint(self.path)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._save(trainer, True)

    def on_round_end(self, trainer: Trainer, played: Round) -> None:
        self._save(trainer, False)


@pytest.mark.parametrize("early", [True, False])
def test_a_checkpoint_without_the_record_of_its_round(tmp_path: Path, early: bool) -> None:
    """A run that goes on from it would never have removed who was removed in it."""

    def fit(name: str, rounds: int, begin: Path | None, *callbacks: Callback) -> RunFolder:
        folder = RunFolder.make(tmp_path / name)
        federation = Federation(participants=2)
        trainer = federated_trainer(
            RFFL(), folder=folder, accelerator="cpu", max_epochs=rounds, enable_progress_bar=False,
            callbacks=[StandaloneReference(enabled=False), *callbacks],
        )  # fmt: skip
        try:
            module = FederatedModule(federation, Perceptron(64, 8, 10))
            trainer.fit(module, datamodule=digits(federation), ckpt_path=begin)
        finally:
            leave_process_group()
        return folder

    saved = tmp_path / "mine.ckpt"
    fit("first", 2, None, Saving(saved, early=early))
    if early:
        said = (
            r"the record of every round, but .*mine\.ckpt was written in round 2, before its record: who was removed in"
        )
        with pytest.raises(UserError, match=said):
            fit("second", 3, saved)
    else:
        assert [played.number for played in fit("second", 3, saved).rounds()] == [1, 2, 3]


class Logging(FederatedModule):
    """May log what it will."""


@pytest.mark.parametrize(
    ("kind", "beside", "told"),
    [
        (FederatedModule, Told(), True),
        (FederatedModule, LambdaCallback(on_train_epoch_end=lambda trainer, module: module.log("jain", 1.0)), False),
        (Logging, Told(), False),
    ],
)
def test_what_nobody_logs(tmp_path: Path, kind: type[FederatedModule], beside: Callback, told: bool) -> None:
    """It ended in an exception of Lightning's after a round; who may log it is not refused."""
    trainer = federated_trainer(
        RFFL(), folder=RunFolder.make(tmp_path), accelerator="cpu", max_epochs=1, enable_progress_bar=False,
        callbacks=[beside, EarlyStopping("jain"), StandaloneReference(enabled=False)],
    )  # fmt: skip
    federation = Federation(participants=2)
    error, said = (UserError, "got jain, which is not logged") if told else (RuntimeError, "on metric `jain`")
    with nullcontext() if isinstance(beside, LambdaCallback) else pytest.raises(error, match=said):
        trainer.fit(kind(federation, Perceptron(64, 8, 10)), datamodule=digits(federation))
    leave_process_group()


def test_numbers_of_numpys(tmp_path: Path) -> None:
    """Rounds were played for ever, and rates of a logspace ended a run at its first checkpoint."""
    run = RunFolder.make(tmp_path)
    two = np.arange(2, 3)[0]
    trainer = federated_trainer(
        FedAvg(), folder=run, accelerator="cpu", max_epochs=two, min_epochs=two, enable_progress_bar=False,
        callbacks=[StandaloneReference(enabled=False)],
    )  # fmt: skip
    federation = Federation(participants=3, coalition=np.array([0, 2]))
    optimizer = partial(SGD, lr=np.logspace(-2, -1, 2)[0], momentum=np.float64(0.9))
    module = FederatedModule(
        federation, Perceptron(64, 8, 10), optimizer=optimizer, local_epochs=two, lr_decay=np.float64(0.9)
    )
    trainer.fit(module, datamodule=digits(federation))
    leave_process_group()
    assert [played.number for played in run.rounds()] == [1, 2]


def test_options_that_divide_nothing(tmp_path: Path) -> None:
    """Lightning's own values are taken."""
    whole = {"limit_train_batches": 1.0, "overfit_batches": 0.0, "val_check_interval": 1.0}
    federated_trainer(RFFL(), folder=RunFolder.make(tmp_path), accelerator="cpu", **whole)


@pytest.mark.parametrize("kept", [True, False])
def test_without_checkpoints(tmp_path: Path, kept: bool) -> None:
    """Whoever wants none gets a trainer that writes none, instead of Lightning's exception."""
    folder = RunFolder.make(tmp_path)
    trainer = federated_trainer(RFFL(), folder=folder, accelerator="cpu", enable_checkpointing=kept)
    assert any(isinstance(callback, ModelCheckpoint) for callback in trainer.callbacks) == kept


def test_the_folder_that_a_script_is_run_in(tmp_path: Path) -> None:
    """It has no name that other ranks could take, and stays what it is."""
    folder = RunFolder(".")
    trainer = federated_trainer(RFFL(), folder=folder, accelerator="cpu")
    assert named_alike(folder, trainer).path == Path()


def test_a_rehearsal_of_lightnings_opens_nothing(
    rffl: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under `fast_dev_run` no logger writes, W&B neither, and what one batch measures is no result of a run."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    ended = rffl(
        "fit", "--config", ROOT / "configs" / "digits.yaml", "--trainer.fast_dev_run", "true", "--run.figures", "false",
        "--standalone.enabled", "false", "--trainer.enable_progress_bar", "false",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "measured on 1 batch at most, as the trainer is told" in ended.out
    assert not list(tmp_path.rglob("*.wandb"))
    assert not list(tmp_path.rglob("summary.json"))


@pytest.mark.parametrize("log_model", [True, "all"])
def test_checkpoints_for_wandb(tmp_path: Path, log_model: Any) -> None:
    """Its logger uploads files, and a checkpoint is a folder: it would upload none, without a word."""
    logger = WandbLogger(save_dir=tmp_path, log_model=log_model)
    with pytest.raises(UserError, match=f"--trainer.logger.log_model to be left alone, but got {log_model}: a check"):
        federated_trainer(RFFL(), folder=RunFolder.make(tmp_path), logger=logger)


def test_a_time_that_leaves_no_round(tmp_path: Path) -> None:
    """A program is told what a command line is; it had neither rounds nor a word."""
    trainer, module, data = small(RunFolder.make(tmp_path / "run"), max_time={"seconds": 0})
    with pytest.raises(
        UserError, match="Expected at least one round to be played, but a callback ends training before it"
    ):
        trainer.fit(module, data)
    leave_process_group()


def test_stopping_early_where_not_every_round_is_measured(tmp_path: Path) -> None:
    """It looks after those that are, whatever it is told: after another there would be nothing to look at."""
    early = EarlyStopping("accuracy/mean", mode="max", patience=1, min_delta=1, check_on_train_epoch_end=True)
    run = RunFolder.make(tmp_path / "run")
    trainer, module, data = small(run, max_epochs=8, callbacks=early, check_val_every_n_epoch=2)
    trainer.fit(module, data)
    leave_process_group()
    assert len(run.rounds()) == 4


def test_a_trial_of_a_run_that_has_rounds(tmp_path: Path) -> None:
    """It plays one round, and was told that there are fewer rounds than the checkpoint has."""
    run = RunFolder.make(tmp_path / "run")
    trainer, module, data = small(run)
    trainer.fit(module, data)
    trainer, module, data = small(RunFolder.make(tmp_path / "trial"), fast_dev_run=True)
    with pytest.raises(UserError, match=r"--trainer\.fast_dev_run for a run that begins, .* but got --ckpt_path"):
        trainer.fit(module, data, ckpt_path=run.checkpoints)
    leave_process_group()
