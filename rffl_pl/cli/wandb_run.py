"""The run of W&B that a run is logged to: under which name and in which project, and when it is opened."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl.cli.login import offline_without_login, wandb_project
from rffl_pl.cli.run import Run
from rffl_pl.runs.checkpoint import wandb_run
from rffl_pl.runs.facts import cell, group, tags


class Opening(Callback):
    """Opens W&B's run when everything that can be refused has been checked; Lightning would before it sees the data."""

    def __init__(self, loggers: Iterable[Logger]) -> None:
        self._loggers = list(loggers)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.loggers = [*trainer.loggers, *self._loggers]


def wandb_loggers(config: dict[str, Any], run: Run, folder: Path) -> list[Logger]:
    """W&B in the run folder, unless nobody wants it; where a run goes on in its folder, so does its W&B run.

    Args:
        config: The resolved configuration.
        run: Whether to log to W&B.
        folder: The run folder.
    """
    if not run.wandb or not _wandb_is_there():
        return []
    offline_without_login()
    resumed = config.get("ckpt_path")  # only commands have it, not a parser alone
    # Elsewhere it is a run of its own: several may go on from one checkpoint.
    here = resumed is not None and Path(resumed).resolve().is_relative_to(folder.resolve())
    earlier = wandb_run(str(resumed)) if here else None
    name = None if earlier else os.environ.get("WANDB_NAME") or cell(config) or f"{run.name}-{folder.name}"
    project = run.wandb_project or wandb_project()
    wandb = WandbLogger(name=name, id=earlier, save_dir=folder, project=project, **_found_by(config))
    wandb._wandb_init.pop("anonymous")  # Lightning always passes it, and W&B warns whoever does
    return [wandb]


def _found_by(config: dict[str, Any]) -> dict[str, Any]:
    """Group, job type and tags of a W&B run; the environment decides first."""
    given = os.environ.get("WANDB_TAGS")
    return {
        "group": os.environ.get("WANDB_RUN_GROUP") or group(config),
        "job_type": os.environ.get("WANDB_JOB_TYPE") or "fit",
        "tags": given.split(",") if given else tags(config),
    }


def _wandb_is_there() -> bool:
    """Whether W&B can be imported; if not, rank 0 says what that means."""
    try:
        import wandb  # noqa: F401
    except ImportError as error:
        rank_zero_warn(
            f"W&B cannot be imported ({error}): this run logs to metrics.csv alone; pip install wandb, or give "
            "--run.wandb false to hear no more of it."
        )
        return False
    return True
