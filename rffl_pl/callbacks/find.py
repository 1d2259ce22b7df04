"""How one callback finds another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from lightning.pytorch import Callback, Trainer

C = TypeVar("C", bound=Callback)


def find(trainer: Trainer, kind: type[C]) -> C | None:
    """The trainer's callback of a class, if it has one: the first."""
    return next(every(trainer, kind), None)


def every(trainer: Trainer, kind: type[C]) -> Iterator[C]:
    """The trainer's callbacks of a class, in their order."""
    callbacks: list[Callback] = getattr(trainer, "callbacks")  # noqa: B009  # Lightning sets it where mypy cannot see
    return (callback for callback in callbacks if isinstance(callback, kind))
