"""Runs cells, in this process or in workers that import once and run many."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Literal

import torch

from rffl_pl.errors import in_a_line
from rffl_pl.launch.stopping import Stopped
from rffl_pl.runs.durable import remedy, why_not_written
from rffl_pl.strategy import leave_process_group
from rffl_pl.studies.cells import Cell, CellFolder
from rffl_pl.studies.own import changed
from rffl_pl.studies.pack import Clock, together
from rffl_pl.studies.study import RunWords
from rffl_pl.studies.surroundings import choose_kernels, kernels, spoken_into


@dataclass(frozen=True)
class Outcome:
    """How a cell ended.

    Attributes:
        state: ``busy`` is one that another process holds, ``killed`` one whose process ended without a word,
            as the kernel ends it, or that of its pack.
        seconds: Of all its attempts.
        sentence: Why it failed.
        memory: Bytes that its process has held at most.
    """

    state: Literal["done", "failed", "interrupted", "busy", "killed"]
    seconds: float = 0.0
    sentence: str = ""
    memory: int = 0

    def final(self) -> Outcome:
        """The outcome of a cell that is not tried again: ``failed`` where it was ``killed``."""
        return replace(self, state="failed") if self.state == "killed" else self


_IF_SHORT = "; if memory is short, give fewer --jobs."
_LOOK = 3.0
"""After how many seconds a worker looks again whether the study still lives."""
Outcomes = Generator[tuple[Cell, Outcome], None, None]
Pack = Sequence[Cell]
"""Cells that are run together, or one alone."""


def play(cell: Cell, root: Path, run: RunWords, patience: float = 0, clock: Clock = time.monotonic) -> Outcome:
    """Run a cell to its end, or find that it has one.

    Args:
        cell: The cell.
        root: Folder of all cells.
        run: Runs a command line in this process.
        patience: Seconds to wait for another process that holds the cell.
        clock: Tells the seconds that the cell's attempt takes.
    """
    folder = CellFolder(root, cell.digest)
    with folder.held(patience) as mine:
        if not mine:
            if not patience:  # the first time it is come to
                print(f"{cell}: another process runs it; its result is waited for.", file=sys.stderr, flush=True)
            return Outcome("busy")
        if folder.finished() is None:
            start, words, spoken = clock(), folder.words(cell), _size(folder.log)
            sentence: str | None = ""
            try:
                with _undisturbed(folder.log):
                    sentence = _of_what_it_named(cell, folder, run, words)
            except KeyboardInterrupt:
                sentence = None
            except OSError as error:  # of the log, maybe as it is closed; the run's own are in its sentence
                if sentence == "":
                    why = f"{why_not_written(error)}; {remedy(error)}"
                    sentence = f"Expected to write its log, but {why}, and give the same command again."
            finally:
                folder.note(clock() - start, words)
            if sentence is None:
                return Outcome("interrupted")
            if folder.finished() is None:
                said = sentence or _last_error(folder.log, spoken) or "The run left no result; it says why in log.txt."
                # A study goes on with it, and has its runs below a folder of another option.
                said = said.replace("go on with --ckpt_path last", "run the study again").replace(
                    "--run.root", "--root"
                )
                folder.fail(said)
                return Outcome("failed", folder.record().get("seconds", 0.0), said)
        return Outcome("done", folder.record().get("seconds", 0.0))


def play_all(pack: Pack, root: Path, run: RunWords, patience: float) -> Outcomes:
    """Run cells together, their participants as one stack, or one alone; what becomes of each, when it ends.

    Args:
        pack: The cells.
        root: Folder of all cells.
        run: Runs a command line in this process.
        patience: Seconds to wait for another process that holds the only cell.
    """
    if len(pack) == 1:
        yield pack[0], play(pack[0], root, run, patience)
    else:
        with contextlib.suppress(OSError, ValueError):  # a cell has seven files open, and a pack's limit is a shell's
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        for number, outcome in together([partial(play, cell, root, run, 0) for cell in pack]):
            yield pack[number], outcome


def _of_what_it_named(cell: Cell, folder: CellFolder, run: RunWords, words: list[str]) -> str | None:
    """`_sentence` of a run that read the files and code that the cell's digest names; else its folder is set aside.

    They may change in the hours before a cell's turn. To look costs no more than the run's own reading of them.
    """
    before = folder.runs()
    if sentence := _changed(cell):
        return sentence
    ended = _sentence(run, words)
    if sentence := _changed(cell):
        folder.set_aside(folder.runs() - before)
        return sentence if ended is not None else None
    return ended


def _changed(cell: Cell) -> str:
    """The sentence, also in the log, on what has changed since the cell's digest was taken; empty if nothing has."""
    found = changed(cell.words, cell.own)
    if not found:
        return ""
    sentence = (
        f"Expected {found[0]} to stay as it was until the study has run, but it has changed since that began; run the "
        "study again."
    )
    print(f"Error: {sentence}", file=sys.stderr)
    return sentence


