"""Runs cells, in this process or in workers that import once and run many."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Literal, TextIO

import torch

from rffl_pl.strategy import leave_process_group
from rffl_pl.studies.cells import Cell, CellFolder

Run = Callable[[list[str]], None]
"""Runs the words of one command line, as ``rffl`` does."""


@dataclass(frozen=True)
class Outcome:
    """How a cell ended.

    Attributes:
        state: ``busy`` is one that another process holds, ``killed`` one whose process the kernel ended.
        seconds: Of all its attempts.
        sentence: Why it failed.
        memory: Bytes that its process has held at most.
    """

    state: Literal["done", "failed", "interrupted", "busy", "killed"]
    seconds: float = 0.0
    sentence: str = ""
    memory: int = 0


Outcomes = Generator[tuple[Cell, Outcome], None, None]


def play(cell: Cell, root: Path, run: Run, patience: float = 0) -> Outcome:
    """Run a cell to its end, or find that it has one.

    Args:
        cell: The cell.
        root: Folder of all cells.
        run: Runs a command line in this process.
        patience: Seconds to wait for another process that holds the cell.
    """
    folder = CellFolder(root, cell.digest)
    with folder.held(patience) as mine:
        if not mine:
            return Outcome("busy")
        if folder.finished() is None:
            start, words, spoken = time.monotonic(), folder.words(cell), _size(folder.log)
            try:
                with _undisturbed(folder.log):
                    sentence = _sentence(run, words)
            except KeyboardInterrupt:
                return Outcome("interrupted")
            finally:
                folder.note(time.monotonic() - start, words)
            if folder.finished() is None:
                said = sentence or _last_error(folder.log, spoken) or "The run left no result; it says why in log.txt."
                return Outcome("failed", folder.record()["seconds"], said)
        return Outcome("done", folder.record().get("seconds", 0.0))


def _sentence(run: Run, words: list[str]) -> str:
    """Run, and say what ended it before its time if it is no user's mistake: those are told in the log."""
    try:
        run(words)
    except SystemExit as stop:
        if stop.code != 2:  # Lightning ends so when it is interrupted, by Ctrl-C or SIGTERM
            raise KeyboardInterrupt from stop
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    finally:
        gc.collect()  # trainers are cycles: the models of this cell would wait for those of the next
    return ""


@contextlib.contextmanager
def _undisturbed(log: Path) -> Iterator[None]:
    """What a run says goes to the log; what it leaves in the environment, of warnings and signals is taken back."""
    environment = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with warnings.catch_warnings(), log.open("a") as file, _spoken_into(file):
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _spoken_into(file: TextIO) -> Iterator[None]:
    """Python's streams, and what libraries write past them."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in kept:
            os.dup2(file.fileno(), number)
        with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _last_error(log: Path, start: int) -> str:
    text = log.read_bytes()[start:].decode(errors="replace")
    return next((line[7:] for line in reversed(text.splitlines()) if line.startswith("Error: ")), "")


def in_turn(cells: Sequence[Cell], root: Path, run: Run) -> Outcomes:
    """Run cells in this process, one after the other; those that another process holds come last."""
    waiting = deque((cell, 0.0) for cell in cells)
    while waiting:
        cell, patience = waiting.popleft()
        outcome = play(cell, root, run, patience)
        if outcome.state == "busy":
            waiting.append((cell, 1.0))
        else:
            yield cell, outcome


def in_workers(cells: Sequence[Cell], root: Path, run: Run, jobs: int, devices: Sequence[str] = ()) -> Outcomes:
    """Run several cells at a time, each in one of ``jobs`` processes with an equal share of the cores and GPUs.

    Workers are forked by a server that has imported what they need: one import for all of them. Beside others a cell
    starts where the machine has as much memory left as one of them has taken so far. One that is killed all the same
    waits until fewer run, and fails if it runs alone. Whoever stops iterating ends all.

    Args:
        cells: The cells.
        root: Folder of all cells.
        run: Runs a command line.
        jobs: Number of workers.
        devices: GPUs as ``CUDA_VISIBLE_DEVICES`` names them; each worker sees one, several may see the same.
            Without any, workers see what this process does.
    """
    waiting = deque((cell, 0.0) for cell in cells)
    idle: list[_Worker] = []
    busy: dict[Connection, _Worker] = {}
    most, taken = jobs, 0
    try:
        while waiting or busy:
            while waiting and len(busy) < most and (not busy or _available() > taken):
                seen = [worker.device for worker in busy.values()]
                worker = idle.pop() if idle else _Worker(root, run, jobs, min(devices, key=seen.count, default=None))
                busy[worker.pipe] = worker
                worker.give(*waiting.popleft())
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                worker = busy.pop(pipe)
                cell, outcome = worker.cell, worker.outcome()
                taken = max(taken, outcome.memory)
                if worker.process.is_alive():
                    idle.append(worker)
                if outcome.state == "killed" and busy:
                    most = len(busy)
                    waiting.append((cell, 0.0))
                elif outcome.state == "busy":
                    waiting.append((cell, 1.0))
                else:
                    yield cell, replace(outcome, state="failed") if outcome.state == "killed" else outcome
    finally:
        for worker in busy.values():
            worker.process.terminate()
        for worker in [*idle, *busy.values()]:
            worker.leave()


class _Worker:
    """A process that runs one cell after the other."""

    cell: Cell

    def __init__(self, root: Path, run: Run, jobs: int, device: str | None) -> None:
        self.device = device
        context = multiprocessing.get_context("forkserver")
        self.pipe, theirs = context.Pipe()
        environment = dict(os.environ) | ({} if device is None else {"CUDA_VISIBLE_DEVICES": device})
        self.process = context.Process(target=_serve, args=(theirs, root, run, environment, jobs))
        self.process.start()
        theirs.close()  # so that its death is the end of the pipe

    def give(self, cell: Cell, patience: float) -> None:
        self.cell = cell
        with contextlib.suppress(BrokenPipeError):  # it is dead, and its outcome will say so
            self.pipe.send((cell, patience))

    def outcome(self) -> Outcome:
        """What became of the cell; waits for it."""
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            state: Literal["killed", "failed"] = "killed" if code == -signal.SIGKILL else "failed"
            return Outcome(state, sentence=f"Its worker {how}; if memory is short, give fewer --jobs.")
        assert isinstance(answer, Outcome)
        return answer

    def leave(self) -> None:
        """End it, if need be by force: every round leaves a checkpoint."""
        self.pipe.close()
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(pipe: Connection, root: Path, run: Run, environment: dict[str, str], jobs: int) -> None:
    """A worker's life, until the pipe is closed; Ctrl-C is the study's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(environment)  # it was forked by a server that may be older than what is set there
    if "OMP_NUM_THREADS" not in environment:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // jobs))
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            cell, patience = pipe.recv()
            outcome = play(cell, root, run, patience)
            peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            pipe.send(replace(outcome, memory=peak))
    leave_process_group()


def _available() -> int:
    """Bytes of memory that a new process could have without swapping; none is known where there is no such file."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return sys.maxsize
