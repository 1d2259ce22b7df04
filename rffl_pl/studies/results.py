"""The results of a study in long form: a row per cell, participant and measure, and the same of every round."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rffl_pl.errors import UserError
from rffl_pl.files import locked, replaced
from rffl_pl.studies.study import COLUMNS, CURVE_COLUMNS, Study, lies_in

if TYPE_CHECKING:
    from rffl_pl.runs import Round, Summary
    from rffl_pl.studies.cells import Cell

Row = dict[str, str]
NAMES = {
    "final": "accuracy",
    "mean": "accuracy_mean",
    "maximum": "accuracy_max",
    "minimum": "accuracy_min",
    "worst_tenth": "accuracy_worst_tenth",
    "best_tenth": "accuracy_best_tenth",
    "spread": "accuracy_spread",
    "validation": "accuracy_validation",
}
"""What results call differently from a run's summary."""
PLAYED = "rounds_played"
"""The measure that says how many rounds a run had, which may have ended before it had all."""
_NUMBERS = {"seed": int, "rounds": int, "round": int, "participant": int, "value": float, "seconds": float}
_MAY_LACK = ("participant", "seconds")  # of what is measured of all, and of runs whose record is lost
_OF_RUNS = ("examples", "standalone", "reputation", "quota", "removed_in_round")
"""What participants have of a run that no metric measures of their final models."""
_COUNTED = ("honest", "rounds", "attacks", "groups", "watched")  # what is no measure


def rows_of(study: str, cell: Cell, summary: Summary, record: dict[str, Any]) -> Iterator[Row]:
    """The rows of a finished cell, one per measure and participant that has a value."""
    content = asdict(summary)
    about = _about(study, cell) | {column: record.get(column, "") for column in COLUMNS[COLUMNS.index("seconds") :]}
    own = content.pop("measured")
    ours = {NAMES.get(name, name): value for name, value in content.items() if name not in _COUNTED}
    for name, value in (ours | own).items():  # a metric of one's own may be called spread
        measured = enumerate(value) if isinstance(value, list) else [("", value)]
        for participant, number in measured:
            if number is not None:
                yield _row(about, participant, content["honest"], name, number)
    yield _row(about, "", content["honest"], PLAYED, summary.rounds)


def curves_of(study: Study, cell: Cell, rounds: Sequence[Round]) -> Iterator[Row]:
    """The rows of every round of a finished cell, one per measure and participant that has a finite value.

    A number that a callback has of the round is of all.
    """
    for entry in rounds:
        for name in study.curves:
            measured: Iterable[tuple[int | str, float]] = enumerate(entry.measures.get(name, []))
            if name not in entry.measures and name in entry.numbers:
                measured = [("", entry.numbers[name])]
            for participant, number in measured:
                if math.isfinite(number):
                    about = _about(study.name, cell) | {"round": entry.number}
                    yield _row(about, participant, entry.honest, name, number)


def _about(study: str, cell: Cell) -> dict[str, Any]:
    return {
        "study": study,
        **cell.place,
        "seed": cell.seed,
        "rounds": cell.rounds,
        "settings": cell.settings,
        "cell": cell.digest,
    }


def _row(about: dict[str, Any], participant: int | str, honest: int, measure: str, number: float) -> Row:
    row = {**about, "participant": participant, "role": _role(participant, honest), "measure": measure}
    return {key: str(item) for key, item in row.items()} | {"value": f"{number:.9g}"}


def _role(participant: int | str, honest: int) -> str:
    if isinstance(participant, str):
        return "all"
    return "honest" if participant < honest else "adversary"


def read(
    study: Study, file: Path, columns: Sequence[str] = COLUMNS, only: Mapping[str, Collection[str]] | None = None
) -> list[Row]:
    """The results that are kept and fit the study as it is now.

    Args:
        study: The study.
        file: A CSV file, compressed if its name ends with ``.gz``.
        columns: `COLUMNS`, or `CURVE_COLUMNS` of the file of every round.
        only: Those alone that lie at one of the labels on every axis that is named.

    Raises:
        UserError: If the file holds no results of this study.
    """
    rows = every(study, file, columns)
    places = places_of(study, rows)
    asked = {place: _fits(study, place) and lies_in(study.place(place), only or {}) for place in {*places}}
    return [row for row, place in zip(rows, places, strict=True) if asked[place]]


