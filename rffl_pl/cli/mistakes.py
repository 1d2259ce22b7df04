"""One sentence for a user's mistake."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from types import ModuleType

import lightning.pytorch.callbacks
import torch
from jsonargparse import ArgumentError
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from rffl_pl.cli import catalogue
from rffl_pl.errors import UserError

# The classes that an option takes by name.
CLASSES: dict[str, Callable[[], Iterable[str]]] = {
    "server": lambda: catalogue.listed("servers"),
    "adversaries": lambda: catalogue.listed("adversaries"),
    "data": lambda: catalogue.listed("datamodules"),
    "data.split": lambda: catalogue.listed("splits"),
    "model.network": lambda: catalogue.listed("networks"),
    "model.optimizer": lambda: _public(torch.optim),
    "trainer.callbacks": lambda: _public(lightning.pytorch.callbacks),
}


def mistake_behind(error: BaseException) -> BaseException | None:
    """The user's mistake behind an exception, if there is one; the parser wraps what a constructor raises.

    EarlyStopping alone of Lightning's callbacks has no exception of its own for a metric that nobody logs.
    """
    if isinstance(error, UserError | ArgumentError | MisconfigurationException):
        return error
    if isinstance(error, RuntimeError) and str(error).startswith("Early stopping conditioned on metric"):
        return error
    return mistake_behind(error.__cause__) if error.__cause__ is not None else None


def sentence(error: BaseException) -> str:
    """A message in one line, without what the parser says of types that were not meant."""
    noise = ("Does not validate", "Subtypes:", "Errors:", "Given value", "Expected a <class 'NoneType'>")
    lines = (line.strip().removeprefix("- ") for line in str(error).splitlines())
    text = " ".join(line for line in lines if line and not line.startswith(noise))
    unknown = _unknown_class(str(error))
    if unknown:
        return unknown
    text = re.sub(r"- Does not validate.*|Does not validate against any of the Union subtypes", "", text).strip()
    if "is abstract" in text:
        text += "; name a class first, or put --config before the options that change it"
    return text


def _unknown_class(message: str) -> str | None:
    """What is said of a class that does not exist, with the nearest names of those that do."""
    key = ".".join(re.findall(r'Parser key "([\w.]+)"', message)).replace("init_args.", "")
    name = re.search(r"Expected a dot import path string: (\S+)|module '\S+' has no attribute '(\w+)'", message)
    if name is None or key not in CLASSES:
        return None
    given = name[1] or name[2]
    near = catalogue.nearest(given, CLASSES[key]())
    return (
        f"Expected --{key} to be a class, but got {given}{near}{' Give' if near else '; give'} one of this package "
        "or of torch and Lightning by its name, or your own as my_package.MyClass."
    )


def _public(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, type)]
