"""``rffl study``: the runs of a study's file, what is known of them, and its tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rffl_pl import launch
from rffl_pl.cli import catalogue
from rffl_pl.cli.session import Machine, RunWords, Session
from rffl_pl.cli.words import Words
from rffl_pl.errors import UserError, nearest
from rffl_pl.studies import Study, contributions, results, tables
from rffl_pl.studies.settings import left_out, of_today, remedy
from rffl_pl.studies.study import COALITION, checked_seeds, lies_in

_MEASURE = "accuracy_mean"


def parser() -> Words:
    """The command's options."""
    made = Words(
        "rffl study",
        "Run every cell of a study that has no result yet, and keep the results of all in ROOT/NAME/results.csv. "
        "Cells are ordinary runs in ROOT/cells; other studies use them too.",
    )
    made.add_argument("study", metavar="STUDY.yaml", help="a file of yours or one of the package's")
    made.add_argument("--dry-run", action="store_true", help="list the cells and about how long they take")
    made.add_argument("--only", metavar="AXIS=LABEL", action="append", default=[], help="only these; may be repeated")
    made.add_cells("runs/studies")
    made.add_argument("--table", metavar="AXIS", nargs="+", help="run nothing; a table with these rows and columns")
    made.add_argument(
        "--between", metavar="COLUMN", nargs=2, help="of the table: how much the first is above the second"
    )
    made.add_argument("--measure", help=f"what the table shows: {_MEASURE}")
    made.add_argument(
        "--contribution",
        choices=contributions.KINDS,
        help="of the table: what each participant adds to the measure, of a study with players",
    )
    made.add_argument("--format", choices=tables.FORMATS, help=f"of the table: {tables.FORMATS[0]}")
    return made


def main(args: Sequence[str], run: RunWords) -> int:
    """Answer ``rffl study`` with these words.

    Args:
        args: The words behind ``study``.
        run: Runs the words of another command in this process.

    Returns:
        The exit code: 1 if a cell failed, 130 if the user interrupted.

    Raises:
        UserError: If the words or the study's file say nothing that can be done.
    """
    check_alone("study")
    given = parser().read(args)
    _check_table(given)
    study = Study.read(study_file(given.study))
    study = study.small() if given.reduced else study
    only = study.only(given.only)
    if given.seeds:
        study = replace(study, seeds=checked_seeds(given.seeds))
    file = _results(given.root / study.name)
    if given.table:
        rows, measure = _shown(study, only, given.seeds, file), given.measure or _MEASURE
        lacking = None
        if given.contribution:
            _check_whole(only)
            found = contributions.added(study, rows, given.contribution, measure)
            study, rows, measure, lacking = found.study, found.rows, found.rows[0]["measure"], found.left_out()
        shown = tables.tables(study, rows, given.table, measure, given.rounds, given.between)
        missing = tables.unseen(study, shown, given.table[: 1 if given.between else 2], only)
        for told in filter(None, (lacking, missing)):
            print(told, file=sys.stderr)
        print(tables.written(shown, given.table, given.format or tables.FORMATS[0]))
        return 0
    machine = Machine.given(given.root / "cells", run, given.jobs, given.devices, given.pack)
    if not given.dry_run:
        machine.warm()
    from rffl_pl.strategy import leave_process_group  # torch is imported by what needs it alone

    session = Session.of(study, only, given.rounds, machine, file)
    try:
        return session.list() if given.dry_run else session.play()
    finally:
        leave_process_group()


def _check_whole(only: Mapping[str, Collection[str]]) -> None:
    """Refuse some coalitions where all are needed."""
    if COALITION in only:
        raise UserError(
            f"Expected --only without {COALITION} with --contribution, which needs every one, but got "
            f"{', '.join(sorted(only[COALITION]))}; leave it out."
        )


def _check_table(given: argparse.Namespace) -> None:
    """Refuse what a table has no use for, and what nothing but a table has."""
    if given.table and given.dry_run:
        raise UserError("Expected --table or --dry-run, but got both; a table runs nothing, so leave out --dry-run.")
    if given.between and given.between[0] == given.between[1]:
        raise UserError(f"Expected --between to name two columns, but got {given.between[0]} twice.")
    for option in ("jobs", "devices", "pack"):
        if getattr(given, option) is not None and given.table:
            raise UserError(f"Expected --{option} without --table, which runs nothing; leave out one of them.")
    for option in ("between", "measure", "contribution", "format"):
        if getattr(given, option) and not given.table:
            raise UserError(
                f"Expected --{option} to go with --table and its rows and columns, but there is no --table."
            )


def _shown(study: Study, only: Mapping[str, set[str]], seeds: Sequence[int] | None, file: Path) -> list[results.Row]:
    """The results for a table; what was run with other words is left out, and stderr tells of it."""
    rows = [row for row in results.read(study, file) if lies_in(row, only)]
    run = sorted({int(row["seed"]) for row in rows})
    if run and seeds and not {*seeds} & {*run}:
        raise UserError(
            f"Expected --seeds of which there are results in {file}, {', '.join(map(str, run))}, but got "
            f"{', '.join(map(str, seeds))}; run the study with them first."
        )
    if run and seeds and (lacking := sorted({*seeds} - {*run})):
        print(f"Without results of seeds {', '.join(map(str, lacking))}.", file=sys.stderr)
    fitting, others = of_today(study, (row for row in rows if not seeds or int(row["seed"]) in seeds))
    if others and not fitting:
        raise UserError(
            f"Expected results of {study.name} with the words that it has now, but all that are in {file} were run "
            f"with others; {remedy(study)}."
        )
    if others:
        print(left_out(study, others), file=sys.stderr)
    return fitting


def check_alone(command: str) -> None:
    """Refuse to be one of several ranks.

    Raises:
        UserError: If torchrun started this process.
    """
    if launch.world_size() > 1:
        raise UserError(f"Expected rffl {command} to start its own processes, but torchrun did; give --jobs instead.")


def study_file(name: str) -> Path:
    """The user's own file, or the package's of that name: ``takeover`` is ``studies/takeover.yaml``."""
    if Path(name).is_file():
        return Path(name)
    short = name.removeprefix("./").removeprefix("configs/")
    known = packaged()
    for spelled in (short, f"studies/{short}.yaml"):
        if spelled in known:
            return known[spelled]
    near = nearest(short, [*known, *(Path(file).stem for file in known)], likeness=0.75) or "."
    raise UserError(f"Expected the file of a study, but there is no {name}{near}")


def _results(folder: Path) -> Path:
    """Where a study's results are kept: compressed where they already are."""
    packed = folder / "results.csv.gz"
    return packed if packed.is_file() else folder / "results.csv"


def packaged() -> dict[str, Path]:
    """The package's studies by name."""
    return {name: file for name, file in catalogue.configs().items() if name.startswith("studies/")}


def options() -> list[str]:
    """For completion."""
    return parser().options()
