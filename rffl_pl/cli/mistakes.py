"""One sentence for a user's mistake."""

from __future__ import annotations

import os
import re
from typing import Any

import torch
from jsonargparse import ArgumentError
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from rffl_pl.callbacks.watching import WATCHED
from rffl_pl.cli.login import wandb_url
from rffl_pl.cli.readings import reading
from rffl_pl.errors import UserError
from rffl_pl.runs.durable import remedy, why_not_written


def mistake_behind(error: BaseException) -> BaseException | None:
    """The user's mistake behind an exception, if there is one; the parser wraps what a constructor raises.

    EarlyStopping alone of Lightning's callbacks has no exception of its own for a metric that nobody logs, and others
    none for a package that is not there.
    """
    told = (UserError, ArgumentError, MisconfigurationException, OSError, SyntaxError, torch.cuda.OutOfMemoryError)
    if isinstance(error, told):
        return error
    if isinstance(error, ModuleNotFoundError) and re.search("tensorboard|is not installed", str(error)):
        return error
    if _of_wandb(error):
        return error
    if isinstance(error, RuntimeError) and str(error).startswith("Early stopping conditioned on metric"):
        return error
    return mistake_behind(error.__cause__) if error.__cause__ is not None else None


def interrupted(error: BaseException) -> bool:
    """Whether it is the end that Lightning makes of Ctrl-C, an exit with 1."""
    return isinstance(error, SystemExit) and isinstance(error.__context__, KeyboardInterrupt)


def sentence(error: BaseException) -> str:
    """A message in one line: what the parser says of the user's words in ours, what others say as it is."""
    message = str(error)
    said = _unlogged(message) or reading(message) or _plain(message)
    if _of_wandb(error):
        said = _refused_by_wandb(error)
    elif isinstance(error, torch.cuda.OutOfMemoryError):
        said = (
            f"Expected room on the GPU, but {_plain(message).partition('. ')[0]}; start more ranks, so that each hosts "
            "fewer participants, or give a smaller --data.batch_size or --data.eval_batch_size, and go on with "
            "--ckpt_path last."
        )
    elif isinstance(error, SyntaxError):
        said = f"Expected your own classes to lie in files that Python can read, but {message}; mend it."
    elif isinstance(error, OSError):
        said = (
            f"Expected to read and write this run's files, but {why_not_written(error)}; {remedy(error)} and start "
            "again, with --ckpt_path last where there is a checkpoint."
        )
    elif isinstance(error, MisconfigurationException) and not _unlogged(message):
        said = f"Expected options that Lightning takes, but it says: {_plain(message)}"
    said = " ".join(said.split())
    return said if said.endswith((".", "?")) else f"{said}."


def _unlogged(message: str) -> str | None:
    """What Lightning says of a callback that watches what nobody logs, which one's own callback might have."""
    found = re.search(r"Early stopping conditioned on metric `(.*?)`|ModelCheckpoint\(monitor='(.*?)'\)", message)
    if found is None:
        return None
    return (
        f"Expected --trainer.callbacks.monitor to be {WATCHED}, or what a callback of yours logs, but got "
        f"{found[1] or found[2]}, which nobody has logged."
    )


def _plain(message: str) -> str:
    """A message in one line, without what the parser says of types that were not meant."""
    noise = ("Does not validate", "Subtypes:", "Errors:", "Given value", "Expected a <class 'NoneType'>")
    lines = (line.strip().removeprefix("- ") for line in message.splitlines())
    return " ".join(line for line in lines if line and not line.startswith(noise))


def _of_wandb(error: BaseException) -> bool:
    """Whether W&B cannot be reached or refuses; not by its class, which takes a second to import.

    It reads its settings, environment variables among them, with pydantic.
    """
    return type(error).__module__.startswith(("wandb.errors", "pydantic_core"))


def _refused_by_wandb(error: BaseException) -> str:
    """What W&B says of a setting, or of a run that it is to take; offline, nobody needs to be told to be that."""
    if (faults := getattr(error, "errors", None)) is not None:  # pydantic's
        return _refused_setting(faults()[0])
    offline = os.environ.get("WANDB_MODE") == "offline"
    where = "" if offline else f" at {wandb_url()}"
    remedy = "mend it" if offline else "give WANDB_MODE=offline to upload it later"
    return f"Expected W&B{where} to take this run, but got: {_plain(str(error))}; {remedy}, or give --run.wandb false."


def _refused_setting(fault: dict[str, Any]) -> str:
    """Of one that pydantic refuses the variable that gave it: WANDB_TAGS of run_tags, WANDB_RUN_GROUP of run_group."""
    setting = str(next(iter(fault["loc"]), "settings"))  # of all together it names none
    names = [f"WANDB_{name.upper()}" for name in (setting, setting.removeprefix("run_"))]
    variable = next((name for name in names if name in os.environ), None)
    given = fault["input"] if variable is None else os.environ[variable]
    return (
        f"Expected {variable or f'the {setting} of W&B'} to be what W&B takes, but got {given!r}, of which it says: "
        f"{fault['msg']}; {'unset it, or ' if variable else ''}give --run.wandb false."
    )
