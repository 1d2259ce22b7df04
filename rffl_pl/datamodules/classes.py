"""How many classes there are and what they are called, as a data set's own code says."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from rffl_pl.datamodules.preparing import called
from rffl_pl.errors import UserError


def take_number_of_classes(data: Any) -> None:
    """Have a data module's ``num_classes`` be a number of Python's, also where NumPy or torch counted the classes.

    Raises:
        UserError: If it fails, or is no whole number from 1 on.
    """
    given = called(lambda: getattr(data, "num_classes", None), f"{type(data).__name__} to say its number of classes")
    said = f"Expected {type(data).__name__} to say its number of classes, but got"
    try:
        classes = int(operator.index(given))  # type: ignore[arg-type]  # what has none is told so
        if type(given) is not int:
            data.num_classes = classes
    except (TypeError, AttributeError) as error:  # no whole number, or a property that gives none of Python's
        got = given if given is None else f"one of type {type(given).__name__}"
        raise UserError(f"{said} {got}; set num_classes in the class to an int.") from error
    if classes < 1:
        raise UserError(f"{said} {classes}; set num_classes in the class.")


def check_names_of_classes(data: Any) -> None:
    """See that each of a data module's classes has a name of its own, if they have any.

    Raises:
        UserError: If ``class_names`` is no list of so many different texts.
    """
    names = called(lambda: data.class_names, f"{type(data).__name__} to say what its classes are called")
    listed = isinstance(names, Sequence) and not isinstance(names, str)
    if not listed or not all(isinstance(name, str) for name in names):
        got = f"{names!r}"
    elif names and len(names) != data.num_classes:
        got = f"{len(names)} names"
    elif len(set(names)) < len(names):
        got = f"{next(name for name in names if names.count(name) > 1)} twice"
    else:
        return
    raise UserError(
        f"Expected class_names of {type(data).__name__} to be a list of {data.num_classes} different texts, one for "
        f"each class, or empty, but got {got}."
    )
