"""What keeps a class of a user's own from being taken."""

from __future__ import annotations

import importlib
import pkgutil
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from jsonargparse import ArgumentError

from rffl_pl.errors import UserError, nearest, reason


@contextmanager
def own_files() -> Iterator[None]:
    """Where the parser imports files of a user's own: it lets through what some of them raise.

    Raises:
        UserError: If one does; what is no Python, and what the parser says itself, has sentences of its own.
    """
    try:
        yield
    except (ArgumentError, SyntaxError, UserError):
        raise
    except Exception as error:
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        if "import_object" not in names or "<module>" not in names:
            raise
        raise UserError(
            f"Expected your own classes to lie in files that can be imported, but {reason(error)}; mend it."
        ) from error


def no_class(option: str, path: str, what: str = "a class", kind: type = type) -> str | None:
    """The sentence on an import path that leads to no class; None if it does, or is no such path.

    Args:
        option: As it is typed.
        path: What was given.
        what: It was to lead to.
        kind: Of what may have been meant in its module.
    """
    why = _why_not(path, kind)
    return why and f"Expected {option} to be {what}, but got {path}, {why}{'' if why.endswith('?') else '.'}"


def not_whole(option: str, path: str) -> str | None:
    """The sentence on a class that has left out some of what it derives from; None of one that has all."""
    lacking = " and no ".join(sorted(getattr(pkgutil.resolve_name(path), "__abstractmethods__", ())))
    return (
        f"Expected {option} to be a class that can be made, but {path} has no {lacking}; write it." if lacking else None
    )


def _why_not(path: str, kind: type) -> str | None:
    """Why there is nothing at an import path, from "and" or "whose" on; None if there is, or no such path."""
    if "/" in path or path.endswith(".py"):
        name = path.rpartition("/")[2].removesuffix(".py").partition(".")[0]
        return f"which is a file; start in its folder and give {name}.MyClass, without .py"
    module, _, name = path.rpartition(".")
    if re.fullmatch(r"[A-Za-z_][\w.]*-[\w.-]*", module):
        return "whose module has a dash in its name, which no import path can have; give it another"
    if not re.fullmatch(r"[\w.]+", module) or module.startswith("."):
        return None
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            return f"and there is no module {error.name} in this folder or among the packages that are installed"
        return f"whose module cannot be imported, since there is no module {error.name}; install it"
    except Exception as error:
        return f"whose module cannot be imported: {reason(error)}; mend it"
    if hasattr(found, name):
        return None
    near = nearest(name, [known for known, value in vars(found).items() if isinstance(value, kind)])
    near = near.replace("did you mean ", f"did you mean {module}.")
    return f"and {module} has no {name}{near.replace(' or ', f' or {module}.')}"
