"""One sentence for a user's mistake."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from types import ModuleType

import lightning.pytorch.callbacks
import torch
from jsonargparse import ArgumentError
from lightning.pytorch import Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from rffl_pl.callbacks import StandaloneReference
from rffl_pl.cli import catalogue
from rffl_pl.cli.login import wandb_url
from rffl_pl.cli.run import Run
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.module import FederatedModule

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


# The groups of options that belong to one class.
GROUPS: dict[str, type] = {
    "federation": Federation,
    "model": FederatedModule,
    "run": Run,
    "standalone": StandaloneReference,
    "trainer": Trainer,
}


def mistake_behind(error: BaseException) -> BaseException | None:
    """The user's mistake behind an exception, if there is one; the parser wraps what a constructor raises.

    EarlyStopping alone of Lightning's callbacks has no exception of its own for a metric that nobody logs, and its
    TensorBoardLogger none for a package that is not there.
    """
    if isinstance(error, UserError | ArgumentError | MisconfigurationException):
        return error
    if isinstance(error, ModuleNotFoundError) and "tensorboard" in str(error):
        return error
    if _of_wandb(error):
        return error
    if isinstance(error, RuntimeError) and str(error).startswith("Early stopping conditioned on metric"):
        return error
    return mistake_behind(error.__cause__) if error.__cause__ is not None else None


def sentence(error: BaseException) -> str:
    """A message in one line, without what the parser says of types that were not meant."""
    noise = ("Does not validate", "Subtypes:", "Errors:", "Given value", "Expected a <class 'NoneType'>")
    lines = (line.strip().removeprefix("- ") for line in str(error).splitlines())
    text = " ".join(line for line in lines if line and not line.startswith(noise))
    if _of_wandb(error):
        return (
            f"Expected W&B at {wandb_url()} to take this run, but got: {text}; give WANDB_MODE=offline to upload it "
            "later, or --run.wandb false."
        )
    ours = _unknown_class(str(error)) or _no_choice(str(error)) or _left_out(str(error))
    if ours:
        return ours
    text += _nearest_option(str(error))
    text = re.sub(r"- Does not validate.*|Does not validate against any of the Union subtypes", "", text).strip()
    if "is abstract" in text:
        text += "; name a class first, or put --config before the options that change it"
    return text


def _of_wandb(error: BaseException) -> bool:
    """Whether W&B cannot be reached or refuses; not by its class, which takes a second to import."""
    return type(error).__module__.startswith("wandb.errors")


def _unknown_class(message: str) -> str | None:
    """What is said of a class that does not exist, with the nearest names of those that do."""
    key = _key(message)
    name = re.search(r"Expected a dot import path string: (\S+)|module '\S+' has no attribute '(\w+)'", message)
    if name is None or key not in CLASSES:
        return None
    given = name[1] or name[2]
    near = catalogue.nearest(given, CLASSES[key]())
    return (
        f"Expected --{key} to be a class, but got {given}{near}{' Give' if near else '; give'} one of this package "
        "or of torch and Lightning by its name, or your own as my_package.MyClass."
    )


def _no_choice(message: str) -> str | None:
    """What is said of a value that is none of those that an option takes."""
    found = re.search(r"Expected a typing\.Literal\[(.+)\]\. Got value: (.+)", message)
    if found is None:
        return None
    choices = found[1].replace("'", "").split(", ")
    near = catalogue.nearest(found[2], choices) or "."
    return f"Expected --{_key(message)} to be one of {', '.join(choices)}, but got {found[2]}{near}"


def _left_out(message: str) -> str | None:
    """What is said where a class is named, but not what it needs."""
    found = re.search(r"class_path '[\w.]*?(\w+)':\s+the following arguments are required: (.+)", message)
    if found is None:
        return None
    key = _key(message)
    options = " and ".join(f"--{key}.{name}" for name in found[2].split(", "))
    return f"Expected {options}, which {found[1]} needs, but got none; see `rffl fit --{key}.help {found[1]}`."


def _key(message: str) -> str:
    """The option that the parser speaks of, as it is typed."""
    return ".".join(re.findall(r'Parser key "([\w.]+)"', message)).replace("init_args.", "")


def _nearest_option(message: str) -> str:
    """What is added to what the parser says of an option that does not exist: the nearest that does."""
    option = re.search(r"Option '(\w+)' is not accepted", message)
    of_class = re.search(r"class_path[ =]'([\w.]+)\.(\w+)'", message)
    if option is not None and of_class is not None:
        return catalogue.nearest(option[1], _options(getattr(importlib.import_module(of_class[1]), of_class[2])))
    alone = re.search(r"unrecognized arguments: (--(\w+)\.\w+)", message)
    if alone is not None and alone[2] in GROUPS:
        known = [f"--{alone[2]}.{name}" for name in _options(GROUPS[alone[2]])]
        return catalogue.nearest(alone[1], known, likeness=0.85)
    return ""


def _options(kind: type) -> list[str]:
    """The arguments of a class and of what it passes others on to."""
    constructors = (vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base))
    return [name for made in constructors for name in inspect.signature(made).parameters if name != "self"]


def _public(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, type)]
