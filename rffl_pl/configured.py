"""Objects that remember what they were constructed with, so that a checkpoint can say how a run was trained."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from hashlib import sha256
from numbers import Integral, Real
from os import PathLike
from types import BuiltinFunctionType, FunctionType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from rffl_pl.errors import UserError, is_packaged, nearest, path_of

IMPLEMENTATIONS = ("fused", "foreach", "capturable")
"""Options of torch's optimizers that only say how their steps are computed."""
PUBLISHED = ("rffl_pl", "torch", "torchvision", "torchmetrics", "lightning")
"""Packages whose code is not a user's own: a class of theirs is known by its name."""


_LONGEST = 80


class Configured:
    """Remembers its constructor's arguments, defaults included, whichever subclass it is of.

    Raises:
        UserError: If an argument of the package's own is of another type, or no word that it may be: Python takes any.

    Attributes:
        arguments: The arguments by name, as they were given.
    """

    arguments: Mapping[str, Any]

    _group: ClassVar[str] = ""
    """Before the name of an argument as the command line has it, ``--server``."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        # Past torch.nn.Module, which takes no attribute before its own constructor has run.
        object.__setattr__(self, "arguments", _bound(cls.__init__, self, args, kwargs))
        kind: Any = cls  # which mypy takes for no key
        for name, plain in _plain(kind).items():
            if name in self.arguments and not plain.takes(self.arguments[name]):
                given = self.arguments[name]
                got = given if plain.words else repr(given)  # '0.5' is no number
                near = nearest(str(given), plain.words) or "."
                raise UserError(f"Expected {cls._option(name)} to be {plain}, but got {got}{near}")
        return self

    def __repr__(self) -> str:
        """The call that makes it, but for arguments at their defaults; long ones cut."""
        usual = inspect.signature(type(self).__init__).parameters
        plain = {name: repr(parameter.default) for name, parameter in usual.items()}
        given = {name: repr(value) for name, value in self.arguments.items()}
        told = (f"{name}={short(value)}" for name, value in given.items() if plain.get(name) != value)
        return f"{type(self).__name__}({', '.join(told)})"

    @classmethod
    def _option(cls, name: str) -> str:
        """The option that gives an argument, as messages name it."""
        return f"{cls._group}.{name}"

    def settings(self, prefix: str = "") -> dict[str, str]:
        """The class under ``prefix`` and below it arguments: plain values, tensors, and lists of configured ones.

        A single one among them is its class's to add. Of a user's own class other values that have words, too.
        """
        arguments = self.arguments if is_packaged(type(self)) else dict(_plainer(self.arguments))
        return {prefix: type(self).__name__} | {f"{prefix}.{key}": value for key, value in _flat(arguments)}


@dataclass(frozen=True)
class _Plain:
    """What an argument may be that is a plain value.

    Attributes:
        kinds: Of these types; nothing, too, where ``NoneType`` is one.
        words: Or one of these.
    """

    kinds: tuple[type, ...]
    words: tuple[str, ...]

    def __str__(self) -> str:
        named = [name for kind, name in _NAMES.items() if kind in self.kinds]
        several = "one of " if len(self.words) > 1 else ""
        return " or ".join([*named, *([several + ", ".join(self.words)] if self.words else [])])

    def takes(self, value: object) -> bool:
        """Whether a value is of one of the types, as the command line reads them."""
        if isinstance(value, bool):
            return bool in self.kinds
        whole, number = isinstance(value, Integral), isinstance(value, Real)
        return (
            (whole and int in self.kinds)
            or (number and float in self.kinds)
            or (isinstance(value, str | PathLike) and str in self.kinds)
            or (isinstance(value, str) and value in self.words)
            or (value is None and type(None) in self.kinds)
        )


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


@functools.cache
def _plain(cls: type) -> dict[str, _Plain]:
    """Arguments that the package's own constructors declare as plain values; a subclass may pass them on to these."""
    hints: dict[str, Any] = {}
    for kind in reversed(cls.__mro__):
        constructor = vars(kind).get("__init__")
        if constructor is not None:
            hints |= dict.fromkeys(inspect.signature(constructor).parameters, Any)
            hints |= get_type_hints(constructor) if is_packaged(kind) else {}
    found = {name: _of(hint) for name, hint in hints.items()}
    return {name: plain for name, plain in found.items() if plain is not None}


def _of(hint: Any) -> _Plain | None:
    """Which plain values a type hint allows; None where it allows anything else."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = tuple(part for part in parts if part in (*_NAMES, type(None)))
    choices = [part for part in parts if get_origin(part) is Literal]
    if len(kinds) + len(choices) < len(parts):
        return None
    return _Plain(kinds, tuple(word for part in choices for word in get_args(part)))


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
        elif isinstance(value, Mapping):
            yield from _flat({f"{name}.{key}": item for key, item in value.items()})
        elif hasattr(value, "tolist"):  # a tensor or an array
            yield name, short(str(value.tolist()))


def _plainer(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Arguments with words or parts in the place of values that have them: members, functions, sets, records."""
    for name, value in arguments.items():
        if isinstance(value, Enum | PathLike):
            yield name, str(value)
        elif isinstance(value, FunctionType | BuiltinFunctionType):
            yield name, path_of(value)
        elif isinstance(value, set | frozenset):
            yield name, sorted(map(str, value))  # in the same order in every process
        elif isinstance(value, functools.partial):
            yield from _plainer({name: value.func} | {f"{name}.{key}": item for key, item in value.keywords.items()})
        elif is_dataclass(value) and not isinstance(value, type | Configured):
            yield from _plainer({f"{name}.{key}": item for key, item in vars(value).items()})
        else:
            yield name, value


def short(text: str) -> str:
    """A text; a long one by its beginning and a digest, which tells it from others that begin so."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}... {sha256(text.encode()).hexdigest()[:8]}"
