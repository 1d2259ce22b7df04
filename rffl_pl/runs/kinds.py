"""Whether what was read from a file is of the kind that it is declared to be."""

from __future__ import annotations

from typing import Any, get_args, get_origin


def of_kind(value: Any, kind: Any) -> bool:
    """Whether JSON is of a type as a dataclass declares it: numbers, text, None, and lists and dictionaries of them.

    An int is a float too; True is neither.
    """
    inside = get_args(kind)
    if get_origin(kind) is list:
        return isinstance(value, list) and all(of_kind(entry, inside[0]) for entry in value)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(of_kind(entry, inside[1]) for entry in value.values())
    if inside:
        return any(of_kind(value, one) for one in inside)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
