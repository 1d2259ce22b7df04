"""The file of a study: a base, axes, seeds, and what to leave out."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import yaml

from rffl_pl.errors import UserError, check_keys, nearest, words_of
from rffl_pl.federation import coalition_name

KEYS = ("name", "base", "reduced", "players", "axes", "also", "seeds", "exclude", "curves")
COLUMNS = (
    "seed", "rounds", "participant", "role", "measure", "value", "settings", "cell", "seconds", "rffl_pl", "torch",
    "python", "machine", "commit",
)  # fmt: skip
"""Columns of the results beside ``study`` and one for every axis."""
CURVE_COLUMNS = ("seed", "rounds", "round", "participant", "role", "measure", "value", "settings", "cell")
"""Columns of the results of every round, beside ``study`` and one for every axis."""
TABLE_COLUMNS = ("measure", "mean", "half_width_95_student_t", "seeds", "rounds", "d_z")
"""Columns of a table in CSV, beside one for every axis."""
TUNED = "tuned"
"""One more column of a table in CSV where labels are chosen."""
_TAKEN = ("study", *COLUMNS, *CURVE_COLUMNS, *TABLE_COLUMNS, TUNED)
"""Names that no axis can have."""
OURS = ("--run.name", "--run.root", "--seed_everything", "--ckpt_path")
COALITION = "coalition"
"""The axis of every group of the players."""
_MOST_PLAYERS = 12  # 4,096 coalitions
_MOST_NAMED = 24  # labels in a message
_LONGEST = 200  # characters of a name, of which a folder may have 255
_TOLD = ("--help", "--print_config")
"""What ``rffl fit`` answers with a text instead of a run; a part of either is enough for it."""

Place = dict[str, str]
"""A label on every axis."""
RunWords = Callable[[list[str]], None]
"""Runs the words of one command line, as ``rffl`` does."""


class _AsWritten(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """YAML whose values are the text that was written, or nothing: the label ``on`` is not True, ``0.10`` not 0.1."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in known if tag.endswith((":null", ":merge"))]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are text."""
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge"):
                key.tag = "tag:yaml.org,2002:str"
        return dict(super().construct_mapping(node, deep))


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a study is made of; words are those of ``rffl fit``.

    Attributes:
        name: The name of its folder.
        base: Words of every cell.
        reduced: Words that make the study small, behind the base's where that is asked for.
        axes: By axis and label the words that come behind the base's, in the order of the axes.
        also: Words that come last at some places: labels by axis, and the words.
        seeds: Of every place on the axes there is a cell with each of these.
        exclude: Places that are left out: labels by axis, of all axes that are named.
        curves: Measures of which the results keep every round.
        players: How many participants, adversaries too, there is every group of, on an axis of their own.
    """

    name: str
    base: list[str]
    axes: dict[str, dict[str, list[str]]]
    seeds: list[int]
    reduced: list[str] = field(default_factory=list)
    also: list[tuple[dict[str, list[str]], list[str]]] = field(default_factory=list)
    exclude: list[dict[str, list[str]]] = field(default_factory=list)
    curves: list[str] = field(default_factory=list)
    players: int = 0

    @classmethod
    def read(cls, path: Path) -> Study:
        """Read a study's file.

        Raises:
            UserError: If it says no study.
        """
        try:
            text = path.read_text(encoding="utf-8")
            check_keys(yaml.compose(text, _AsWritten), str(path))
            content = yaml.load(text, _AsWritten)
        except UserError:
            raise
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
            reason = words_of(error)
            raise UserError(f"Expected {path} to be the YAML file of a study, but {reason}.") from error
        if not isinstance(content, dict):
            raise UserError(
                f"Expected {path} to have the key axes at least, of the keys {', '.join(KEYS)}, but it has none."
            )
        for key in content:
            _check_known(str(key), KEYS, f"a key of {path}")
        return cls._of(path, content)

    @classmethod
    def _of(cls, path: Path, content: Mapping[str, Any]) -> Study:
        name = str(content.get("name", path.stem) or "")
        if not re.fullmatch(rf"\w[\w.-]{{0,{_LONGEST - 1}}}", name):
            raise UserError(
                f"Expected name to be letters, digits, dots and dashes, at most {_LONGEST}, a folder's name, but got "
                f"{name!r}."
            )
        if name == "cells":
            raise UserError("Expected another name of the study than cells: the folder of all cells is called so.")
        players = _players(content)
        named = _mapping(content.get("axes"), f"axes of {path}", _AXES) if "axes" in content or not players else {}
        axes = {
            str(axis): {str(label): _words(words, f"axes.{axis}.{label}") for label, words in labels.items()}
            for axis, labels in named.items()
            if _mapping(labels, f"axes.{axis}", _LABELS)
        }
        if odd := [axis for axis in axes if not axis or "=" in axis]:
            raise UserError(f"Expected axes to have names, without = as in --only AXIS=LABEL, but got {odd[0]!r}.")
        if unnamed := [axis for axis, labels in axes.items() if "" in labels]:
            raise UserError(f"Expected every label of the axis {unnamed[0]} to have a name, but one is empty; name it.")
        if broken := [name for axis, labels in axes.items() for name in (axis, *labels) if not name.isprintable()]:
            raise UserError(f"Expected axes and labels to be words of one line, but got {broken[0]!r}; name it so.")
        taken = [axis for axis in axes if axis in (*_TAKEN, *[COALITION] * bool(players))]
        if taken:
            raise UserError(f"Expected another name for the axis {taken[0]}: the results have a column of that name.")
        base, reduced = _words(content.get("base"), "base"), _words(content.get("reduced"), "reduced")
        axes |= {COALITION: _coalitions(players)} if players else {}
        study = cls(name=name, base=base, reduced=reduced, axes=axes, seeds=[], players=players)
        return replace(
            study,
            seeds=checked_seeds([_number(seed) for seed in _list(content.get("seeds", ["1"]), "seeds")]),
            also=[study._added(entry) for entry in _list(content.get("also", []), "also")],
            exclude=[study._left_out(entry) for entry in _list(content.get("exclude", []), "exclude")],
            curves=[str(measure) for measure in _list(content.get("curves", []), "curves")],
        )

    def _added(self, entry: Any) -> tuple[dict[str, list[str]], list[str]]:
        """One entry of ``also``: where, and which words."""
        where = dict(_mapping(entry, "every entry of also"))
        words = _words(where.pop("words", None), "also.words")
        if not words:
            raise UserError(f"Expected every entry of also to have the key words, but got {entry!r}; say what it adds.")
        return self._named(where, "also"), words

    def _left_out(self, entry: Any) -> dict[str, list[str]]:
        """One entry of ``exclude``."""
        where = self._named(entry, "exclude")
        if self.players and COALITION in where:
            raise UserError(
                "Expected exclude to leave out no coalition of a study with players, which needs every one, but got "
                f"{', '.join(where[COALITION])}; take it out."
            )
        return where

    def _named(self, entry: Any, key: str) -> dict[str, list[str]]:
        """Labels by axis of one entry of ``exclude`` or ``also``; an axis has one label or a list of them."""
        named = _mapping(entry, f"every entry of {key}")
        labels = {str(axis): label if isinstance(label, list) else [label] for axis, label in named.items()}
        if nothing := [axis for axis, given in labels.items() if not given]:
            raise UserError(f"Expected {key} to name a label of the axis {nothing[0]}, but got none; name one or more.")
        return {axis: [self.known_label(axis, str(label), key) for label in given] for axis, given in labels.items()}

    def known_label(self, axis: str, label: str, what: str) -> str:
        """The label, if the axis has it.

        Args:
            axis: An axis, or what was given for one.
            label: What was given for a label.
            what: The option or key that names them.

        Raises:
            UserError: If there is no such axis or label.
        """
        _check_known(axis, self.axes, f"{what} to name an axis of {self.name}")
        if self.players and axis == COALITION and re.fullmatch(r"\d+(\+\d+)*", label):
            label = coalition_name([*{int(player) for player in label.split("+")}])
        _check_known(label, self.axes[axis], f"{what} to name a label of the axis {axis}")
        return label

    def only(self, given: Sequence[str], option: str = "--only") -> dict[str, set[str]]:
        """What ``--only AXIS=LABEL`` leaves: labels by axis.

        Args:
            given: The words behind the option.
            option: The option.

        Raises:
            UserError: If there is no such axis or label.
        """
        chosen: dict[str, set[str]] = {}
        for word in given:
            axis, equals, label = word.partition("=")
            if not equals:
                raise UserError(f"Expected {option} to be AXIS=LABEL, but got {word}.")
            chosen.setdefault(axis, set()).add(self.known_label(axis, label, option))
        return chosen

    def places(self, only: Mapping[str, Iterable[str]] = MappingProxyType({})) -> list[Place]:
        """Every place on the axes that is not left out.

        Args:
            only: Labels by axis to which they are narrowed.

        Raises:
            UserError: If ``exclude`` leaves none at all.
        """
        every = map(self.place, itertools.product(*self.axes.values()))
        left = [place for place in every if not self.excludes(place)]
        if not left:
            raise UserError(f"Expected exclude to leave a cell of {self.name}, but it leaves none.")
        return [place for place in left if lies_in(place, only)]

    def place(self, labels: Sequence[str]) -> Place:
        """The place with these labels, one of every axis in their order."""
        return dict(zip(self.axes, labels, strict=True))

    def excludes(self, place: Place) -> bool:
        """Whether a place is left out."""
        return any(lies_in(place, out) for out in self.exclude)

    def words(self, place: Place) -> list[str]:
        """The words of ``rffl fit`` at a place, without a seed."""
        of_axes = (word for axis, label in place.items() for word in self.axes[axis][label])
        added = (word for where, words in self.also if lies_in(place, where) for word in words)
        return [*self.base, *of_axes, *added]

    def small(self) -> Study:
        """The study as its ``reduced`` makes it, with a name of its own.

        Raises:
            UserError: If its file does not say how.
        """
        if not self.reduced:
            raise UserError(f"Expected the study {self.name} to have the key reduced for --reduced, but it has none.")
        return replace(self, name=f"{self.name}-reduced", base=[*self.base, *self.reduced], reduced=[])


def lies_in(place: Mapping[str, str], named: Mapping[str, Iterable[str]]) -> bool:
    """Whether a place has one of the labels on every axis that is named."""
    return all(place[axis] in labels for axis, labels in named.items())


def place_text(place: Mapping[str, str]) -> str:
    """``server=RFFL split=UNI``."""
    return " ".join(f"{axis}={label}" for axis, label in place.items())


def checked_seeds(seeds: Sequence[Any]) -> list[int]:
    """Seeds, each a whole number and none twice.

    Raises:
        UserError: If not.
    """
    whole = all(isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32 for seed in seeds)
    if not whole or not seeds or len(set(seeds)) < len(seeds):
        raise UserError(f"Expected seeds to be different whole numbers in 0 .. {2**32 - 1}, but got {list(seeds)}.")
    return list(seeds)


def _players(content: Mapping[str, Any]) -> int:
    players = _number(content.get("players", "0"))
    if "players" in content and not (isinstance(players, int) and 1 <= players <= _MOST_PLAYERS):
        raise UserError(
            f"Expected players to be a number of participants in 1 .. {_MOST_PLAYERS}, since each more doubles the "
            f"runs, but got {players!r}."
        )
    return int(players)


def _coalitions(players: int) -> dict[str, list[str]]:
    """By label the words of every group of the players, from nobody to all: ``0+2`` is of participants 0 and 2."""
    groups = (group for size in range(players + 1) for group in itertools.combinations(range(players), size))
    return {coalition_name(group): ["--federation.coalition", str([*group])] for group in groups}


def _check_known(name: str, known: Iterable[str], what: str) -> None:
    known = list(known)
    if name not in known:
        some = ", ".join(known if len(known) <= _MOST_NAMED else [*known[:3], "...", known[-1]])
        raise UserError(f"Expected {what} ({some}), but got {name}{nearest(name, known) or '.'}")


_LABELS = "labels with the words of each, as {RFFL: --server RFFL}"
_AXES = "names with labels, as {server: {RFFL: --server RFFL}}"


def _mapping(value: Any, what: str, kind: str = "a name and a value each") -> dict[Any, Any]:
    if not isinstance(value, dict) or not value:
        raise UserError(f"Expected {what} to have {kind}, but got {'none' if value is None else repr(value)}.")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise UserError(f"Expected {what} to be a list, but got {value!r}.")
    return value


def _number(written: Any) -> Any:
    """A whole number, or what was written instead of one."""
    return int(written) if isinstance(written, str) and written.isdecimal() else written


def _words(value: Any, what: str) -> list[str]:
    """The words of a command line, none of them the study's own to say."""
    if not isinstance(value, str | None):
        raise UserError(f"Expected {what} to be words of a command line, as --data.split UNI, but got {value!r}.")
    try:
        split = shlex.split(value or "")
    except ValueError as error:
        raise UserError(f"Expected {what} to be words of a command line, but got {value!r}: {error}.") from error
    words = [*in_full(split)]
    if words and words[0] in ("fit", "rffl"):
        raise UserError(f"Expected {what} to be the words behind rffl fit, but got {words[0]} at their beginning.")
    for word in words:
        option = word.partition("=")[0]
        if option == "--ranks":
            raise UserError(f"Expected {what} without --ranks, since every cell has one; for several at a time --jobs.")
        if option in OURS:
            raise UserError(f"Expected {what} to leave {word} to the study: seeds have a key, folders are its own.")
        if _only_tells(option):
            raise UserError(f"Expected {what} to be words of a run, but {word} prints a text instead; remove it.")
    return words


def in_full(words: Iterable[str]) -> Iterator[str]:
    """With ``--config FILE`` for ``-c FILE``, ``-cFILE`` and ``-c=FILE``: nothing else need know the short way.

    Raises:
        UserError: If an option that begins like it has one dash.
    """
    for word in words:
        if word.partition("=")[0] in ("-config", "-ckpt_path"):
            raise UserError(f"Expected two dashes before {word[1:]}, but got one; give -{word}.")
        if word.startswith("-c"):
            name = word.removeprefix("-c").removeprefix("=")
            yield from ("--config", name) if name else ("--config",)
        else:
            yield word


def _only_tells(option: str) -> bool:
    """Whether it is help, of a class too, or the like, or begins to be."""
    of_class = option.startswith("-") and option.endswith(".help")
    return option == "-h" or of_class or any(len(option) > 2 and told.startswith(option) for told in _TOLD)
