"""``rffl study``: the runs of a study's file, what is known of them, and its tables."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from rffl_pl import launch
from rffl_pl.cli import catalogue
from rffl_pl.cli.session import Machine, Session
from rffl_pl.cli.words import Words, expanded
from rffl_pl.errors import UserError, nearest, writable
from rffl_pl.studies import Study, contributions, results, shares, tables
from rffl_pl.studies.settings import left_out, of_today, remedy
from rffl_pl.studies.study import COALITION, COLUMNS, CURVE_COLUMNS, RunWords, checked_seeds
from rffl_pl.studies.tuned import Tuned, tuned
from rffl_pl.studies.within import ROUND, WITHIN, widened
from rffl_pl.studies.worst import worst_over
from rffl_pl.studies.written import FORMATS, written

_MEASURE = "accuracy_mean"
_LONGEST = 200
"""Characters of a picture's name, of which a file system has 255."""
_WITHIN = "accuracy"
"""What is shown of participants and of rounds."""


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
    made.add_cells()
    made.add_argument(
        "--any-code", action="store_true", help="results of another version of the package, or its data, are finished"
    )
    made.add_argument(
        "--table",
        metavar="AXIS",
        nargs="+",
        help=f"run nothing; a table with these rows and columns, the study's axes, {' or '.join(WITHIN)}",
    )
    made.add_argument("--figure", metavar="AXIS", nargs="+", help="likewise a picture: rows along it, a line a column")
    made.add_argument("--between", metavar="COLUMN", nargs=2, help="of either: how much the first is above the second")
    made.add_argument("--measure", help=f"what either shows: {_MEASURE}; of {' and '.join(WITHIN)}s {_WITHIN}")
    made.add_argument(
        "--contribution",
        choices=contributions.KINDS,
        help="of either: what each participant adds to the measure, of a study with players",
    )
    made.add_argument("--worst", metavar="AXIS", help="of either: the worst over this axis, of each seed its own")
    made.add_argument(
        "--tuned",
        metavar=("AXIS", "AXIS=LABEL"),
        nargs="+",
        help="of either: each at its label on this axis with the best accuracy on validation examples, by AXIS=LABEL "
        "if given",
    )
    made.add_argument("--format", choices=FORMATS, help=f"of the table: {FORMATS[0]}")
    made.add_argument("--out", type=expanded, help="folder of the picture: the study's in ROOT")
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
    if given.table or given.figure:
        _show(given, study, only, file)
        return 0
    machine = Machine.given(given.root / "cells", run, given.jobs, given.devices, given.pack)
    if not given.dry_run:
        machine.warm()
    from rffl_pl.strategy import leave_process_group  # torch is imported by what needs it alone

    session = Session.of(study, only, given.rounds, machine, file, given.any_code)
    try:
        return session.list() if given.dry_run else session.play()
    finally:
        leave_process_group()


def _show(given: argparse.Namespace, study: Study, only: Mapping[str, set[str]], file: Path) -> None:
    """Print a table, or draw a picture of it and print where it lies."""
    option, axes = ("--table", given.table) if given.table else ("--figure", given.figure)
    rounds = ROUND in axes
    measure = given.measure or (_WITHIN if {*WITHIN} & {*axes} and not given.contribution else _MEASURE)
    if rounds:
        _check_curves(study, measure, given.contribution, file)
    rows = _shown(study, only, given.seeds, results.curves_beside(file) if rounds else file, rounds)
    to_run = tables.to_run(study, rows, only, given.rounds)
    chosen = _tuned(given, study, only, file) if given.tuned else None
    rows = chosen.of(rows) if chosen else rows
    shown_study, rows, measure, lacking = _derived(given, study, only, rows, measure)
    shown_study = chosen.without_axis(shown_study) if chosen else shown_study
    shown_study, rows = widened(shown_study, rows, axes, measure)
    shown = tables.tables(shown_study, rows, axes, measure, given.rounds, given.between, option)
    if rounds and results.is_scored(study, file, measure):
        shown = [replace(table, scored=True) for table in shown]
    missing = tables.unseen(study, shown, axes[: 1 if given.between else 2], only)
    unpaired = sum(table.unpaired for table in shown)
    alone = f"Left out: seeds that one of the two columns lacks, {unpaired} in all." if unpaired else None
    shown = chosen.named(shown, axes, given.between) if chosen else shown
    choice = (chosen.left_out(), chosen.at_an_end()) if chosen else ()
    for told in filter(None, (to_run, lacking, missing, alone, *choice)):
        print(told, file=sys.stderr)
    if given.table:
        print(written(shown, axes, given.format or FORMATS[0]))
        return
    from rffl_pl.studies.figures import draw, save  # matplotlib is imported by what needs it alone

    out = given.out or file.parent
    with writing_to(out):
        print(*save(draw(shown, axes), out, _named(study, measure, axes, given, only)), sep="\n")


