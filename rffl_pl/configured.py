"""Objects that remember what they were constructed with, so that a checkpoint can say how a run was trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

IMPLEMENTATIONS = ("fused", "foreach", "capturable")
"""Options of torch's optimizers that only say how their steps are computed."""


class Configured:
    """Remembers its constructor's arguments, defaults included, whichever subclass it is of.

    Attributes:
        arguments: The arguments by name, as they were given.
    """

    arguments: Mapping[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        # Past torch.nn.Module, which takes no attribute before its own constructor has run.
        object.__setattr__(self, "arguments", _bound(cls.__init__, self, args, kwargs))
        return self

    def settings(self, prefix: str = "") -> dict[str, str]:
        """The class under ``prefix`` and below it every argument that is a plain value or again configured."""
        return {prefix: type(self).__name__} | {f"{prefix}.{key}": value for key, value in _flat(self.arguments)}


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
