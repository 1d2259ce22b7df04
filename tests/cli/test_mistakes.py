"""A mistake that shows in the course of a run is one sentence; what shows before is in `tests/bad_input`."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from rffl_pl.cli.arguments import made
from rffl_pl.cli.linked import FOLLOWS
from rffl_pl.cli.mistakes import mistake_behind, sentence
from rffl_pl.cli.resolve import OnlyParsed
from tests.cli.folders import DIGITS, Run
from tests.conftest import QUICK


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOENT, "see to that"), (errno.ENOSPC, "make room"), (errno.EDQUOT, "make room")]
)
def test_what_the_system_refuses(number: int, remedy: str) -> None:
    """Nobody makes room for a file that is gone."""
    why = f"{os.strerror(number)}: rounds.jsonl; {remedy} and start again, with --ckpt_path last where there is a"
    assert sentence(OSError(number, os.strerror(number), "rounds.jsonl")) == (
        f"Expected to read and write this run's files, but {why} checkpoint."
    )


@pytest.mark.parametrize("callback", ["EarlyStopping", "ModelCheckpoint"])
def test_a_metric_that_nobody_logs_is_one_sentence(rffl: Run, callback: str) -> None:
    """With its name, and the one that there is."""
    watching = (f"--trainer.callbacks+={callback}", "--trainer.callbacks.monitor", "val_acc")
    ended = rffl(*DIGITS, *QUICK, *watching, "--trainer.max_epochs", 2)
    assert ended.code == 2
    (sentence,) = (line for line in ended.err.splitlines() if line.startswith("Error: "))
    assert "val_acc" in sentence
    assert "accuracy/mean" in sentence


class Deaf(Callback):
    """Might log what others watch."""

    def on_train_epoch_end(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("callback", ["EarlyStopping", "ModelCheckpoint"])
def test_what_is_watched_and_might_be_logged(rffl: Run, callback: str) -> None:
    """Lightning asks whether some code of the module logs it."""
    watching = ("--trainer.callbacks+=tests.cli.test_mistakes.Deaf", f"--trainer.callbacks+={callback}")
    ended = rffl(*DIGITS, *QUICK, *watching, "--trainer.callbacks.monitor", "jain", "--trainer.max_epochs", 2)
    assert ended.code == 2
    assert "callbacks.monitor to be accuracy/mean, or what a callback of yours logs, but got jain, which" in ended.err


@pytest.mark.parametrize("callback", ["EarlyStopping", "ModelCheckpoint"])
@pytest.mark.parametrize(
    ("seldom", "expected"),
    [
        (("--trainer.check_val_every_n_epoch", 3), "--trainer.check_val_every_n_epoch to be at most 2, the rounds of"),
        (("--trainer.limit_val_batches", 0), "--trainer.limit_val_batches above 0, since"),
    ],
)
def test_what_is_watched_and_never_measured(
    rffl: Run, callback: str, seldom: tuple[object, ...], expected: str
) -> None:
    """Training would end late, or leave no checkpoint, without a word."""
    watching = (f"--trainer.callbacks+={callback}", "--trainer.callbacks.monitor", "accuracy/mean")
    given = (*watching, "--trainer.callbacks.mode", "max", *seldom)
    ended = rffl(*DIGITS, *QUICK, *given, "--trainer.max_epochs", 2)
    assert ended.code == 2
    assert ended.err.count(f"Error: Expected {expected}") == 1
    assert f"{callback} watches accuracy/mean" in ended.err


def test_every_option_that_follows_another_is_known() -> None:
    """One that is linked anew is taken from a configuration, and has no effect."""
    parser = made(OnlyParsed, ["fit", "--config", "configs/digits.yaml"])._parser("fit")
    linked = [group for group in parser._action_groups if group.title == "Linked arguments"]
    assert {action.dest.replace("init_args.", "") for action in linked[0]._group_actions} == FOLLOWS.keys()


def test_a_card_without_room_is_one_sentence() -> None:
    """It ends in a traceback, and nobody is told what to do."""
    error = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total of 80 GiB.")
    assert mistake_behind(error) is error
    assert sentence(error).startswith("Expected room on the GPU, but CUDA out of memory; start more ranks")
