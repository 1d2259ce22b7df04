"""The classes that an option takes by name, and what a class is constructed by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import lightning.pytorch.callbacks
import lightning.pytorch.loggers
import torch
import torchmetrics

from rffl_pl.cli import catalogue
from rffl_pl.servers.mixing import MIXABLE


def _public(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, type)]


def _optimizers() -> list[str]:
    return [name for name in _public(torch.optim) if name != "Optimizer"]


CLASSES: dict[str, Callable[[], Iterable[str]]] = {
    "server": lambda: catalogue.listed("servers"),
    "server.rule": lambda: MIXABLE,
    "FedOpt.rule": lambda: sorted({*MIXABLE, "FoolsGold"}),
    "server.optimizer": _optimizers,
    "adversaries": lambda: catalogue.listed("adversaries"),
    "data": lambda: catalogue.listed("datamodules"),
    "data.split": lambda: catalogue.listed("splits"),
    "data.augment": lambda: catalogue.listed("augmentations"),
    "model.network": lambda: catalogue.listed("networks"),
    "model.loss": lambda: [name for name in _public(torch.nn) if name.endswith("Loss")],
    "model.objective": lambda: (),  # all are somebody's own
    "model.optimizer": _optimizers,
    "model.measures": lambda: _public(torchmetrics),
    "trainer.callbacks": lambda: _public(lightning.pytorch.callbacks),
    "trainer.logger": lambda: _public(lightning.pytorch.loggers),
}
"""The names of the classes that an option takes, by the option."""


def constructors(kind: Any) -> list[Any]:
    """The ``__init__`` of a class and of its bases, its own first, without `object`'s; of a function itself."""
    if not isinstance(kind, type):
        return [kind]
    return [vars(base)["__init__"] for base in kind.__mro__[:-1] if "__init__" in vars(base)]