def _sentence(run: RunWords, words: list[str]) -> str | None:
    """Run, and say what ended it before its time if it is no user's mistake: those are told in the log.

    Returns:
        None if it was interrupted.
    """
    try:
        run(words)
    except KeyboardInterrupt:
        return None
    except SystemExit as stop:
        if _interrupted(stop):
            return None
        if stop.code != 2:
            traceback.print_exc()
            return f"A callback or a library of its ended it by sys.exit({stop.code!r})."
    except Exception as error:
        traceback.print_exc()
        return in_a_line(error)
    finally:
        gc.collect()  # trainers are cycles: the models of this cell would wait for those of the next
    return ""


def _interrupted(stop: SystemExit) -> bool:
    """Whether a run ended because it was asked to; Lightning makes code 1 of Ctrl-C, as anybody may for a failure."""
    return isinstance(stop, Stopped) or isinstance(stop.__context__, KeyboardInterrupt | Stopped)


@contextlib.contextmanager
def _undisturbed(log: Path) -> Iterator[None]:
    """What a run says goes to the log; what it leaves of environment, warnings, kernels and signals is taken back."""
    alone = threading.current_thread() is threading.main_thread()  # signals are a pack's to answer, not its cells'
    environment, chosen = dict(os.environ), kernels()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if alone}
    try:
        with warnings.catch_warnings(), log.open("a", encoding="utf-8", errors="replace") as file, spoken_into(file):
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        choose_kernels(*chosen)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _last_error(log: Path, start: int) -> str:
    text = log.read_bytes()[start:].decode(errors="replace")
    return next((line[7:] for line in reversed(text.splitlines()) if line.startswith("Error: ")), "")


def in_turn(packs: Sequence[Pack], root: Path, run: RunWords) -> Outcomes:
    """Run packs in this process, one after the other; cells that another process holds come last."""
    waiting = deque((pack, 0.0) for pack in packs)
    while waiting:
        pack, patience = waiting.popleft()
        for cell, outcome in play_all(pack, root, run, patience):
            if outcome.state == "busy":
                waiting.append(([cell], 1.0))
            else:
                yield cell, outcome


def in_workers(packs: Sequence[Pack], root: Path, run: RunWords, jobs: int, devices: Sequence[str]) -> Outcomes:
    """Run several packs at a time, each in one of ``jobs`` processes with an equal share of the cores and GPUs.

    Workers are forked by a server that has imported what they need: one import for all of them. Beside others a pack
    starts where the machine has as much memory left as one of them has taken so far. One that is killed all the same
    waits until fewer run, its cells each alone from then on, and stderr says so; with every cell that ends one more may
    run again. A cell that is killed while nothing runs beside it fails. Whoever stops iterating ends all.

    Args:
        packs: The cells; those of a pack are run together.
        root: Folder of all cells.
        run: Runs a command line.
        jobs: Number of workers.
        devices: GPUs as ``CUDA_VISIBLE_DEVICES`` names them; each worker sees one, several may see the same.
            Without any, workers see what this process does.
    """
    waiting = deque((pack, 0.0) for pack in packs)
    idle: list[_Worker] = []
    busy: dict[Connection, _Worker] = {}
    pace = _Pace(jobs)
    try:
        while waiting or busy:
            while waiting and pace.room_beside(len(busy)):
                seen = [worker.device for worker in busy.values()]
                worker = idle.pop() if idle else _Worker(root, run, jobs, min(devices, key=seen.count, default=None))
                busy[worker.pipe] = worker
                worker.give(*waiting.popleft())
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                worker = busy[pipe]
                for cell, outcome in worker.heard():
                    if pace.again(cell, outcome, len(busy), worker.several):
                        waiting.append(([cell], 1.0))
                    else:
                        yield cell, outcome.final()
                if not worker.cells:
                    del busy[pipe]
                    if worker.process.is_alive():
                        idle.append(worker)
    finally:
        for worker in busy.values():
            worker.process.terminate()
        for worker in [*idle, *busy.values()]:
            worker.leave()