def _derived(
    given: argparse.Namespace, study: Study, only: Mapping[str, set[str]], rows: list[results.Row], measure: str
) -> tuple[Study, list[results.Row], str, str | None]:
    """Worst cases or contributions in place of the results they are made of, if asked for.

    Returns:
        Their study, the results, their measure, and what is to be told of those that lack something.
    """
    if measure not in {row["measure"] for row in rows}:
        measure = results.NAMES.get(measure, measure)  # as a run's summary calls it
    if given.worst:
        worst = worst_over(study, rows, given.worst, measure)
        return worst.study, worst.rows, f"{measure}{tables.WORST}{given.worst}", worst.left_out
    if given.contribution:
        _check_whole(only)
        found = contributions.added(study, rows, given.contribution, measure)
        return found.study, found.rows, found.rows[0]["measure"], found.left_out
    return study, rows, measure, None


def _tuned(given: argparse.Namespace, study: Study, only: Mapping[str, set[str]], file: Path) -> Tuned:
    """The labels that are chosen, each from the results of its places at the end of the runs."""
    axis, *behind = given.tuned
    where = study.only(behind, "--tuned")
    narrowed = {name: labels for name, labels in only.items() if name not in where}
    rows = _shown(study, narrowed, given.seeds, file, by_round=False, quiet=True)
    return tuned(study, [row for row in rows if given.rounds in (None, int(row["rounds"]))], axis, where, given.worst)


def _named(
    study: Study, measure: str, axes: Sequence[str], given: argparse.Namespace, only: Mapping[str, Collection[str]]
) -> str:
    """The name of a picture's files: what it shows, over which axes, how chosen, and of which places alone.

    Where pictures of several studies may lie, also of which it is.
    """
    narrowed = [f"{axis}={'+'.join(sorted(labels))}" for axis, labels in only.items()]
    tuned = ["tuned", *given.tuned] if given.tuned else []
    rounds = [] if given.rounds is None else [f"rounds={given.rounds}"]
    seeds = [f"seeds={'+'.join(map(str, given.seeds))}"] if given.seeds else []
    whose = [study.name] if given.out else []
    said = [*whose, measure, "by", *axes, *(given.between or ()), *tuned, *narrowed, *rounds, *seeds]
    return _short(re.sub(r"[^\w.+=-]+", "_", "-".join(said)))


