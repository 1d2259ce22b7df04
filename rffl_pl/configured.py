"""Objects that remember what they were constructed with, so that a checkpoint can say how a run was trained."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from rffl_pl.errors import UserError, nearest

IMPLEMENTATIONS = ("fused", "foreach", "capturable")
"""Options of torch's optimizers that only say how their steps are computed."""


class Configured:
    """Remembers its constructor's arguments, defaults included, whichever subclass it is of.

    Raises:
        UserError: If one that is a choice of words is another: Python takes any, and would train by another rule.

    Attributes:
        arguments: The arguments by name, as they were given.
    """

    arguments: Mapping[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        # Past torch.nn.Module, which takes no attribute before its own constructor has run.
        object.__setattr__(self, "arguments", _bound(cls.__init__, self, args, kwargs))
        kind: Any = cls  # which mypy takes for no key
        for name, choices in _choices(kind).items():
            given = self.arguments.get(name)
            if given is not None and given not in choices:
                raise UserError(
                    f"Expected {name} of {cls.__name__} to be one of {', '.join(choices)}, but got {given}"
                    f"{nearest(str(given), choices) or '.'}"
                )
        return self

    def settings(self, prefix: str = "") -> dict[str, str]:
        """The class under ``prefix`` and below it every argument that is a plain value or again configured."""
        return {prefix: type(self).__name__} | {f"{prefix}.{key}": value for key, value in _flat(self.arguments)}


@functools.cache
def _choices(cls: type) -> dict[str, list[str]]:
    """The arguments that are one of some words, or nothing, with these words.

    Those that a subclass passes on to its base count as the base has them.
    """
    hints: dict[str, Any] = {}
    for constructor in [vars(kind)["__init__"] for kind in reversed(cls.__mro__) if "__init__" in vars(kind)]:
        hints |= dict.fromkeys(inspect.signature(constructor).parameters) | _hints(constructor)
    return {name: words for name, hint in hints.items() if (words := _words(hint))}


def _hints(constructor: Callable[..., None]) -> dict[str, Any]:
    try:
        return get_type_hints(constructor)
    except (NameError, TypeError, AttributeError):  # a user's own, of what is imported for type checkers alone
        return {}


def _words(hint: Any) -> list[str]:
    """The words that a type consists of; none where it takes anything else but None."""
    parts = [*(get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,))]
    choices = [part for part in parts if part is not type(None)]
    if not all(get_origin(part) is Literal for part in choices):
        return []
    return [word for part in choices for word in get_args(part)]


def _bound(
    constructor: Callable[..., None], self: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The named arguments of a call, also those that go on to a base class as ``**kwargs``.

    None of a call that the constructor itself will refuse.
    """
    signature = inspect.signature(constructor)
    try:
        # Partial: `copy` and `pickle` call without arguments and bring the attribute themselves.
        bound = signature.bind_partial(self, *args, **kwargs)
    except TypeError:
        return {}
    bound.apply_defaults()
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = {name: value for name, value in bound.arguments.items() if kinds[name] not in various}
    named.pop(next(iter(kinds)), None)
    passed_on = [bound.arguments[name] for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD]
    return named | {name: value for several in passed_on for name, value in several.items()}


def _flat(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in arguments.items():
        if value is None or isinstance(value, str | int | float | bool):
            yield name, str(value)
        elif isinstance(value, list | tuple) and value and all(isinstance(item, Configured) for item in value):
            for index, item in enumerate(value):
                yield from item.settings(f"{name}.{index}").items()
        elif isinstance(value, list | tuple):
            yield name, str(list(value))