class _Pace:
    """How many packs run at a time: as many as there are jobs, and fewer for a while after the kernel ended one."""

    def __init__(self, jobs: int) -> None:
        self.jobs = self.most = jobs
        self.taken = 0  # bytes that a worker has held at most

    def room_beside(self, running: int) -> bool:
        """Whether one more may run."""
        return running < self.most and (not running or _available() > self.taken)

    def again(self, cell: Cell, outcome: Outcome, running: int, several: bool) -> bool:
        """Whether a cell is to wait for another turn; its pack was one of those running, and may have had several."""
        self.taken = max(self.taken, outcome.memory)
        if outcome.state == "killed" and (several or running > 1):
            self.most = max(1, running - 1)
            print(f"{cell}: {outcome.sentence} It goes on from its last checkpoint.", file=sys.stderr, flush=True)
            return True
        if outcome.state == "done":
            self.most = min(self.jobs, self.most + 1)
        return outcome.state == "busy"


class _Worker:
    """A process that runs one pack after the other.

    Attributes:
        cells: Those of its pack that it has told nothing of, by digest.
        several: Whether its pack has several cells.
    """

    cells: dict[str, Cell]
    several: bool

    def __init__(self, root: Path, run: RunWords, jobs: int, device: str | None) -> None:
        self.device = device
        context = multiprocessing.get_context("forkserver")
        self.pipe, theirs = context.Pipe()
        environment = dict(os.environ) | ({} if device is None else {"CUDA_VISIBLE_DEVICES": device})
        self.process = context.Process(target=_serve, args=(theirs, root, run, environment, jobs, os.getpid()))
        self.process.start()
        theirs.close()  # so that its death is the end of the pipe

    def give(self, pack: Pack, patience: float) -> None:
        """Have it run a pack."""
        self.cells, self.several = {cell.digest: cell for cell in pack}, len(pack) > 1
        with contextlib.suppress(BrokenPipeError):  # it is dead, and its outcome will say so
            self.pipe.send((pack, patience))

    def heard(self) -> list[tuple[Cell, Outcome]]:
        """What became of a cell, or of all that are left if the worker died; waits for it."""
        try:
            digest, outcome = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            state: Literal["killed", "failed"] = "killed" if code == -signal.SIGKILL or self.several else "failed"
            advice = _IF_SHORT if code == -signal.SIGKILL else "."
            died = Outcome(state, sentence=f"Its worker {how}{advice}")
            left, self.cells = self.cells, {}
            return [(cell, died) for cell in left.values()]
        assert isinstance(outcome, Outcome)
        if outcome.state == "interrupted":  # SIGTERM to it alone, as where memory is short: Ctrl-C it does not hear
            outcome = replace(outcome, state="killed", sentence=f"Its worker was ended by SIGTERM{_IF_SHORT}")
        return [(self.cells.pop(digest), outcome)]

    def leave(self) -> None:
        """End it, if need be by force: every round leaves a checkpoint."""
        self.pipe.close()
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(pipe: Connection, root: Path, run: RunWords, environment: dict[str, str], jobs: int, study: int) -> None:
    """A worker's life, until the pipe is closed; Ctrl-C is the study's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(study,), daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)  # it was forked by a server that may be older than what is set there
    if "OMP_NUM_THREADS" not in environment:
        threads = max(1, _cores() // jobs)
        torch.set_num_threads(threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)  # or Lightning takes a thread for every core
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pack, patience = pipe.recv()
            for cell, outcome in play_all(pack, root, run, patience):
                peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                pipe.send((cell.digest, replace(outcome, memory=peak)))
    leave_process_group()


def _end_with(study: int) -> None:
    """Do as the study would have done at its end, if it is killed: cells end after their round, and can go on."""
    while True:
        time.sleep(_LOOK)
        try:
            os.kill(study, 0)
        except ProcessLookupError:
            return os.kill(os.getpid(), signal.SIGTERM)


def _cores() -> int:
    """Those that this process may use; macOS does not say, and has them all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _available() -> int:
    """Bytes of memory that a new process could have without swapping; none is known where there is no such file."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return sys.maxsize
