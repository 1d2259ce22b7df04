"""One sentence for a user's mistake."""

from __future__ import annotations

import re

from jsonargparse import ArgumentError
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from rffl_pl.errors import UserError


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
    text = re.sub(r"- Does not validate.*|Does not validate against any of the Union subtypes", "", text).strip()
    if "is abstract" in text:
        text += "; name a class first, or put --config before the options that change it"
    if "dot import path" in text:
        text += "; give a class of this package by its name, or your own as my_package.MyClass"
    return text