def every(study: Study, file: Path, columns: Sequence[str] = COLUMNS) -> list[Row]:
    """All that is kept, also at places that the study no longer has.

    Args:
        study: The study.
        file: A CSV file, compressed if its name ends with ``.gz``.
        columns: `COLUMNS`, or `CURVE_COLUMNS` of the file of every round.

    Raises:
        UserError: If the file holds no results of this study.
    """
    if not file.exists():
        raise UserError(f"Expected the results of {study.name} in {file}, but there are none; run the study first.")
    try:
        header, rows = table_in(file)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"Expected {file} to be the results of {study.name}, but it cannot be read: {error}."
        ) from error
    if not header:  # as a power cut leaves a file: nothing is kept in it
        return []
    lacking = {"study", *study.axes, *columns} - {*header}
    if lacking:
        raise UserError(
            f"Expected {file} to be the results of {study.name}, but it has no column {sorted(lacking)[0]}; give the "
            "study another name, as for an axis that is new, or undo what changed the file."
        )
    beyond = [name for name in header if name not in ("study", *study.axes, *columns)]
    if beyond:
        raise UserError(
            f"Expected {file} to be the results of {study.name}, but its column {beyond[0]} is no axis of the study; "
            "give the study another name, or undo what changed the file."
        )
    _check_numbers(file, rows)
    rows = _of_one_cell(study, rows)
    by_what = which_of(study, rows, "participant", "measure", *[column for column in columns if column == "round"])
    return list(dict(zip(by_what, rows, strict=True)).values())  # of files that were put together, each row once


def _of_one_cell(study: Study, rows: list[Row]) -> list[Row]:
    """Of each place, seed and number of rounds one cell's rows: of files that were put together the last one's.

    Else one run's accuracy would stand beside another's loss. A row that was cut off has the beginning of its cell.
    """
    which = list(which_of(study, rows))
    last: dict[tuple[str, ...], str] = {}
    for one, row in zip(which, rows, strict=True):
        if not last.get(one, "").startswith(row["cell"]):
            last[one] = row["cell"]
    return [row for one, row in zip(which, rows, strict=True) if last.get(one, "").startswith(row["cell"])]


def table_in(file: Path) -> tuple[list[str], list[Row]]:
    """The names of a file's columns, and its rows; a cell that lacks at the end of one is empty."""
    raw = file.read_bytes()
    text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode("utf-8-sig")  # as Excel leaves it
    table = csv.reader(io.StringIO(text, newline=""))  # whatever ends its lines
    header = next(table, [])
    nothing = [""] * len(header)
    whole = (cells if len(cells) >= len(header) else cells + nothing[len(cells) :] for cells in table if cells)
    return header, [dict(zip(header, cells, strict=False)) for cells in whole]


def _check_numbers(file: Path, rows: Sequence[Row]) -> None:
    """See that what is calculated with is numbers; programs that open tables rewrite them, and 1.0 is taken for 1.

    Raises:
        UserError: If one is none, or not finite.
    """
    for column in [name for name in _NUMBERS if rows and name in rows[0]]:
        known = {written: _number(file, column, written) for written in dict.fromkeys(map(itemgetter(column), rows))}
        if any(written != number for written, number in known.items()):
            for row in rows:
                row[column] = known[row[column]]


def _number(file: Path, column: str, written: str) -> str:
    """A number of a column as it is written here."""
    kind = _NUMBERS[column]
    if written == "" and column in _MAY_LACK:
        return written
    try:
        found = float(written)
        if not math.isfinite(found) or kind(found) != found:
            raise ValueError(written)
    except ValueError as error:
        what = "a whole number" if kind is int else "a number"
        raise UserError(
            f"Expected {file} to have {what} in every row's column {column}, but got {written!r}; "
            "undo the change, or remove the row and run the study again."
        ) from error
    return str(int(found)) if kind is int else written


