"""A user's own code and files that options name: what lies in them, not where."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import escape, glob
from pathlib import Path
from typing import Any

import yaml

from rffl_pl.configured import PUBLISHED
from rffl_pl.files import content_of

WHERE_DATA_LIES = {"data_dir", "num_workers"}
"""Options of the package's own data sets, which are published, that say where they lie and how they are read."""
_NAMES_FILES = ("file", "folder", "path")
"""How their other options end that name a file or folder; of the rest a value does that has a slash."""
_NO_FILES = ("run", "standalone", "config")
"""Groups of options whose values name nothing that a result depends on, or are read themselves."""
_PARTICIPANT = "{participant}"
"""Stands for a number, as in `rffl_pl.datamodules.labelled_file`, with which torch would come."""
_CLASS = re.compile(r"([A-Za-z_]\w*)(\.[A-Za-z_]\w*)+")


def digest_of(*parts: Any) -> str:
    """Of plain values, also dates as YAML has them; the order of keys does not count."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def named_in(words: Sequence[str]) -> list[str]:
    """Digests of a user's own classes and files that words name; of the package's own there are none."""
    return [digest for _, digest in _digests(words, path_digest)]


def own_in(words: Sequence[str], within: Callable[[Path], str] | None = None) -> dict[str, str]:
    """What words name of a user's own, each with its digest: as `named_in`, and configurations by what they say.

    Args:
        words: Of a command line.
        within: The digest of a file or folder, `path_digest` by default.
    """
    named = ((option, said) for option, said in _options(words) if _is_configuration(option, said))
    return {said: digest_of(_content(said)) for _, said in named} | dict(_digests(words, within or path_digest))


def changed(words: Sequence[str], before: Mapping[str, str]) -> list[str]:
    """Of what words named by `own_in` ``before`` that which is no longer the same, also in folders read meanwhile."""
    _listing.cache_clear()
    _code_in.cache_clear()
    try:
        now = own_in(words)
    except OSError as error:  # gone while it was read, or a module's file that was loaded before
        return [str(error.filename)]
    return [said for said, digest in before.items() if now.get(said) != digest]


def _digests(words: Sequence[str], within: Callable[[Path], str]) -> Iterator[tuple[str, str]]:
    """A user's own classes and files that words name, and the digest of each."""
    leaves = list(_leaves(words))
    data = [said for option, said in leaves if option in ("data", "data.class_path")]
    published = not data or of_package(data[-1])
    for option, said in leaves:
        if digest := contained(option, said, published, within) or code_behind(said):
            yield said, digest


def not_found(words: Sequence[str]) -> list[str]:
    """What words name of a user's own, a module or a file, and is not found from here."""
    leaves = list(_leaves(words))
    named = {module: said for _, said in leaves if not os.path.exists(said) and (module := module_of(said))}
    gone = [
        said for option, said in leaves if _is_for_a_file(option) and _read(said) and not contained(option, said, True)
    ]
    for module, said in named.items():
        with suppress(ImportError, ValueError):
            if importlib.util.find_spec(module) is None:
                gone.append(said)
    return gone


def _is_for_a_file(option: str) -> bool:
    """Whether an option of the data names a file or folder; a path may also be a data set's on a hub."""
    return option.startswith("data.") and option.rpartition(".")[2].rpartition("_")[2] in ("file", "folder")


def of_package(kind: str) -> bool:
    """Whether a class, given by its path or by its name, is the package's own."""
    return "." not in kind or kind.startswith("rffl_pl.")


def module_of(said: str) -> str | None:
    """The first module of what may be the path of a class or function of a user's own."""
    kind = _CLASS.fullmatch(said)
    return kind[1] if kind and kind[1] not in PUBLISHED else None