def _short(name: str) -> str:
    """A file's name; a long one by its beginning, and what tells it from others that begin so."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 9]}-{sha256(name.encode()).hexdigest()[:8]}"


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """A folder, made if it is not there, to write pictures into.

    Raises:
        UserError: If nothing can be written there.
    """
    with writable("--out"):
        folder.mkdir(parents=True, exist_ok=True)
        yield


def _check_curves(study: Study, measure: str, contribution: str | None, file: Path) -> None:
    """Refuse rounds where no round is kept, or of what participants add, which is of the last."""
    if contribution:
        raise UserError(f"Expected --contribution without the axis {ROUND}, since it is of the last; leave out one.")
    if measure not in study.curves and not results.curves_beside(file).is_file():
        raise UserError(
            f"Expected {study.name} to have the key curves with {measure}, which keeps every round, but it has "
            f"{', '.join(study.curves) or 'none'}; add `curves: [{measure}]` to its file and run it again, which takes "
            "the rounds of finished cells from their folders."
        )


def _check_whole(only: Mapping[str, Collection[str]]) -> None:
    """Refuse some coalitions where all are needed."""
    if COALITION in only:
        raise UserError(
            f"Expected --only without {COALITION} with --contribution, which needs every one, but got "
            f"{', '.join(sorted(only[COALITION]))}; leave it out."
        )


def _check_table(given: argparse.Namespace) -> None:
    """Refuse what tables and pictures have no use for, and what nothing else has."""
    asked = [option for option in ("table", "figure", "dry_run") if getattr(given, option)]
    if len(asked) > 1:
        first, second = (f"--{option.replace('_', '-')}" for option in asked[:2])
        raise UserError(f"Expected {first} or {second}, but got both; leave out one of them.")
    if given.between and given.between[0] == given.between[1]:
        raise UserError(f"Expected --between to name two columns, but got {given.between[0]} twice.")
    shows = given.table or given.figure
    for option in ("jobs", "devices", "pack", "any_code"):
        if shows and getattr(given, option) not in (None, False):
            named = option.replace("_", "-")
            raise UserError(f"Expected --{named} without --{asked[0]}, which runs nothing; leave out one of them.")
    _check_worst(given)
    _check_tuned(given)
    for option in ("between", "measure", "contribution", "worst", "tuned"):
        if getattr(given, option) and not shows:
            raise UserError(f"Expected --{option} to go with --table or --figure and their axes, but there is neither.")
    for option, needed in {"format": "table", "out": "figure"}.items():
        if getattr(given, option) and not getattr(given, needed):
            raise UserError(f"Expected --{option} to go with --{needed} and its axes, but there is no --{needed}.")


def _check_worst(given: argparse.Namespace) -> None:
    """Refuse what a worst case is not taken of."""
    if given.worst and given.contribution:
        raise UserError("Expected --worst or --contribution, but got both; leave out one of them.")
    if inside := given.worst and [axis for axis in (given.table or given.figure or ()) if axis in WITHIN]:
        raise UserError(f"Expected --worst without the axis {inside[0]}, but got both; leave out one of them.")
    _check_no_axis(given, given.worst, "--worst takes the worst label")


def _check_tuned(given: argparse.Namespace) -> None:
    """Refuse to choose what is shown, or where every label counts."""
    if given.tuned and given.contribution:
        raise UserError("Expected --tuned or --contribution, but got both; leave out one of them.")
    _check_no_axis(given, given.tuned and given.tuned[0], "--tuned chooses a label")


def _check_no_axis(given: argparse.Namespace, axis: str | None, done: str) -> None:
    """Refuse to show an axis of which another option leaves one label."""
    option = "--table" if given.table else "--figure"
    if axis in (given.table or given.figure or ()):
        raise UserError(
            f"Expected {option} without the axis {axis}, of which {done}, but got both; leave out one of them."
        )


def _shown(
    study: Study,
    only: Mapping[str, set[str]],
    seeds: Sequence[int] | None,
    file: Path,
    by_round: bool,
    quiet: bool = False,
) -> list[results.Row]:
    """The results that are shown; what was run with other words is left out, and stderr tells of it, unless quiet."""
    rows = results.read(study, file, CURVE_COLUMNS if by_round else COLUMNS, only)
    run = sorted(map(int, {row["seed"] for row in rows}))
    if run and seeds and not {*seeds} & {*run}:
        raise UserError(
            f"Expected --seeds of which there are results in {file}, {', '.join(map(str, run))}, but got "
            f"{', '.join(map(str, seeds))}; run the study with them first."
        )
    if not quiet and run and seeds and (lacking := sorted({*seeds} - {*run})):
        print(f"Without results of seeds {', '.join(map(str, lacking))}.", file=sys.stderr)
    fitting, others = of_today(study, (row for row in rows if not seeds or int(row["seed"]) in seeds))
    if others and not fitting:
        raise UserError(
            f"Expected results of {study.name} with the words that it has now, but all that are in {file} were run "
            f"with others; {remedy(study)}."
        )
    if others and not quiet:
        print(left_out(study, others), file=sys.stderr)
    return shares.with_missing_shares(study, fitting)


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
    """Where a study's results are kept: compressed where they already are.

    Raises:
        UserError: If they are there both ways, of which one alone would be added to.
    """
    packed, plain = folder / "results.csv.gz", folder / "results.csv"
    if packed.is_file() and plain.is_file():
        raise UserError(
            f"Expected the results of a study once in {folder}, but {plain.name} and {packed.name} are both there; "
            "take the older one away."
        )
    return packed if packed.is_file() else plain


def packaged() -> dict[str, Path]:
    """The package's studies by name."""
    return {name: file for name, file in catalogue.configs().items() if name.startswith("studies/")}
