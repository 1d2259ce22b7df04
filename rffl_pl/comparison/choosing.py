"""Which runs are meant: folders of runs, folders above them, patterns, and studies."""

from __future__ import annotations

import csv
import glob
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rffl_pl.comparison.own import told_apart
from rffl_pl.comparison.reading import Result, is_part, is_trained, read, readable
from rffl_pl.errors import UserError
from rffl_pl.runs.folder import RunFolder, newest_result
from rffl_pl.studies.results import table_in
from rffl_pl.studies.study import COLUMNS

Labels = tuple[tuple[str, str], ...]
_RESULTS = ("results.csv", "results.csv.gz")  # of a study
_DEPTH = 8  # folders above one another, of which --run.name may say several; a link may lead back up


def chosen(words: Sequence[str]) -> tuple[list[Result], list[str]]:
    """The finished runs that words name, each once and in their order.

    Shells make words of patterns, so files and folders that have nothing to do with it are passed over beside others.
    Settings are those of a study where all runs are cells of one, else the options of the command line.

    Returns:
        The runs, and a sentence for each that is left out because it has not ended or cannot be read.

    Raises:
        UserError: If a word names no run, or none has ended.
    """
    found: dict[Path, Result] = {}
    gone: list[str] = []
    paths = [path for word in words for path in _matching(word)]
    telling = [path for path in paths if not os.path.exists(path) or _study_file(path) or _runs_in(path)]
    for path in telling or paths:
        file = _study_file(path)
        for one in _cells(file) if file else _named(path):
            if isinstance(one, str):
                gone.append(one)
            else:
                found.setdefault(one.path.resolve(), one)
    finished = [result for result in found.values() if result.summary is not None]
    unfinished = [_not_ended(result) for result in found.values() if result.summary is None]
    if not finished:
        raise UserError([*unfinished, *gone][0])
    return _of_one_kind(finished), [*unfinished, *gone]


def at_hand(root: Path) -> Iterator[Result | UserError]:
    """Every run below a folder that trains or has trained, and the mistake for what cannot be read.

    Raises:
        UserError: If there is none.
    """
    folders: dict[Path, Path] = {}
    closed = []
    for one in _folders(root, _DEPTH) if root.is_dir() else ():
        if isinstance(one, UserError):
            closed.append(one)
        else:
            folders.setdefault(one.resolve(), one)  # once, whatever link leads there, as one to the latest
    if not folders and not closed:
        raise UserError(
            f"Expected runs below {root}/, but there are none here beside cells of studies; name a study, as "
            f"{root}/studies/digits, or folders, or train one: rffl fit --config digits.yaml."
        )
    for folder in folders.values():
        try:
            yield read(folder)
        except UserError as mistake:
            yield mistake
    yield from closed


def _folders(above: Path, depth: int, *, cells: bool = False) -> Iterator[Path | UserError]:
    """Every run below a folder that trains or has trained, but cells of studies: those have studies to name them.

    And the mistake for every folder that cannot be read.
    """
    try:
        with readable(above):
            below = sorted(path for path in above.iterdir() if path.is_dir())
    except UserError as mistake:
        yield mistake
        return
    for path in below:
        try:
            with readable(path):
                trained = is_trained(path)
                beyond = not RunFolder(path).is_run and (cells or not (path / "lock").is_file())  # which every cell has
        except UserError as mistake:
            yield mistake
            continue
        if trained:
            yield path
        elif beyond and depth > 1:
            yield from _folders(path, depth - 1, cells=cells)


def _matching(word: str) -> list[Path]:
    """What a word stands for; of a pattern, folders and results of studies."""
    if not glob.has_magic(word) or os.path.exists(word):  # a run may be called gamma[0.5]
        return [Path(word)]
    matching = [Path(one) for one in sorted(glob.glob(word)) if os.path.isdir(one) or Path(one).name in _RESULTS]
    if not matching:
        raise UserError(f"Expected folders of runs to compare, but nothing matches {word}.")
    return matching


def _named(path: Path) -> Iterator[Result | str]:
    """The runs that a path names, a sentence for each that cannot be read.

    Raises:
        UserError: If it names none.
    """
    for one in _runs_in(path) or [path]:
        if isinstance(one, UserError):
            yield str(one)
            continue
        try:
            yield read(one)
        except UserError as mistake:
            if not RunFolder(one).is_run:
                raise
            yield str(mistake)


