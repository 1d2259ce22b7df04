"""A user's own code and files behind the options of runs: two versions of one name are two settings."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rffl_pl.comparison.options import values_of
from rffl_pl.comparison.reading import Result
from rffl_pl.files import content_of
from rffl_pl.runs.imports import code_of
from rffl_pl.studies.own import contained, digest_of, files_in, module_of, of_package

_MOST = 2**28
"""Bytes that are read of a file or of a folder's files: a third of a second's work."""


def own_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Digests of a user's own code and files that a configuration names, by the option as it is typed.

    The code is that of modules that are loaded, less what is installed. Of a file, and of a folder of data, counts
    whatever lies in it, beyond 256 MB names and sizes; never times, which copies have of their own.
    """
    values = values_of(config)
    published = of_package(str(values.get("--data")))
    found = {}
    for option, value in values.items():
        texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
        digests = [_file(option, text, published) or _code(text) for text in texts]
        if any(digests):
            found[option] = digest_of(digests)[:12]
    return found


def told_apart(results: Sequence[Result]) -> list[Result]:
    """The runs; where a value of an option stood for several versions of something, each with the version's digest."""
    versions: dict[tuple[str, str], set[str]] = {}
    for result in results:
        for option, version in (result.own or {}).items():
            versions.setdefault((option, result.options.get(option, "")), set()).add(version)
    return [_marked(result, versions) for result in results]


def _marked(result: Result, versions: Mapping[tuple[str, str], set[str]]) -> Result:
    own = result.own or {}
    marks = {
        option: f"{value} ({own[option]})"
        for option, value in result.options.items()
        if option in own and len(versions[option, value]) > 1
    }
    options = {**result.options, **marks}
    return replace(result, options=options, settings=result.settings if result.study else options)


def _code(text: str) -> str:
    """A digest of the code of a class or function of a user's own, if a value names one."""
    if module_of(text) is None:
        return ""
    parts = text.split(".")
    modules = (".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1))
    return next((code for module in modules if (code := code_of(module))), "")


def _file(option: str, text: str, published: bool) -> str:
    """A digest of what lies in the file that an option names, of the data also in the folder.

    Nothing where it cannot be read: participants may keep their files from who serves them.
    """
    try:
        return contained(option.removeprefix("--"), text, published, _within) or ""
    except OSError:
        return ""


def _within(path: Path) -> str:
    files = sorted(files_in(path)) if path.is_dir() else [path]
    few = sum(file.stat().st_size for file in files) <= _MOST
    inside = [content_of(file) if few else str(file.stat().st_size) for file in files]
    names = [file.relative_to(path).as_posix() for file in files]
    lines = [f"{name} {one}" for name, one in zip(names, inside, strict=True)]
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()