def is_scored(study: Study, file: Path, measure: str) -> bool:
    """Whether the results have it of participants' final models: a metric, which by round is of what is watched.

    Measures of servers and numbers of callbacks, which are of no examples, are none of final models.
    """
    rows = read(study, file) if measure not in _OF_RUNS and file.is_file() else []
    return any(row["measure"] == measure and row["participant"] for row in rows)


def places_of(study: Study, rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """Every row's labels on the study's axes."""
    return list(_values(rows, list(study.axes)))


def _fits(study: Study, labels: tuple[str, ...]) -> bool:
    """Whether there is such a place in the study as it is now."""
    place = study.place(labels)
    return lies_in(place, study.axes) and not study.excludes(place)


def keep(
    study: Study, file: Path, new: Iterable[Row], columns: Sequence[str] = COLUMNS, cells: Iterable[Cell] = ()
) -> int:
    """Add rows to the results; those of the same place, seed and rounds give way.

    So do rows of the same cells at other places, which are labels that meant these cells before; whoever lies where
    such a cell moves to takes the place that it leaves. Nothing else is lost: rows at places that the study no longer
    has come last, for its file may name them again.

    Args:
        study: The study.
        file: Where they are kept.
        new: The rows.
        columns: `COLUMNS`, or `CURVE_COLUMNS` of the file of every round.
        cells: Those that the rows are of, where some may have none.

    Returns:
        How many rows there are.

    Raises:
        UserError: If the file holds other results, or cannot be written.
    """
    header = ["study", *study.axes, *columns]
    new = [dict.fromkeys(header, "") | row for row in new]
    fresh = {*which_of(study, new)}
    fresh |= {(*cell.place.values(), str(cell.seed), str(cell.rounds)) for cell in cells}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with (file.parent / ".lock").open("w") as lock:
            locked(lock, math.inf)  # another process of the same study
            before = every(study, file, columns) if file.exists() else []
            rows = _sorted(study, [*_beside(study, before, new, fresh), *new])
            _write(file, header, rows)
            return len(rows)
    except OSError as error:
        there = every(study, file, columns) if file.exists() else []
        replaced_by = {*_values(new, header)}
        known = zip(there, which_of(study, there), strict=True)
        if fresh and replaced_by == {*_values([row for row, which in known if which in fresh], header)}:
            return len(there)  # a disk that can only be read has all of them, and no others in their place
        from rffl_pl.runs.durable import why_not_written  # torch is imported by what needs it alone

        raise UserError(f"Expected {file} to be a file that can be written, but {why_not_written(error)}.") from error


def _beside(
    study: Study, before: Sequence[Row], new: Sequence[Row], fresh: Collection[tuple[str, ...]]
) -> Iterator[Row]:
    """What stays beside new rows, some of it at the place that a cell of these leaves."""
    now = {row["cell"]: which for row, which in zip(new, which_of(study, new), strict=True) if row["cell"]}
    known = zip(before, which_of(study, before), strict=True)
    origins = {now[row["cell"]]: which for row, which in known if now.get(row["cell"], which) != which}
    left = {*origins.values()}
    for row, which in zip(before, which_of(study, before), strict=True):
        if row["cell"] in now or which in left:
            continue
        where = which
        while where in origins:  # where one came from, another one may have moved to
            where = origins[where]
        if where not in fresh:
            yield row if where == which else row | dict(zip(study.axes, where, strict=False))


def _write(file: Path, header: Sequence[str], rows: Iterable[Row]) -> None:
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(header)
    table.writerows(_values(rows, header))
    raw = text.getvalue().encode()
    with replaced(file) as partial:
        partial.write_bytes(gzip.compress(raw, mtime=0) if file.suffix == ".gz" else raw)


def curves_beside(file: Path) -> Path:
    """The file of every round: ``results.curves.csv`` beside ``results.csv``."""
    name, dot, endings = file.name.partition(".")
    return file.with_name(f"{name}.curves{dot}{endings}")


def keep_curves(study: Study, file: Path, new: Iterable[Row], cells: Iterable[Cell] = ()) -> None:
    """Add the rows of cells, if they have any, to the file of every round that lies beside the results."""
    new = list(new)
    if new or curves_beside(file).is_file():
        keep(study, curves_beside(file), new, CURVE_COLUMNS, cells)


def rows_by_cell(cells: Iterable[Cell], rows: Sequence[Row], any_code: bool) -> dict[str, Row]:
    """One row of every cell that has any, by the cell's digest.

    Args:
        cells: The cells.
        rows: Of results, or of every round.
        any_code: Whether a cell is known by options, seed and rounds alone, and not also by code and data.
    """
    by_digest = {row["cell"]: row for row in rows}
    by_options = {(row["settings"], row["seed"], row["rounds"]): row for row in rows if any_code}
    found = {}
    for cell in cells:
        options = (cell.settings, str(cell.seed), str(cell.rounds))
        row = by_digest.get(cell.digest, by_options.get(options))
        if row is not None:
            found[cell.digest] = row
    return found


def move(
    study: Study,
    file: Path,
    cells: Iterable[Cell],
    places: Mapping[str, Sequence[tuple[str, ...]]],
    columns: Sequence[str] = COLUMNS,
) -> int:
    """Have rows lie where the study has their cells now, or else their words.

    Args:
        study: The study.
        file: Where they are kept.
        cells: Those whose rows are looked for, whatever words they were run with.
        places: Labels by words, as rows have these in their column of settings.
        columns: `COLUMNS`, or `CURVE_COLUMNS` of the file of every round.

    Returns:
        How many rows there are then, 0 if none moved.
    """
    count = 0
    if rows := moved(study, file, cells, columns):
        count = keep(study, file, rows, columns)
    if rows := _relabelled(study, file, places, columns):
        count = keep(study, file, rows, columns)
    return count


def moved(study: Study, file: Path, cells: Iterable[Cell], columns: Sequence[str] = COLUMNS) -> list[Row]:
    """The rows of cells that lie at another label, or with other words, than the study has now, as it has them."""
    now = {cell.digest: cell.place | {"settings": cell.settings} for cell in cells}
    kept = every(study, file, columns) if now and file.is_file() else []
    there = [row for row in kept if row["cell"] in now]
    return [row | now[row["cell"]] for row in there if not now[row["cell"]].items() <= row.items()]


def _relabelled(
    study: Study, file: Path, places: Mapping[str, Sequence[tuple[str, ...]]], columns: Sequence[str]
) -> list[Row]:
    """The rows that were run with words that another place has now, as it has them, unless it has such rows itself."""
    kept = every(study, file, columns) if file.is_file() else []
    lie = list(zip(kept, places_of(study, kept), [places.get(row["settings"], ()) for row in kept], strict=True))
    away = [row | study.place(homes[0]) for row, place, homes in lie if homes and place not in homes]
    there = {*which_of(study, [row for row, place, homes in lie if place in homes])}
    return [row for row, which in zip(away, which_of(study, away), strict=True) if which not in there]


def _values(rows: Iterable[Row], columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each row's values in some columns, by `itemgetter` where several: there may be millions of rows."""
    first, *others = columns
    return map(itemgetter(first, *others), rows) if others else ((row[first],) for row in rows)


def which_of(study: Study, rows: Iterable[Row], *more: str) -> Iterator[tuple[str, ...]]:
    """Of which place, seed and number of rounds each row is, and what it has in more columns."""
    return _values(rows, [*study.axes, "seed", "rounds", *more])


def _sorted(study: Study, rows: Sequence[Row]) -> list[Row]:
    """As the study's file has them, by seed and rounds; measures, and what is nowhere in the file, as they come."""
    known = list(which_of(study, rows))
    order = {which: _order(study, which) for which in {*known}}
    return [row for _, row in sorted(zip(known, rows, strict=True), key=lambda pair: order[pair[0]])]


def _order(study: Study, which: tuple[str, ...]) -> tuple[int, ...]:
    *labels, seed, rounds = which
    if not _fits(study, tuple(labels)):
        return (1,)
    place = (list(known).index(label) for label, known in zip(labels, study.axes.values(), strict=True))
    return (0, *place, int(seed), int(rounds))
