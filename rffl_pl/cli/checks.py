"""What is seen to before anything is made: options of Lightning, and of classes that are not this package's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import callbacks

from rffl_pl.cli.mistakes import mistake_behind, sentence
from rffl_pl.errors import UserError, check_number

ROUNDS = 10_000_000
"""More than any run plays."""

UNFIT = (
    callbacks.BaseFinetuning, callbacks.BatchSizeFinder, callbacks.GradientAccumulationScheduler,
    callbacks.LearningRateFinder, callbacks.ModelPruning, callbacks.StochasticWeightAveraging,
)  # fmt: skip
"""Lightning's callbacks that change or tune how the one model of a trainer is trained."""


def check_checkpoint(given: str | None) -> None:
    """See that a checkpoint may be one on this machine.

    Raises:
        UserError: If it lies elsewhere, or is one of Lightning's words for another one.
    """
    if given is None:
        return
    if "://" in given:
        raise UserError(f"Expected --ckpt_path to be a folder on this machine, but got {given}; copy it here first.")
    if given in ("best", "hpc") or given.startswith("registry") or not given.isprintable() or not given:
        raise UserError(
            f"Expected --ckpt_path to be a folder as runs leave it in checkpoints/, but got {given!r}; give "
            "runs/<name>/<date and time>/checkpoints/last.ckpt."
        )


def check_trainer(config: Mapping[str, Any]) -> None:
    """See that Lightning's trainer is told what a federation can do.

    Raises:
        UserError: If not.
    """
    for name in ("max_epochs", "max_steps"):
        if config[name] not in (None, -1):
            check_number(f"--trainer.{name}", config[name], 1, ROUNDS, "a round is one of them")
    for name in ("check_val_every_n_epoch", "limit_train_batches"):
        if config[name] is not None:
            check_number(f"--trainer.{name}", config[name], 1)
    if config["log_every_n_steps"] is not None:
        check_number("--trainer.log_every_n_steps", config["log_every_n_steps"], 0)
    if isinstance(config["val_check_interval"], int | float) and config["val_check_interval"] != 1:
        raise UserError(
            f"Expected --trainer.val_check_interval to be left alone, but got {config['val_check_interval']}: a round "
            "is one batch; give --trainer.check_val_every_n_epoch for every how many rounds."
        )
    given = config["callbacks"] or []
    for callback in given if isinstance(given, list) else [given]:
        if isinstance(callback, UNFIT):
            raise UserError(
                f"Expected --trainer.callbacks that watch a federation, but got {type(callback).__name__}, which "
                "changes how a single model is trained; leave it out."
            )


def constructed(kind: type, *args: Any, **kwargs: Any) -> Any:
    """An object of a class that an option names.

    Raises:
        UserError: If it is another's class and refuses what it is given; this package's say what they expect.
    """
    try:
        return kind(*args, **kwargs)
    except (ValueError, TypeError, RuntimeError, ArithmeticError, MemoryError) as error:
        if kind.__module__.startswith("rffl_pl.") or mistake_behind(error) is not None:
            raise
        raise UserError(
            f"Expected {kind.__name__} to take the options that it is given, but it fails: {type(error).__name__}: "
            f"{sentence(error)}"
        ) from error
