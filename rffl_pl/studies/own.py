"""A user's own code and files that options name: what lies in them, not where."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

WHERE_DATA_LIES = {"data_dir", "num_workers"}
PUBLISHED = ("torch", "torchvision", "lightning", "torchmetrics")
_NAMES_FILES = ("file", "folder", "path", "dir", "root")
"""How options of the data end that name a file or folder; of others a value does that has a slash."""
_CLASS = re.compile(r"([A-Za-z_]\w*)(\.[A-Za-z_]\w*)+")


def digest_of(*parts: Any) -> str:
    """Of plain values; the order of keys does not count."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def named_in(words: Sequence[str]) -> list[str]:
    """Digests of a user's own classes, and files of the data, that words name; of the package's own there are none."""
    found = []
    for option, said in _leaves(words):
        name = option.rpartition(".")[2]
        in_data = option.startswith("data.") and name not in WHERE_DATA_LIES
        if in_data and (digest := file_digest(name, said)):
            found.append(digest)
        elif (kind := _CLASS.fullmatch(said)) and kind[1] not in ("rffl_pl", *PUBLISHED):
            with suppress(ImportError, ValueError):
                found.append(source_of(kind[1]))
    return [digest for digest in found if digest]


def _leaves(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every option and what words say of it, also in configurations of a user's own and in JSON."""
    option = ""
    for word in words:
        said = word
        if word.startswith("--"):
            option, _, said = word.removeprefix("--").partition("=")
            option = option.rstrip("+")
        if said.endswith((".yaml", ".yml")):
            if Path(said).is_file():
                yield from _within("", _read(Path(said).read_text()))
        elif said.startswith(("{", "[")):
            yield from _within(option, _read(said))
        elif said:
            yield option, said


def _read(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _within(option: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _within(f"{option}.{key}".lstrip("."), item)
    elif isinstance(value, list):
        for item in value:
            yield from _within(option, item)
    elif isinstance(value, str):
        yield option, value


def file_digest(option: str, said: str) -> str | None:
    """A digest of what lies in the file or folder that an option of the data names; None if it names none."""
    if "/" not in said and option.rpartition("_")[2] not in _NAMES_FILES:
        return None
    path = os.path.expanduser(said)  # which may be empty, or too long for any disk
    return listing(Path(path)) if os.path.isdir(path) else content_of(Path(path)) if os.path.isfile(path) else None


def source_of(name: str) -> str:
    """A digest of a user's module, or of a whole package, and of what they import from beside them."""
    found = importlib.util.find_spec(name)
    if found and found.submodule_search_locations:
        return _code_in(*found.submodule_search_locations)
    if not (found and found.origin and found.has_location):
        return ""
    from rffl_pl.runs.imports import beside  # torch comes with that room, which a table does without

    file = Path(found.origin)
    return _and(content_of(file), beside([file], file.parent))


@functools.cache
def _code_in(*folders: str) -> str:
    from rffl_pl.runs.imports import beside

    files = sorted((path.relative_to(folder), path) for folder in folders for path in Path(folder).rglob("*.py"))
    own = digest_of([(name.as_posix(), content_of(path)) for name, path in files])
    roots = sorted({Path(folder).parent for folder in folders})
    return _and(own, *(beside((path for _, path in files if path.is_relative_to(root)), root) for root in roots))


def _and(own: str, *others: Mapping[str, str]) -> str:
    """A digest of files and of others; without others it is their own, as results have it that were kept before."""
    return digest_of(own, *others) if any(others) else own


@functools.cache
def listing(folder: Path) -> str:
    """A digest of the names, sizes and times of a folder's files: reading all of them may take longer than a run.

    What libraries leave beside data, hidden files and caches, does not count.
    """
    lines = []
    for room, _, names in os.walk(folder, followlinks=True):
        for path in (Path(room, name) for name in names if not name.startswith((".", "cache-"))):
            if path.is_file():
                about = path.stat()
                lines.append(f"{path.relative_to(folder).as_posix()} {about.st_size} {about.st_mtime_ns}")
    return hashlib.sha256(os.fsencode("\n".join(sorted(lines)))).hexdigest()


def content_of(file: Path) -> str:
    """A digest of what lies in a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
