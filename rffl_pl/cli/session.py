"""Runs the cells of a study that have no result yet, tells how far it is, and keeps the results."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING

from rffl_pl.cli.process import importing
from rffl_pl.errors import UserError, check_number, nearest
from rffl_pl.studies import Study, results
from rffl_pl.studies.study import CURVE_COLUMNS, RunWords, place_text

if TYPE_CHECKING:
    from rffl_pl.studies.cells import Cell, CellFolder
    from rffl_pl.studies.play import Outcomes

_SHARE = 20
"""A study's results are written again after so many times as long as writing them took."""
_MANY = 200
"""So many combinations of labels have options that take long enough to read for a line that says so."""
_GPU = re.compile(r"\d{1,4}|(GPU|MIG)-[\w/-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What runs cells.

    Attributes:
        root: Folder of all cells.
        run: Runs a command line in this process.
        jobs: Cells at a time.
        devices: GPUs by number; each cell sees one.
        pack: Cells of each job that train together, at most.
    """

    root: Path
    run: RunWords
    jobs: int = 1
    devices: Sequence[str] = ()
    pack: int = 1

    @classmethod
    def given(
        cls, root: Path, run: RunWords, jobs: int | None, devices: Sequence[str] | None, pack: int | None
    ) -> Machine:
        """As the options ``--jobs``, ``--devices`` and ``--pack`` say: by default a job on each GPU that is named.

        Raises:
            UserError: If there are fewer jobs than GPUs, or none, packs of no cells, or what is no GPU's name.
        """
        devices = devices or ()
        for device in devices:
            if not _GPU.fullmatch(device):
                raise UserError(
                    f"Expected --devices to be GPUs by number or by UUID, as 0 or GPU-8f4e2a1b, but got {device}; "
                    "`nvidia-smi -L` lists both."
                )
        jobs = max(1, len(devices)) if jobs is None else jobs
        if jobs < max(1, len(devices)):
            least = f"{len(devices)}, one for each of --devices" if devices else "1"
            raise UserError(f"Expected --jobs to be at least {least}, but got {jobs}.")
        check_number("--jobs", jobs, 1, 4096)
        pack = 1 if pack is None else pack
        check_number("--pack", pack, 1, 4096)
        # What Lightning sets for a cell with --trainer.deterministic is too late behind another cell: torch looks once
        # in a process, and if it finds nothing refuses deterministic products on a GPU from then on.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        if devices:  # for the cells that this process runs itself, a last one or one that is measured
            os.environ["CUDA_VISIBLE_DEVICES"] = devices[0]
            os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # numbers as nvidia-smi has them
        return cls(root=root, run=run, jobs=jobs, devices=devices, pack=pack)

    def warm(self) -> None:
        """Let the workers' server import what they need, while this process imports it too.

        Ctrl-C is this process's to answer: in the middle of its imports the server would answer it with a traceback.
        """
        if self.jobs > 1:
            multiprocessing.set_forkserver_preload(["rffl_pl.cli.preloaded"])
            resource_tracker.ensure_running()  # which the server's start would start, and that lets signals through
            before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                forkserver.ensure_running()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def packs(self, cells: Sequence[Cell]) -> list[list[Cell]]:
        """The cells, with those together that train together."""
        from rffl_pl.studies.cells import packed

        return packed(cells, self.pack, self.jobs)

    def play(self, cells: Sequence[Cell]) -> Outcomes:
        """Run cells, and tell how each of them ended."""
        import torch

        from rffl_pl.studies.play import in_turn, in_workers

        if self.devices and not torch.cuda.is_available():
            print(f"Warning: no GPU is seen with --devices {self.devices[0]}: cells train on the CPU.", file=sys.stderr)
        packs = self.packs(cells)
        if self.jobs > 1 and len(packs) > 1:
            return in_workers(packs, self.root, self.run, min(self.jobs, len(packs)), self.devices)
        return in_turn(packs, self.root, self.run)


class Session:
    """The cells of one call, and what is told of them.

    Args:
        study: The study.
        cells: Those of the study that are asked for.
        machine: What runs them.
        file: The study's results.
        kept: Seconds of the cells that need no run, whatever lies in their folders, by digest.
        any_code: Whether results of other code and data will do.
    """

    def __init__(
        self,
        study: Study,
        cells: Sequence[Cell],
        machine: Machine,
        file: Path,
        kept: dict[str, float],
        any_code: bool = False,
    ) -> None:
        self.study, self.cells, self.machine, self.file = study, cells, machine, file
        self.any_code = any_code
        took = {cell.digest: self._seconds(cell) for cell in cells}
        self.seconds = kept | {digest: seconds for digest, seconds in took.items() if seconds is not None}
        self.left = [cell for cell in cells if cell.digest not in self.seconds]
        self.measured: set[str] = set()
        """In the rounds of the runs whose results were kept."""
        self._ran: set[str] = set()
        self._kept = self._keeping = 0.0

    @classmethod
    def of(
        cls,
        study: Study,
        only: Mapping[str, Iterable[str]],
        rounds: int | None,
        machine: Machine,
        file: Path,
        any_code: bool = False,
    ) -> Session:
        """The session of some of a study's cells; what the results have needs no run.

        Args:
            study: The study.
            only: Labels by axis to which it is narrowed.
            rounds: Instead of the study's.
            machine: What runs them.
            file: The study's results.
            any_code: Whether results of other code and data will do.

        Raises:
            UserError: If the study says no runs, or none is left.
        """
        with importing():
            from rffl_pl.cli.resolve import Resolver
            from rffl_pl.studies.cells import cells_of

        places = len(study.places(only))
        if places > _MANY:
            print(f"{study.name}: reads the options of {places} combinations first, some 0.1 s each", flush=True)
        cells = cells_of(study, study.seeds, rounds, Resolver(), only)
        # A row of this very cell counts at any label, whatever the study calls it now; others where they lie.
        known = (results.read if any_code else results.every)(study, file) if file.exists() else []
        rows = results.rows_by_cell(cells, known, any_code)
        kept = {digest: float(row["seconds"] or 0) for digest, row in rows.items()}
        if not any_code:  # a folder that is still there says itself whether its cell is finished
            kept = {digest: seconds for digest, seconds in kept.items() if not (machine.root / digest).exists()}
        return cls(study, cells, machine, file, kept, any_code)

    def play(self) -> int:
        """Run what has no result; returns the exit code: 1 if a cell failed, 130 if the user interrupted."""
        if self.left:
            results.keep(self.study, self.file, [])  # now: not after hours of running
        moved = self._move()
        print(
            f"{self.study.name}: {_count(self.cells, 'cell')}, {len(self.cells) - len(self.left)} of them finished",
            flush=True,
        )
        if self.machine.pack > 1 and self.left:
            print(self._packs(), flush=True)
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's wish to end is Ctrl-C
        try:
            failed = self._play()
        except KeyboardInterrupt:
            print("Interrupted; the same command goes on where every cell was.", file=sys.stderr)
            return 130
        finally:
            signal.signal(signal.SIGTERM, before)
            if rows := self._keep(self.cells) or moved:
                print(f"results: {self.file} ({rows} rows)", flush=True)
        if offline := self._offline():
            print(offline, flush=True)
        for cell, sentence in failed:
            print(f"Failed: {cell}: {sentence} ({self._folder(cell).log})", file=sys.stderr)
        for told in self._of_curves():
            print(told, file=sys.stderr)
        if self.study.curves and (gone := self._without_curves()):
            print(
                f"Expected every round of {len(self.cells)} cells, but the folders of {gone} are gone, which have "
                f"results alone; take their rows out of {self.file} to run them again.",
                file=sys.stderr,
            )
        return 1 if failed else 0

    def _of_curves(self) -> Iterator[str]:
        """What is said of curves that no round had, and no place that was left out may have."""
        everywhere = {place_text(cell.place) for cell in self.cells} >= {*map(place_text, self.study.places())}
        there = ", ".join(sorted(self.measured))
        for name in sorted({*self.study.curves} - self.measured if self.measured else ()):
            near = nearest(name, self.measured)
            if near or everywhere:
                yield f"Expected curves to name measures of rounds ({there}), but got {name}{near or '.'}"

    def _warn_of_curves(self) -> None:
        """What is likely misspelt, after a cell and not after all: one of another server might still have it."""
        for name in sorted({*self.study.curves} - self.measured):
            if near := nearest(name, self.measured):
                print(f"Warning: no round so far has {name}, which curves names{near}", file=sys.stderr, flush=True)

    def _offline(self) -> str:
        """How W&B is sent what it has not had; empty if no run of now was offline."""
        offline = [digest for digest in self._ran if any((self.machine.root / digest).glob("*/wandb/offline-run-*"))]
        pattern = f"{shlex.quote(str(self.machine.root))}/*/*/wandb/offline-run-*"
        return f"W&B, offline: {_count(offline, 'run')}; upload them with: wandb sync {pattern}" if offline else ""

    def _packs(self) -> str:
        """Which cells train together."""
        packs = self.machine.packs(self.left)
        several = [len(pack) for pack in packs if len(pack) > 1]
        alone = len(packs) - len(several)
        together = f"{sum(several)} cells train in {_count(several, 'pack')}"
        if not alone:
            return together
        return (
            f"{together}, {alone} alone: cells train together that share network, schedule, data set and trainer, with "
            "--model.engine stacked and --run.wandb false"
        )

    def _play(self) -> list[tuple[Cell, str]]:
        """Run them; returns those that failed, with what they said."""
        start, failed, total = time.monotonic(), [], len(self.left)
        fresh: list[Cell] = []
        with contextlib.closing(self.machine.play(self.left)) as turn:
            for number, (cell, outcome) in enumerate(turn, 1):
                if outcome.state == "interrupted":
                    raise KeyboardInterrupt
                if outcome.state == "failed":
                    failed.append((cell, outcome.sentence))
                else:
                    self.seconds[cell.digest] = outcome.seconds
                    self._ran.add(cell.digest)
                    fresh.append(cell)
                    if time.monotonic() >= self._kept + _SHARE * self._keeping:
                        first = not self.measured
                        self._keep(fresh)  # soon: whoever kills this process loses none, since folders have the rest
                        fresh = []
                        if first:
                            self._warn_of_curves()
                rest = (total - number) * (time.monotonic() - start) / number
                done = "failed" if outcome.state == "failed" else f"{outcome.seconds:.1f} s"
                ahead = f"; about {_time(rest)} left" if rest else ""
                print(f"[{number}/{total}] {cell}: {done}{ahead}", flush=True)
        return failed

    def _move(self) -> int:
        """Have results lie where the study has their cells or words now, before others take the places they have.

        Returns:
            How many rows there are then, 0 if none moved.
        """
        from rffl_pl.studies.settings import places_by_words

        gone = [cell for cell in self.cells if cell.digest in self.seconds and self._folder(cell).finished() is None]
        places = places_by_words(self.study)
        results.move(self.study, results.curves_beside(self.file), gone, places, CURVE_COLUMNS)
        return results.move(self.study, self.file, gone, places)

    def _keep(self, cells: Sequence[Cell]) -> int:
        """Add what the folders of cells have to the results; returns how many rows there are then, 0 if none came."""
        begun = time.monotonic()
        rows: list[results.Row] = []
        curves: list[results.Row] = []
        finished = []
        for cell in cells:
            folder = self._folder(cell)
            run = folder.finished()
            if run is not None:
                finished.append(cell)
                rows += results.rows_of(self.study.name, cell, run.summary(), folder.record())
                if self.study.curves:
                    rounds = run.rounds()
                    curves += results.curves_of(self.study, cell, rounds)
                    self.measured.update(name for entry in rounds for name in (*entry.measures, *entry.numbers))
        if curves or (self.study.curves and finished):
            results.keep_curves(self.study, self.file, curves, finished)
        elif ran := [cell for cell in finished if cell.digest in self._ran]:
            results.keep_curves(self.study, self.file, [], ran)  # the file of every round has others' at their places
        count = results.keep(self.study, self.file, rows) if rows else 0
        self._kept = time.monotonic()
        self._keeping = self._kept - begun
        return count

    def _without_curves(self) -> int:
        """How many finished cells have no curves and no folder: the study asked for none when they ran."""
        file = results.curves_beside(self.file)
        rows = results.read(self.study, file, CURVE_COLUMNS) if file.is_file() else []
        there = results.rows_by_cell(self.cells, rows, self.any_code)
        without = [cell for cell in self.cells if cell.digest in self.seconds and cell.digest not in there]
        return sum(self._folder(cell).finished() is None for cell in without)

    def _seconds(self, cell: Cell) -> float | None:
        """How long a cell took whose folder has its result; None if there is none."""
        folder = self._folder(cell)
        return None if folder.finished() is None else folder.record().get("seconds", 0.0)

    def _folder(self, cell: Cell) -> CellFolder:
        """Where a cell's runs lie."""
        from rffl_pl.studies.cells import CellFolder

        return CellFolder(self.machine.root, cell.digest)

    def list(self) -> int:
        """Tell which cells there are, and about how long those take that have no result; returns the exit code."""
        for cell in self.cells:
            seconds = self.seconds.get(cell.digest)
            state = self._to_run(cell) if seconds is None else f"finished in {seconds:.1f} s"
            print(f"{cell}: {cell.rounds} rounds, {state}")
        print(f"{_count(self.cells, 'cell')}, {len(self.left)} to run{self._ahead() if self.left else ''}")
        if self.machine.pack > 1 and self.left:
            print(f"{self._packs()}; the time is that of cells alone")
        return 0

    def _ahead(self) -> str:
        """About how long those take that have no result, or why nobody knows."""
        able = [cell for cell in self.left if "failed" not in self._folder(cell).record()] or self.left
        try:
            each, how = self._estimate(able[len(able) // 2])  # not the first, which may be the coalition of nobody
        except UserError as mistake:
            return f"; how long is not known: {mistake}"
        total = each * math.ceil(len(self.left) / self.machine.jobs)
        return f", about {_time(total)} with --jobs {self.machine.jobs}{how}"

    def _to_run(self, cell: Cell) -> str:
        failed = self._folder(cell).record().get("failed")
        return f"to run; failed the last time: {failed}" if failed else "to run"

    def _estimate(self, cell: Cell) -> tuple[float, str]:
        """Seconds of a cell: what finished ones took, or what this one's first rounds take in a folder of no use.

        A run of r rounds takes a + b r seconds: b is what a round more takes, after a run that imports and caches.
        """
        if self.seconds:
            known = list(self.seconds.values())
            return sum(known) / len(known), f", as the {len(known)} that are finished"
        with tempfile.TemporaryDirectory() as folder:
            roots = (Path(folder) / name for name in "abc")
            most = min(3, cell.rounds)
            _, short, long = (self._measured(cell, rounds, next(roots)) for rounds in (1, 1, most))
        each = max(0.0, (long - short) / max(1, most - 1))
        return short + each * (cell.rounds - 1), f", measured on {_count(range(most), 'round')} of {cell}"

    def _measured(self, cell: Cell, rounds: int, root: Path) -> float:
        from rffl_pl.studies.play import play

        reference = ["--standalone.cache_dir", str(root / "standalone")]
        length = ["--trainer.max_epochs", str(rounds), "--run.wandb", "false"]
        # Callbacks may watch what is measured later, and loggers would keep a run of no use.
        alone = ["--trainer.callbacks", "null", "--trainer.logger", "null"]
        short = [*cell.words, *length, *alone, *reference]
        outcome = play(replace(cell, words=short), root, self.machine.run)
        if outcome.state == "interrupted":
            raise KeyboardInterrupt
        if outcome.state == "failed":
            raise UserError(f"Expected {cell} to run, so as to measure it, but: {outcome.sentence}")
        return outcome.seconds


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
