"""Names of classes and columns, as a user gives them."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import normalize

import yaml

from rffl_pl.errors import UserError


def given_classes(names: Sequence[str | int | float | bool] | None) -> tuple[str, ...] | None:
    """The names in ``--data.classes``; None where none are given.

    Raises:
        UserError: If there are fewer than two, or one twice, or one that YAML has taken for something else.
    """
    if names is None:
        return None
    if isinstance(names, str):
        raise UserError(
            f"Expected --data.classes to be a list of names, but got {names}; give for instance [cat, dog]."
        )
    taken = [name for name in names if isinstance(name, bool | float)]
    if taken:
        raise UserError(
            f"Expected --data.classes to be texts or whole numbers, but YAML reads one as {taken[0]}; quote it, as in "
            "\"['yes', 'no']\"."
        )
    found = tuple(normalize("NFC", str(name).strip()) for name in names)
    if len(found) < 2 or len({*found}) < len(found) or "" in found:
        raise UserError(
            f"Expected --data.classes to be two names or more that differ, but got {', '.join(found) or 'none'}; give "
            "for instance '[cat, dog]'."
        )
    return found


def column_name(name: str) -> str:
    """The name of a column, in one way to write its characters (NFC), as files are read."""
    return normalize("NFC", str(name))


def column_names(option: str, names: Sequence[str | int | float | bool] | str | None) -> list[str]:
    """The columns that an option names, one or several; none where it is not given.

    Raises:
        UserError: If one is there twice, or YAML has taken it for something else.
    """
    given = [names] if isinstance(names, str) else list(names or ())
    taken = [name for name in given if isinstance(name, bool | float)]
    if taken:
        raise UserError(
            f"Expected {option} to be names of columns, but YAML reads one as {taken[0]}; quote it, as in "
            "\"['yes', '1.5']\"."
        )
    found = [column_name(str(name)) for name in given]
    check_once(option, found)
    return found


def check_once(option: str, names: Sequence[str]) -> None:
    """See that columns are different ones.

    Raises:
        UserError: If one is there twice.
    """
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"Expected {option} to name every column once, but got {twice[0]} twice; leave one out.")


def listed(name: str) -> str:
    """A list of one name as it is typed, in quotes where YAML would take it for something else."""
    try:
        plain = yaml.safe_load(f"[{name}]") == [name]
    except yaml.YAMLError:
        plain = False
    return f"'[{name}]'" if plain else "\"['{}']\"".format(name.replace("'", "''"))
