"""What the loggers of a run are told beside its rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, WandbLogger

from rffl_pl.runs import Round, Summary


def begin(loggers: Iterable[Logger], earlier: Sequence[Round], wandb_run: str | None) -> None:
    """Make the round the x-axis of W&B's charts, and repeat the earlier rounds of a run that goes on.

    Args:
        loggers: The run's.
        earlier: Rounds before this run, on rank 0.
        wandb_run: The W&B run that has them already.
    """
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.experiment.define_metric("*", step_metric="round")
            if logger.version == wandb_run:
                continue
        for entry in earlier:
            logger.log_metrics(entry.metrics(), step=entry.number)


def end(loggers: Iterable[Logger], summary: Summary) -> None:
    """Leave the result in W&B's summary."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            result = asdict(summary)
            numbers = {name: value for name, value in result.items() if not isinstance(value, list)}
            logger.experiment.summary.update({**numbers, "result": result})


def say_where(loggers: Iterable[Logger], resumed: bool) -> None:
    """Tell how an offline run of W&B is uploaded."""
    for logger in loggers:
        if isinstance(logger, WandbLogger) and logger.experiment.settings._offline:
            folder = Path(logger.experiment.dir).parent
            print(f"W&B run, offline: {folder}\nupload it with: wandb sync {folder}", flush=True)
            if resumed:
                print(f"it goes on with W&B run {logger.version}: upload the earlier part first", flush=True)


def wandb_run(loggers: Iterable[Logger]) -> str | None:
    """The identity of the W&B run, if there is one."""
    versions: list[Any] = [logger.version for logger in loggers if isinstance(logger, WandbLogger)]
    return next(iter(versions), None)
