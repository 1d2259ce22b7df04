"""``rffl study``: the runs of a study's file, what is known of them, and its tables."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rffl_pl import launch
from rffl_pl.cli import catalogue
from rffl_pl.errors import UserError, nearest
from rffl_pl.studies import Study, results, tables
from rffl_pl.studies.study import checked_seeds, lies_in

if TYPE_CHECKING:
    from rffl_pl.studies.cells import Cell

Run = Callable[[list[str]], None]


class _Parser(argparse.ArgumentParser):
    """Mistakes are raised, as one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"Expected words that rffl study knows, but {message}; `rffl study --help` lists them.")


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = _Parser(
        "rffl study",
        description="Run every cell of a study that has no result yet, and keep the results of all in "
        "ROOT/NAME/results.csv. Cells are ordinary runs in ROOT/cells; other studies use them too.",
        allow_abbrev=False,
    )
    made.add_argument("study", metavar="STUDY.yaml", help="a file of yours or one of the package's")
    made.add_argument("--dry-run", action="store_true", help="list the cells and about how long they take")
    made.add_argument("--only", metavar="AXIS=VALUE", action="append", default=[], help="only these; may be repeated")
    made.add_argument("--seeds", metavar="SEED", type=int, nargs="+", help="instead of the file's")
    made.add_argument("--rounds", type=int, help="communication rounds of every cell, instead of its configuration's")
    made.add_argument("--jobs", type=int, default=1, help="cells at a time, each with its share of the cores")
    made.add_argument("--root", type=Path, default=Path("runs/studies"), help="folder of all studies: %(default)s")
    made.add_argument("--table", metavar="AXIS", nargs="+", help="run nothing; a table with these rows and columns")
    made.add_argument("--measure", default="accuracy_mean", help="what the table shows: %(default)s")
    made.add_argument("--format", choices=tables.FORMATS, default="md", help="of the table: %(default)s")
    return made


def main(args: Sequence[str], run: Run) -> int:
    """Answer ``rffl study`` with these words.

    Args:
        args: The words behind ``study``.
        run: Runs the words of another command in this process.

    Returns:
        The exit code: 1 if a cell failed, 130 if the user interrupted.

    Raises:
        UserError: If the words or the study's file say nothing that can be done.
    """
    if launch.world_size() > 1:
        raise UserError("Expected rffl study to start its own processes, but torchrun did; give --jobs instead.")
    given = _given(list(args))
    study = Study.read(_file(given.study))
    only = study.only(given.only)
    if given.seeds:
        study = replace(study, seeds=checked_seeds(given.seeds))
    if given.table:
        kept = results.read(study, _results_file(given, study))
        kept = [row for row in kept if not given.seeds or int(row["seed"]) in given.seeds]
        shown = list(tables.tables(study, kept, given.table, given.measure, only, given.rounds))
        print(tables.written(shown, given.table, given.format))
        return 0
    if given.jobs > 1 and not given.dry_run:  # the workers' imports need not wait for ours
        multiprocessing.set_forkserver_preload(["rffl_pl.cli.arguments", "rffl_pl.studies.play"])
        forkserver.ensure_running()
    code = _Session(study, given, only, run).answer()
    from rffl_pl.strategy import leave_process_group  # torch is imported by what needs it alone

    leave_process_group()
    return code


def _given(args: list[str]) -> argparse.Namespace:
    options = parser()
    known = [option for action in options._actions for option in action.option_strings]
    for word in args:
        option = word.partition("=")[0]
        if option.startswith("--") and option not in known:
            raise UserError(f"Expected an option of rffl study, but got {option}{nearest(option, known) or '.'}")
    given = options.parse_args(args)
    for name in ("jobs", "rounds"):
        value = getattr(given, name)
        if value is not None and value < 1:
            raise UserError(f"Expected --{name} to be at least 1, but got {value}.")
    return given


def _file(name: str) -> Path:
    """The user's own file, or the package's of that name."""
    if Path(name).is_file():
        return Path(name)
    short = name.removeprefix("./").removeprefix("configs/")
    known = packaged()
    if short in known:
        return known[short]
    raise UserError(f"Expected the file of a study, but there is no {name}{nearest(short, known) or '.'}")


def packaged() -> dict[str, Path]:
    """The package's studies by name."""
    return {name: file for name, file in catalogue.configs().items() if name.startswith("studies/")}


def _results_file(given: argparse.Namespace, study: Study) -> Path:
    return Path(given.root / study.name / "results.csv")