def _leaves(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every option and what words say of it, also in configurations of a user's own and in JSON."""
    for option, said in _options(words):
        group = "" if option == "config" else option
        if said.startswith(("{", "[")):
            yield from _within(group, _read(said))
        elif _is_configuration(option, said):
            yield from _within(group, _content(said))
        else:
            yield option, said


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every option with each word that is said of it."""
    option = ""
    for word in words:
        said = word
        if word.startswith("--"):
            option, _, said = word.removeprefix("--").partition("=")
            option = option.rstrip("+")
        if said:
            yield option, said


def _is_configuration(option: str, said: str) -> bool:
    """Whether it is the name of one, not its text."""
    return not said.startswith(("{", "[")) and (option == "config" or said.endswith((".yaml", ".yml")))


def _content(configuration: str) -> Any:
    """What a configuration of a user's own says; None of another."""
    path = os.path.expanduser(configuration)
    return _read(Path(path).read_text(encoding="utf-8", errors="replace")) if os.path.isfile(path) else None


@functools.cache
def _read(text: str) -> Any:
    """What YAML says, which many places of a study name; None of what is none. Nobody changes it."""
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


def path_digest(path: Path) -> str:
    """A digest of what lies in a file, or of a folder's `_listing`."""
    return _listing(path.resolve()) if path.is_dir() else content_of(path)


def contained(option: str, said: str, published: bool, within: Callable[[Path], str] = path_digest) -> str | None:
    """A digest of what lies in the file that an option names, of the data also in the folder; None if it names none.

    So may several files, where each participant has its own, ``train_{participant}.csv``. Into folders that other
    options name, a logger's say, runs may write.

    Args:
        option: With its group, ``data.init_args.train_file``.
        said: Its value, which may be empty, or too long for any disk.
        published: Whether the data set is one of the package's, of which is known what options name.
        within: The digest of a file or folder.
    """
    group, path = option.partition(".")[0], os.path.expanduser(said)
    if group == "data" and published:
        name = option.rpartition(".")[2]
        if name in WHERE_DATA_LIES or ("/" not in said and name.rpartition("_")[2] not in _NAMES_FILES):
            return None
    if group not in _NO_FILES and os.path.isfile(path):
        return within(Path(path))
    if group == "data" and _PARTICIPANT in path:
        return _of_participants(path, within)
    return within(Path(path)) if group == "data" and os.path.isdir(path) else None


def _of_participants(path: str, within: Callable[[Path], str]) -> str | None:
    """A digest of the files of all participants; None if there is none."""
    parts = path.split(_PARTICIPANT)
    found = sorted(file for file in glob("*".join(map(escape, parts))) if os.path.isfile(file))
    whose = {file[len(parts[0]) :]: within(Path(file)) for file in found}
    return digest_of(whose) if whose else None


def code_behind(said: str) -> str:
    """A digest of the code of what may be the path of a class or function of a user's own; empty of any other text."""
    with suppress(ImportError, ValueError):
        if module := module_of(said):
            return source_of(module)
    return ""


def source_of(name: str) -> str:
    """A digest of a user's module, or of a whole package, and of what they import from beside them."""
    found = importlib.util.find_spec(name)
    if found and found.submodule_search_locations:
        # A namespace has a folder once for each way in which Python looks there.
        return _code_in(*sorted({*map(os.path.realpath, found.submodule_search_locations)}))
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
    """A digest joined with those of other files; without others itself, as older results have it."""
    return digest_of(own, *others) if any(others) else own


@functools.cache
def _listing(folder: Path) -> str:
    """A digest of the names, sizes and times of a folder's files: reading all of them may take longer than a run."""
    lines = []
    for path in files_in(folder):
        about = path.stat()
        lines.append(f"{path.relative_to(folder).as_posix()} {about.st_size} {about.st_mtime_ns}")
    return hashlib.sha256(os.fsencode("\n".join(sorted(lines)))).hexdigest()


def files_in(folder: Path) -> Iterator[Path]:
    """A folder's files but for what libraries leave beside data, hidden files and caches."""
    for room, _, names in os.walk(folder, followlinks=True):
        yield from filter(Path.is_file, (Path(room, name) for name in names if not name.startswith((".", "cache-"))))
