"""How the package and a user's own classes are written, by which it is known whether they are still the same."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FunctionType

from rffl_pl.errors import path_of
from rffl_pl.files import content_of
from rffl_pl.runs.imports import imported_by

_RELEASED = ("torch", "torchvision", "rffl_pl", "builtins")
"""Not lightning, as in `PUBLISHED`: its base of all data modules is told of, by which references are kept."""


_PACKAGE = Path(__file__).parent.parent
_OF_NO_RESULT = ("cli", "comparison", "dashboard", "paper", "studies")


@functools.cache
def code(*beside: str) -> str:
    """A digest of the package's code, but for the rooms that no result depends on, and others beside them."""
    files = sorted(path.relative_to(_PACKAGE) for path in _PACKAGE.rglob("*.py"))
    matter = [path for path in files if path.parts[0] not in (*_OF_NO_RESULT, *beside)]
    text = "".join(f"{path.as_posix()} {content_of(_PACKAGE / path)}\n" for path in matter)
    return hashlib.sha256(text.encode()).hexdigest()


def sources(kinds: Iterable[type]) -> dict[str, str]:
    """Digests of how a user's own classes are written, by name, their bases and what they import among them."""
    own = {base for kind in kinds for base in kind.__mro__ if base.__module__.partition(".")[0] not in _RELEASED}
    written = {path_of(kind): _source(kind) + _helpers(kind) for kind in sorted(own, key=path_of)}
    return {name: hashlib.sha256(source.encode()).hexdigest()[:12] for name, source in written.items()}


def _source(kind: type) -> str:
    """The file that a class is in, whose functions it may call; else its own lines; else, in a shell, what it runs."""
    for written in (inspect.getmodule(kind), kind):
        try:
            return inspect.getsource(written)  # type: ignore[arg-type]  # of None it raises what it does of shells
        except (OSError, TypeError):
            continue
    functions = [function for value in vars(kind).values() if (function := _function(value)) is not None]
    return path_of(kind) + "".join(_compiled(function, set()) for function in functions)


def _function(value: object) -> FunctionType | None:
    """The function behind a method or a property."""
    inner = getattr(value, "fget", None) or getattr(value, "__func__", value)
    return inner if isinstance(inner, FunctionType) else None


def _compiled(function: FunctionType, seen: set[FunctionType]) -> str:
    """What a function runs, and those of the same shell that it calls by name."""
    if function in seen:
        return ""
    seen.add(function)
    called = [function.__globals__.get(name) for name in _names(function.__code__)]
    near = [one for one in called if isinstance(one, FunctionType) and one.__module__ == function.__module__]
    return _told(function.__code__) + repr(function.__defaults__) + "".join(_compiled(one, seen) for one in near)


def _names(code: CodeType) -> list[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return [*code.co_names, *(name for each in inner for name in _names(each))]


def _told(code: CodeType) -> str:
    """Instructions, names and constants: the same in every process."""
    consts = (
        _told(const)
        if isinstance(const, CodeType)
        else repr(sorted(map(repr, const)))
        if isinstance(const, frozenset)
        else repr(const)
        for const in code.co_consts
    )
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {[*consts]}"


def _helpers(kind: type) -> str:
    """What a class's file imports from beside it."""
    found = imported_by(kind.__module__)
    return json.dumps(found) if found else ""
