"""What a user's files import from beside them, read without running them."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rffl_pl.files import content_of

_OURS = "rffl_pl"
_INSTALLED = ("site-packages", "dist-packages")
_STANDARD = Path(os.__file__).parent


def beside(files: Iterable[Path], folder: Path) -> dict[str, str]:
    """Digests of what files import from the folder that imports begin in, and of what that imports from there.

    Imports count wherever they stand in a file. Nothing lies beside what is installed but what is installed too.

    Args:
        files: The files, which are not among the digests.
        folder: Of their topmost package, or of files that are in none.

    Returns:
        By the file's name below the folder, in their order.
    """
    if _installed(folder):
        return {}
    own = set(files)
    seen, left = set(own), list(own)
    while left:
        found = _imported(left.pop(), folder) - seen
        seen |= found
        left += found
    return {file.relative_to(folder).as_posix(): content_of(file) for file in sorted(seen - own)}


def imported_by(module: str) -> dict[str, str]:
    """`beside` of a module that is loaded; empty in a shell, or where its file is none or is gone."""
    file = file_of(module)
    return {} if file is None else beside([file], _root(module, file))


def code_of(module: str) -> str:
    """A digest of the file of a module that is loaded and of what it imports from beside it.

    Empty of what is installed, of a shell, and where the file is none or is gone.
    """
    file = file_of(module)
    if file is None or _installed(_root(module, file)):
        return ""
    return hashlib.sha256(json.dumps([content_of(file), imported_by(module)]).encode()).hexdigest()


def file_of(module: str) -> Path | None:
    """Where a module that is loaded was read from, if it is still there."""
    file = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    return file if file.is_file() else None


def _root(module: str, file: Path) -> Path:
    """The folder that a module's imports begin in."""
    depth = module.count(".") + (file.name == "__init__.py")
    return file.parents[min(depth, len(file.parents) - 1)]


def _installed(folder: Path) -> bool:
    return folder.name in _INSTALLED or folder == _STANDARD


def _imported(file: Path, folder: Path) -> set[Path]:
    package = file.relative_to(folder).parts[:-1]
    return {found for parts in _names(file.read_bytes(), package) for found in _files(folder, parts)}


@functools.cache
def _names(code: bytes, package: tuple[str, ...]) -> frozenset[tuple[str, ...]]:
    """What code in a package imports, by full names, less what is ours; of what is no Python nothing is known.

    Whether ``b`` in ``from a import b`` is a module is for the files to say.
    """
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    names = {tuple(alias.name.split(".")) for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            module = (*parents, *(node.module.split(".") if node.module else ()))
            names |= {(*module, alias.name) for alias in node.names}
    return frozenset(name for name in names if name[0] != _OURS)


def _files(folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    """The files of a module and of the packages that it is in, as far as there are any."""
    for length in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:length])
        yield from filter(Path.is_file, (place.with_suffix(".py"), place / "__init__.py"))
