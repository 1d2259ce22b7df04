"""What the loggers of a run are told beside its rounds."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, WandbLogger

from rffl_pl.callbacks.metrics_file import MetricsFile
from rffl_pl.runs import Round, Summary

MOST_LINES = 16
"""Up to so many participants W&B has a chart line for each; of more it has quantiles, and tables at the end."""


_ROOM = 1000
"""More rows than W&B has of a round: its own, the pictures, and what a user's callbacks log."""


def begin(loggers: Iterable[Logger], earlier: Iterable[Round], wandb_run: str | None) -> int:
    """Make the round the x-axis of W&B's charts, and repeat the earlier rounds of a run that goes on.

    Args:
        loggers: The run's.
        earlier: Rounds before this run, on rank 0.
        wandb_run: The W&B run that has them already.

    Returns:
        The last round that W&B has of the run that goes on, and keeps as it is.
    """
    kept = 0
    for logger in loggers:
        if isinstance(logger, MetricsFile):
            logger.begin()
        if isinstance(logger, WandbLogger):
            logger.experiment.define_metric("*", step_metric="round")
            if logger.version == wandb_run:
                kept = _catch_up(logger, list(earlier))
                continue
        for entry in earlier:
            _log(logger, entry)
    return kept


def _catch_up(logger: WandbLogger, earlier: Sequence[Round]) -> int:
    """Send W&B what a process that was killed had not sent, and tell the last round it has; offline nobody knows."""
    run = logger.experiment
    if run.settings._offline:
        run.log({}, step=_ROOM * len(earlier))  # counted from 0 its rows would lie among those of the earlier part
        return 0
    kept = int(run.summary.get("round") or 0)
    for entry in earlier:
        if entry.number > kept:
            _log(logger, entry)
    if kept > len(earlier):
        warnings.warn(
            f"W&B has rounds {len(earlier) + 1} to {kept} of this run already and keeps them; metrics.csv has those "
            "of now.",
            stacklevel=2,
        )
    return kept


def log(loggers: Iterable[Logger], entry: Round, kept: int) -> None:
    """Log a round: everything of everybody, but to W&B quantiles where there are many.

    Args:
        loggers: The run's.
        entry: The round.
        kept: The last round that W&B has already, by `begin`.
    """
    for logger in loggers:
        if entry.number > kept or not isinstance(logger, WandbLogger):
            _log(logger, entry)


def _log(logger: Logger, entry: Round) -> None:
    """Log a round to one logger; to W&B without a step, since it drops a lower one than others have logged there."""
    if isinstance(logger, WandbLogger):
        values = entry.digest() if len(entry.members) > MOST_LINES else entry.metrics()
        logger.experiment.log({**values, "trainer/global_step": entry.number})
    else:
        logger.log_metrics(entry.metrics(), step=entry.number)


def end(loggers: Iterable[Logger], history: Sequence[Round], summary: Summary, pictures: Sequence[Path]) -> None:
    """Leave in W&B the result, the pictures, and where there are many participants a table of every measure."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            result = asdict(summary)
            numbers = {name: value for name, value in result.items() if not isinstance(value, list | dict)}
            logger.experiment.summary.update({**numbers, "result": result})
            media = _pictures(pictures) | (_tables(history) if len(summary.examples) > MOST_LINES else {})
            if media:
                logger.experiment.log({**media, "round": summary.rounds})


def _pictures(files: Sequence[Path]) -> dict[str, Any]:
    from wandb import Image  # it is there if somebody logs to it

    return {f"pictures/{file.stem}": Image(str(file)) for file in files}


def _tables(history: Sequence[Round]) -> dict[str, Any]:
    """A table of every measure: a row per round, a column per participant."""
    from wandb import Table

    names = dict.fromkeys(name for entry in history for name in entry.measures)
    columns: list[str | int] = ["round", *(f"participant_{i}" for i in range(len(history[0].members)))]
    rows = {name: [[e.number, *e.measures[name]] for e in history if name in e.measures] for name in names}
    return {f"tables/{name}": Table(columns=columns, data=data) for name, data in rows.items()}


def open_already() -> object:
    """The run of W&B that is open in this process before a trainer's loggers open one: whoever began it ends it."""
    wandb = sys.modules.get("wandb")  # whoever has begun a run has imported it
    return wandb and wandb.run


def close(loggers: Iterable[Logger], before: object, exit_code: int) -> None:
    """End the W&B run that loggers opened; whoever logs by one of them again goes on with it.

    Left open it would have the rounds of the next run in this process; and after a failure on another rank the launcher
    asks this one to end just now, and what W&B has not written yet would go.

    Args:
        loggers: The run's.
        before: What was `open_already`, which stays open.
        exit_code: 0 if all went well.
    """
    for logger in loggers:
        if isinstance(logger, WandbLogger) and logger._experiment is not None and logger._experiment is not before:
            run, logger._experiment = logger._experiment, None
            logger._id = run.id
            logger._wandb_init |= {"id": run.id, "resume": "allow"}
            run.finish(exit_code)


def say_where(loggers: Iterable[Logger], earlier: str | None) -> None:
    """Tell how an offline run of W&B is uploaded, and whether it goes on with that of the checkpoint."""
    for logger in loggers:
        if isinstance(logger, WandbLogger) and logger.experiment.settings._offline:
            folder = Path(logger.experiment.dir).parent
            print(f"W&B run, offline: {folder}\nupload it with: wandb sync {shlex.quote(str(folder))}", flush=True)
            if logger.version == earlier:
                print(f"it goes on with W&B run {logger.version}: upload the earlier part first", flush=True)


def wandb_run(loggers: Iterable[Logger]) -> str | None:
    """The identity of the W&B run, if there is one."""
    versions: list[Any] = [logger.version for logger in loggers if isinstance(logger, WandbLogger)]
    return next(iter(versions), None)
