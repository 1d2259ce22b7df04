"""The results of a study in long form: a row per cell, participant and measure."""

from __future__ import annotations

import csv
import fcntl
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rffl_pl.errors import UserError
from rffl_pl.studies.study import COLUMNS, Place, Study, lies_in

if TYPE_CHECKING:
    from rffl_pl.runs import Summary
    from rffl_pl.studies.cells import Cell

Row = dict[str, str]
NAMES = {"final": "accuracy", "mean": "accuracy_mean", "maximum": "accuracy_max"}
"""What results call differently from a run's summary."""
_COUNTED = ("honest", "rounds", "attacks")  # what is no measure


def rows_of(study: str, cell: Cell, summary: Summary, record: dict[str, Any]) -> Iterator[Row]:
    """The rows of a finished cell, one per measure and participant that has a value."""
    content = asdict(summary)
    about: dict[str, Any] = {
        "study": study,
        **cell.place,
        "seed": cell.seed,
        "rounds": cell.rounds,
        "cell": cell.digest,
    }
    about |= {column: record.get(column, "") for column in COLUMNS[COLUMNS.index("seconds") :]}
    for name, value in content.items():
        measured = enumerate(value) if isinstance(value, list) else [("", value)]
        for participant, number in measured:
            if number is not None and name not in _COUNTED:
                row = {**about, "participant": participant, "role": _role(participant, content["honest"])}
                row |= {"measure": NAMES.get(name, name), "value": number}
                yield {key: str(item) for key, item in row.items()}


def _role(participant: int | str, honest: int) -> str:
    if isinstance(participant, str):
        return "all"
    return "honest" if participant < honest else "adversary"


def read(study: Study, file: Path) -> list[Row]:
    """The results that are kept and fit the study as it is now.

    Raises:
        UserError: If the file holds no results of this study.
    """
    if not file.is_file():
        raise UserError(f"Expected the results of {study.name} in {file}, but there are none; run the study first.")
    with file.open(newline="") as lines:
        table = csv.DictReader(lines)
        lacking = {"study", *study.axes, *COLUMNS} - set(table.fieldnames or ())
        if lacking:
            raise UserError(
                f"Expected {file} to be the results of {study.name}, but it has no column {sorted(lacking)[0]}; "
                "remove it or give the study another name."
            )
        fitting = (row for row in table if lies_in(row, study.axes))
        return [row for row in fitting if not any(lies_in(row, out) for out in study.exclude)]


def keep(study: Study, file: Path, new: Iterable[Row]) -> int:
    """Add rows to the results; those of the same place, seed and rounds give way.

    Returns:
        How many rows there are.

    Raises:
        UserError: If the file holds other results, or cannot be written.
    """
    new = list(new)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with (file.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the same study
            fresh = {_which(study, row) for row in new}
            kept = [row for row in (read(study, file) if file.exists() else []) if _which(study, row) not in fresh]
            _write(study, file, sorted([*kept, *new], key=lambda row: _order(study, row)))
            return len(kept) + len(new)
    except OSError as error:
        raise UserError(
            f"Expected {file} to be a file that can be written, but {error.strerror}: {error.filename}."
        ) from error


def _write(study: Study, file: Path, rows: Iterable[Row]) -> None:
    partial = file.with_name(f".{file.name}")
    with partial.open("w", newline="") as lines:
        table = csv.DictWriter(lines, ["study", *study.axes, *COLUMNS], extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    partial.replace(file)  # at once: a reader never sees half a file


def _which(study: Study, row: Row) -> tuple[str, ...]:
    return (*place_of(study, row).values(), row["seed"], row["rounds"])


def _order(study: Study, row: Row) -> tuple[int, ...]:
    """As the study's file has them, by seed and rounds; measures stay as they come."""
    place = (list(labels).index(row[axis]) for axis, labels in study.axes.items())
    return (*place, int(row["seed"]), int(row["rounds"]))


def place_of(study: Study, row: Row) -> Place:
    """Where a row lies on the study's axes."""
    return {axis: row[axis] for axis in study.axes}
