"""Classes by the names that the user gives."""

from __future__ import annotations

from collections.abc import Sequence

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
    found = tuple(str(name).strip() for name in names)
    if len(found) < 2 or len({*found}) < len(found) or "" in found:
        raise UserError(
            f"Expected --data.classes to be two names or more that differ, but got {', '.join(found) or 'none'}; give "
            "for instance '[cat, dog]'."
        )
    return found
