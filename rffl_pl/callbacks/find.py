"""How one callback finds another, and ranks the folder of their run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from lightning.pytorch import Callback, Trainer

from rffl_pl.errors import UserError
from rffl_pl.runs import RunFolder

C = TypeVar("C", bound=Callback)


def find(trainer: Trainer, kind: type[C]) -> C | None:
    """The trainer's callback of a class, if it has one: the first."""
    return next(every(trainer, kind), None)


def every(trainer: Trainer, kind: type[C]) -> Iterator[C]:
    """The trainer's callbacks of a class, in their order."""
    callbacks: list[Callback] = getattr(trainer, "callbacks")  # noqa: B009  # Lightning sets it where mypy cannot see
    return (callback for callback in callbacks if isinstance(callback, kind))


def named_alike(folder: RunFolder, trainer: Trainer) -> RunFolder:
    """This rank's folder of the run, named as rank 0's: it is the same one where they have the same --run.root.

    Raises:
        UserError: If rank 0 names a place elsewhere.
    """
    name = trainer.strategy.broadcast(folder.path.name)
    if (name != "" and Path(name).parts != (name,)) or name == "..":
        raise UserError(f"Expected rank 0 to name a folder below --run.root and --run.name, but it says {name!r}.")
    return folder if name in ("", folder.path.name) else RunFolder(folder.path.parent / name)
