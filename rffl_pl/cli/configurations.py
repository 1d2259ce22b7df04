"""Configurations on a command line: which file is meant, and what none can say."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rffl_pl.cli.catalogue import configs
from rffl_pl.cli.help import TRAINING
from rffl_pl.errors import UserError, check_keys, nearest

GROUPS = ("federation", "model", "run", "standalone", "trainer")
"""Sections of a configuration that have options of their own, without a class to choose."""
_CHOSEN = ("adversaries", "data", "server")
"""Sections of a configuration that choose a class."""
_MOST_NODES = 1_000_000
"""Values of a configuration, written out."""


def config_file(given: str) -> str:
    """The file that ``--config`` means: the user's own, else the package's of that name.

    Raises:
        UserError: If there is neither, or it says no options.
    """
    known = configs()
    name, own = given.removeprefix("./").removeprefix("configs/"), os.path.expanduser(given)
    if os.path.isfile(own) or given.startswith("{"):
        _check_config(own)
        return own
    if name in known:
        return str(known[name])
    inside = os.path.join(given, "config.yaml")
    if os.path.isfile(os.path.expanduser(inside)):
        raise UserError(f"Expected --config to be a file, but got {given}, the folder of a run; give {inside}.")
    near = f"; did you mean {name}.yaml?" if f"{name}.yaml" in known else nearest(name, known, likeness=0.75) or "."
    said = given if given.isprintable() and given else repr(given)
    raise UserError(
        f"Expected --config to be a file or one of the package's, but got {said}{near} `rffl list configs` names all."
    )


def with_files(args: list[str]) -> list[str]:
    """The words of a command line with every configuration behind a ``--config``, and its file in place of its name.

    Raises:
        UserError: If one says what none can, or a group of options is given from something that is no YAML.
    """
    from rffl_pl.studies.study import in_full  # here: what is answered at once needs no YAML

    words = []
    for before, word in itertools.pairwise(["", *_apart(in_full(args))]):
        option, equals, value = word.partition("=")
        if equals and option.removeprefix("--") in GROUPS:
            _content(value, option)
        elif before.removeprefix("--") in GROUPS and before.startswith("--"):
            _content(word, before)
        words.append(config_file(word) if before == "--config" else word)
    return words


def _apart(args: Iterable[str]) -> Iterator[str]:
    """The words, with ``--config=FILE`` as two."""
    for word in args:
        option, equals, name = word.partition("=")
        yield from (option, name) if equals and option == "--config" else (word,)


def _check_config(given: str) -> None:
    """See that a file, or the text itself, says options.

    Raises:
        UserError: If not.
    """
    said, content = f"Expected --config {given} to name options", _content(given, "--config")
    if content is None:
        raise UserError(f"{said}, but it is empty; write some, or leave it out.")
    if not isinstance(content, dict):
        raise UserError(f"{said}, but it holds {type(content).__name__}.")
    if odd := [key for key in content if not isinstance(key, str)]:
        raise UserError(f"{said}, but got {odd[0]}, which is none; `rffl fit --help` lists them.")
    for command in TRAINING:
        if command in content:
            raise UserError(f"{said} as they are typed, but got {command}; write what stands below it without it.")
    if "config" in content:
        raise UserError(f"{said}, but got config; give --config several times, a later one overlays earlier ones.")
    _check_groups(content, given)
    _check_classes(content, given)


def _check_groups(content: dict[str, Any], given: str) -> None:
    """See that what has several options, or a class, has something below it."""
    for group in GROUPS:
        if not isinstance(content.get(group), dict | None):
            raise UserError(
                f"Expected {group} in --config {given} to have a name and a value each, but got {content[group]!r}."
            )
    for group in (*GROUPS, *_CHOSEN):
        if group in content and content[group] is None:  # which would undo what earlier ones say of it
            raise UserError(
                f"Expected {group} in --config {given} to have something below it, but it is empty; leave the line out."
            )


def _check_classes(content: Any, given: str) -> None:
    """See that no class has options that are none."""
    if isinstance(content, dict) and "init_args" in content and content["init_args"] is None:
        raise UserError(
            f"Expected init_args in --config {given} to have a name and a value each, but it is empty; leave the line "
            "out."
        )
    parts = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    for part in parts:
        _check_classes(part, given)


def text_of(given: str) -> str:
    """What a file says, or a text itself, which begins with a brace.

    Raises:
        OSError: If it cannot be read.
        UnicodeDecodeError: If it is no text.
    """
    return given if given.startswith("{") else Path(given).read_text(encoding="utf-8")


def _content(given: str, option: str) -> Any:
    """What a file, or a text of YAML, says, in which every key stands once; None of what is neither.

    Raises:
        UserError: If it is no YAML.
    """
    import yaml  # a list needs none

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if not given.startswith("{") and not os.path.isfile(given):
        return None
    try:
        text = text_of(given)
        document = yaml.compose(text, Loader=loader)
        if _size(document, {}) > _MOST_NODES:
            raise UserError(
                f"Expected {option} {given} to be a configuration, but its aliases make millions of values."
            )
        content = yaml.load(text, Loader=loader)
        repr(content)  # what is nested too deeply for that is so for the parser
        check_keys(document, f"{option} {given}")
    except UserError:
        raise
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"Expected {option} {given} to be YAML, but {' '.join(str(error).split())}.") from error
    return content


def _size(node: Any, known: dict[int, int]) -> int:
    """How many values a document has once its aliases are written out."""
    if id(node) not in known:
        inside = getattr(node, "value", None)
        parts = inside if isinstance(inside, list) else []
        children = [child for part in parts for child in (part if isinstance(part, tuple) else (part,))]
        known[id(node)] = 1 + sum(_size(child, known) for child in children)
    return known[id(node)]