class _Session:
    """The cells of one call, and what is told of them.

    Args:
        study: The study, with the seeds of this call.
        given: The words.
        only: Labels by axis to which it is narrowed.
        run: Runs a command line.
    """

    def __init__(self, study: Study, given: argparse.Namespace, only: dict[str, set[str]], run: Run) -> None:
        from rffl_pl.cli.resolve import Resolver
        from rffl_pl.studies.cells import cells_of

        self.study, self.run, self.jobs = study, run, given.jobs
        self.root, self.file = given.root / "cells", _results_file(given, study)
        every = cells_of(study, study.seeds, given.rounds, Resolver())
        self.cells = [cell for cell in every if lies_in(cell.place, only)]
        if not self.cells:
            raise UserError(f"Expected --only to leave a cell of {study.name}, but exclude leaves out all of them.")
        took = {cell.digest: self._seconds(cell) for cell in self.cells}
        self.seconds = {digest: seconds for digest, seconds in took.items() if seconds is not None}
        self.dry = given.dry_run

    def answer(self) -> int:
        """Run or list the cells; returns the exit code."""
        left = [cell for cell in self.cells if cell.digest not in self.seconds]
        try:
            return self._list(left) if self.dry else self._play_and_keep(left)
        except KeyboardInterrupt:
            print("Interrupted; the same command goes on where every cell was.", file=sys.stderr)
            return 130

    def _play_and_keep(self, left: list[Cell]) -> int:
        results.keep(self.study, self.file, [])  # now: not after hours of running
        print(f"{self.study.name}: {len(self.cells)} cells, {len(self.seconds)} of them finished", flush=True)
        try:
            failed = self._play(left)
        finally:
            self._keep()
        for cell, sentence in failed:
            print(f"Failed: {cell}: {sentence} ({self.root / cell.digest / 'log.txt'})", file=sys.stderr)
        return 1 if failed else 0

    def _play(self, left: list[Cell]) -> list[tuple[Cell, str]]:
        """Run them; returns those that failed, with what they said."""
        from rffl_pl.studies.play import in_turn, in_workers

        jobs = min(self.jobs, len(left))
        start, failed = time.monotonic(), []
        turn = in_workers(left, self.root, self.run, jobs) if jobs > 1 else in_turn(left, self.root, self.run)
        with contextlib.closing(turn):
            for number, (cell, outcome) in enumerate(turn, 1):
                if outcome.state == "interrupted":
                    raise KeyboardInterrupt
                if outcome.state == "failed":
                    failed.append((cell, outcome.sentence))
                else:
                    self.seconds[cell.digest] = outcome.seconds
                rest = (len(left) - number) * (time.monotonic() - start) / number
                done = "failed" if outcome.state == "failed" else f"{outcome.seconds:.1f} s"
                ahead = f"; about {_time(rest)} left" if rest else ""
                print(f"[{number}/{len(left)}] {cell}: {done}{ahead}", flush=True)
        return failed

    def _keep(self) -> None:
        """Write the results of all cells that have one."""
        from rffl_pl.studies.cells import CellFolder

        rows: list[results.Row] = []
        for cell in self.cells:
            folder = CellFolder(self.root, cell.digest)
            summary = folder.summary()
            if summary is not None:
                rows += results.rows_of(self.study.name, cell, summary, folder.record())
        if rows:
            print(f"results: {self.file} ({results.keep(self.study, self.file, rows)} rows)", flush=True)

    def _seconds(self, cell: Cell) -> float | None:
        """How long a finished cell took; None if it is not finished."""
        from rffl_pl.studies.cells import CellFolder

        folder = CellFolder(self.root, cell.digest)
        return None if folder.summary() is None else folder.record().get("seconds", 0.0)

    def _list(self, left: list[Cell]) -> int:
        for cell in self.cells:
            seconds = self.seconds.get(cell.digest)
            state = "to run" if seconds is None else f"finished in {seconds:.1f} s"
            print(f"{cell}: {cell.rounds} rounds, {state}")
        each, how = self._estimate(left[0]) if left else (0.0, "")
        total = each * len(left) / self.jobs
        much = f", about {_time(total)} with --jobs {self.jobs}{how}" if left else ""
        print(f"{len(self.cells)} cells, {len(left)} to run{much}")
        return 0

    def _estimate(self, first: Cell) -> tuple[float, str]:
        """Seconds of a cell: what finished ones took, or what the first one's first rounds take in a folder of no use.

        A run of r rounds takes a + b r seconds: b is what two more rounds take, after a run that imports and caches.
        """
        if self.seconds:
            known = list(self.seconds.values())
            return sum(known) / len(known), f", as the {len(known)} that are finished"
        with tempfile.TemporaryDirectory() as folder:
            roots = (Path(folder) / name for name in "abc")
            _, short, long = (self._measured(first, rounds, next(roots)) for rounds in (1, 1, 3))
        each = max(0.0, (long - short) / 2)
        return short + each * (first.rounds - 1), f", measured on three rounds of {first}"

    def _measured(self, cell: Cell, rounds: int, root: Path) -> float:
        from rffl_pl.studies.play import play

        reference = ["--standalone.cache_dir", str(root / "standalone")]
        short = [*cell.words, "--trainer.max_epochs", str(min(rounds, cell.rounds)), *reference]
        outcome = play(replace(cell, words=short), root, self.run)
        if outcome.state == "interrupted":
            raise KeyboardInterrupt
        if outcome.state == "failed":
            raise UserError(f"Expected {cell} to run, so as to measure it, but: {outcome.sentence}")
        return outcome.seconds


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def options() -> list[str]:
    """For completion."""
    words: list[Any] = [option for action in parser()._actions for option in action.option_strings]
    return [option for option in words if option.startswith("--")]
