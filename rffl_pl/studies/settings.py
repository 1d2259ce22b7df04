"""What the words at a place of a study say, and which results were run with other words under the same label."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from rffl_pl.configured import IMPLEMENTATIONS
from rffl_pl.studies.own import digest_of, named_in, not_found
from rffl_pl.studies.results import Row, places_of
from rffl_pl.studies.study import Place, Study

PACKAGE = Path(__file__).parent.parent


def settings_digest(study: Study, place: Place) -> str:
    """A digest of what the words at a place say, of a user's own classes and files that they name what lies in them.

    Without seed and rounds, and without the package's code, data and defaults: new ones of those change nothing.
    """
    return _digests(study, place)[0]


def _digests(study: Study, place: Place) -> list[str]:
    """That digest, and where a user's own is named that of words alone, which is all that earlier releases kept."""
    said, own = _said(study, place), named_in(study.words(place))
    of_words = digest_of(said)[:12]
    return [digest_of(said, own)[:12], of_words] if own else [of_words]


def _said(study: Study, place: Place) -> list[Any]:
    words = study.words(place)
    return [_spelt_out(word, before) for before, word in zip(["", *words], words, strict=False)]


def _spelt_out(word: str, before: str) -> Any:
    """What a configuration says, instead of its name; ``before`` is the word in front of it."""
    option, equals, name = word.partition("=")
    if equals and (option == "--config" or (option.startswith("--") and name.endswith((".yaml", ".yml")))):
        return [option, _spelt_out(name, option)]
    if before == "--config" or word.endswith((".yaml", ".yml")):
        known = PACKAGE / "configs" / word.removeprefix("./").removeprefix("configs/")
        for path in (Path(os.path.expanduser(word)), known):
            if os.path.isfile(path):
                return _content(path.read_text(encoding="utf-8", errors="replace"))
    return word


@functools.cache
def _content(text: str) -> Any:
    """Of a configuration, which many places of a study name; of one that is no YAML, its text."""
    try:
        return _what(yaml.safe_load(text))
    except yaml.YAMLError:
        return text


def _what(said: Any) -> Any:
    """Without what only says how an optimizer's steps are computed."""
    if isinstance(said, dict):
        return {key: _what(item) for key, item in said.items() if key not in IMPLEMENTATIONS}
    return [_what(item) for item in said] if isinstance(said, list) else said


def places_by_words(study: Study) -> dict[str, list[tuple[str, ...]]]:
    """The labels of places by what their words say now, in each way that results have kept that."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for place in study.places():
        for digest in _digests(study, place):
            found.setdefault(digest, []).append(tuple(place.values()))
    return found


def of_today(study: Study, rows: Iterable[Row]) -> tuple[list[Row], int]:
    """The rows that were run with the words that the study has now, and how many runs had others.

    Words whose classes or files of a user's own have changed since are others.

    A table that showed both would pass off one for the other, or take the mean of different experiments.
    """
    now: dict[tuple[str, ...], set[str]] = {}
    fitting, others = [], set()
    rows = list(rows)
    for row, where in zip(rows, places_of(study, rows), strict=True):
        if where not in now:
            now[where] = {*_digests(study, study.place(where))}
        if row["settings"] in now[where]:
            fitting.append(row)
        else:
            others.add((*where, row["seed"], row["rounds"]))
    return fitting, len(others)


def left_out(study: Study, runs: int) -> str:
    """The sentence on runs that had other words."""
    were = "1 run that was" if runs == 1 else f"{runs} runs that were"
    return f"Left out: {were} run with other words, or files of yours, than {study.name} has now; {remedy(study)}."


def remedy(study: Study) -> str:
    """What to do about runs that had other words: go where classes and files of a user's own are, or run them."""
    if gone := sorted({said for place in study.places() for said in not_found(study.words(place))}):
        return f"it names {gone[0]}, which is not found from here, so start in the folder that has it"
    return "run the study again"