def _runs_in(path: Path) -> Sequence[Path | UserError]:
    """The folder itself if it is of a run that was trained, else those below it, mistakes among them."""
    try:
        with readable(path):
            if RunFolder(path).is_run:
                return [path] if is_trained(path) else []
            if not path.is_dir():
                return []
    except UserError as mistake:
        return [mistake]
    found = list(_folders(path, _DEPTH))
    return found if any(isinstance(one, Path) for one in found) else list(_folders(path, _DEPTH, cells=True))


def _not_ended(result: Result) -> str:
    if is_part(result.path):
        return (
            f"Expected the run in {result.path} to have its rounds and its result there, but it has neither, as on a "
            "machine with a disk of its own that the first rank is not on; compare it on that rank's."
        )
    evaluated = re.fullmatch(r".*-(validate|test|predict)(_\d+)?", result.path.name)
    if evaluated and not is_trained(result.path):
        return (
            f"Expected {result.path} to be the folder of a run that trained, but rffl {evaluated[1]} left it; give the "
            "folder of the run whose models it looked at."
        )
    return (
        f"Expected the run in {result.path} to have ended, but it has no summary.json after {result.rounds} "
        f"round{'s' * (result.rounds != '1')}; go on from its checkpoint, or leave it out."
    )


def _of_one_kind(results: Sequence[Result]) -> list[Result]:
    """All by their labels if they are of one study, else all by their options.

    Labels that stood for other words in some of the runs, as of two files of one name, have a digest of them; so has
    what an option names of a user's own, where that was not the same.
    """
    results = told_apart(results)
    if len({result.study for result in results}) > 1:
        return [replace(result, settings=result.options, study=None) for result in results]
    stood_for: dict[Labels, set[str]] = {}
    for result in results:
        stood_for.setdefault(_labels(result), set()).add(result.stood_for)
    return [
        replace(result, settings={**result.settings, "settings": result.stood_for[:6]})
        if len(stood_for[_labels(result)]) > 1
        else result
        for result in results
    ]


def _labels(result: Result) -> Labels:
    return tuple((name, value) for name, value in result.settings.items() if result.study and name != "seed")


def _study_file(path: Path) -> Path | None:
    files = [path] if path.name in _RESULTS else [path / name for name in _RESULTS]
    # Below a folder that cannot be read os.path has no files, where pathlib raises: `_runs_in` tells of it.
    return next((file for file in files if os.path.isfile(file) and not RunFolder(file.parent).is_run), None)


def _cells(file: Path) -> Iterator[Result | str]:
    """The cells of a study that its results tell of, a sentence for each whose folder is not there."""
    for digest, (study, place, stood_for) in _places(file).items():
        cell = file.parent.parent / "cells" / digest
        folder = _newest(cell)
        if folder is None and (closed := _closed(cell)) is not None:
            yield closed
            continue
        if folder is None:
            yield (
                f"Expected the cell {digest} of {file} to have its run in {file.parent.parent / 'cells'}, but that is "
                "gone; tables need none, and to have it again take its rows out of that file and run the study."
            )
            continue
        try:
            yield replace(read(folder), settings=place, study=study, stood_for=stood_for)
        except UserError as mistake:
            yield str(mistake)


def _places(file: Path) -> dict[str, tuple[str, dict[str, str], str]]:
    """By cell the study's name, its labels, and a digest of what these stood for."""
    try:
        names, rows = table_in(file)
        shown = [*(name for name in names if name not in ("study", *COLUMNS)), "rounds", "seed"]
        cells = {row["cell"]: row for row in rows if row["cell"]}  # a last row may be cut off before it
        places = {
            cell: (row["study"], {name: row[name] for name in shown}, row.get("settings", ""))
            for cell, row in cells.items()
        }
    except (OSError, EOFError, zlib.error, ValueError, KeyError, csv.Error) as error:
        raise UserError(f"Expected {file} to be the results of a study, but it is no such table.") from error
    if not places:
        raise UserError(f"Expected {file} to have results of a study, but it has none; run the study first.")
    return places


def _closed(cell: Path) -> str | None:
    """The sentence on a cell that is there, or one of its attempts, and cannot be read: patterns pass over it."""
    try:
        with readable(cell):
            for attempt in sorted(cell.iterdir()) if os.path.isdir(cell) else ():
                (attempt / "summary.json").is_file()
    except UserError as mistake:
        return str(mistake)
    return None


def _newest(cell: Path) -> Path | None:
    """The last attempt that has a whole result, as `rffl_pl.studies` has it; without one the last that has any."""
    if (run := newest_result(cell)) is not None:
        return run.path
    return max((file.parent for file in cell.glob("*/summary.json")), default=None)
