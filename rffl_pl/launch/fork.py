"""Ranks of one machine as forks of a process that has imported everything: torchrun's part without torchrun."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from rffl_pl.errors import BY_ITSELF, UserError, check_number
from rffl_pl.launch import FORKED, flush, tell

RANKS = "--ranks"
"""The option, which is the launch's and no run's: it stands in no configuration."""

_PATIENCE = 30
"""Seconds that ranks have to end once one of them has failed, as under torchrun."""
_MOMENT = 0.5
"""Seconds after which ranks have heard of what the terminal sent to all."""
_MOST = 4096


_TOLD = re.compile(r"-h|--(\S+\.)?help|--print_config")
"""Options that print something and end: every rank would print it."""


def take_ranks(words: list[str]) -> tuple[int, list[str]]:
    """How many ranks ``--ranks`` asks for, 1 without it or where there is nothing to run, and the other words.

    Raises:
        UserError: If it is no number of ranks, there already is a launcher, or processes cannot be forked here.
    """
    asked, rest, waiting = "1", [], iter(words)
    for word in waiting:
        if word == RANKS:
            asked = next(waiting, "nothing")
        elif word.startswith(f"{RANKS}="):
            asked = word.removeprefix(f"{RANKS}=")
        else:
            rest.append(word)
    if not asked.isdecimal():
        raise UserError(f"Expected --ranks to be a whole number, but got {asked}.")
    check_number(RANKS, int(asked), 1, _MOST)
    threads = os.environ.get("OMP_NUM_THREADS") or "1"
    if int(asked) > 1 and re.fullmatch(r"0*[1-9]\d*(,.*)?", threads) is None:
        raise UserError(
            f"Expected OMP_NUM_THREADS to be a whole number of threads for each of --ranks, but got {threads}; give 1, "
            "or unset it."
        )
    if int(asked) > 1 and "WORLD_SIZE" in os.environ:
        raise UserError(
            f"Expected --ranks without a launcher, but got {asked} under torchrun; give torchrun --nproc_per_node "
            f"{asked} instead."
        )
    told = any(_TOLD.fullmatch(word.partition("=")[0]) for word in rest)
    return 1 if told else int(asked), rest


def become_ranks(count: int, serve: Callable[[socket.socket], object]) -> None:
    """Fork into so many ranks and return in each of them; this process starts and ends them and never returns.

    They share the memory of what was imported before. Each finds in its environment what torchrun would say, so that
    everything behind sees no difference. If one fails, the others are asked to end; SIGTERM goes to all of them.

    Args:
        count: At least 1.
        serve: Opens on a listening socket the store by which the ranks meet; it is kept until they have ended.
    """
    folder = Path(tempfile.mkdtemp(prefix="rffl-"))
    listener = socket.create_server(("127.0.0.1", 0))
    common = {
        FORKED: str(count),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(listener.getsockname()[1]),
        "TORCHELASTIC_RUN_ID": uuid.uuid4().hex,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or "1",
    }
    flush()
    gc.collect()
    gc.freeze()  # the collector would write to every object, and no page would be shared for long
    ranks: dict[int, int] = {}
    # Held back while ranks are forked: each begins with this process's handler, which would take what it is sent.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    with _signals_passed_on(ranks) as heard:
        for rank in range(count):
            process = os.fork()
            if process == 0:
                break
            ranks[process] = rank
        else:
            if heard:  # by a library's thread, before all were there
                _send(ranks, signal.SIGTERM)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            try:
                code = _see_through(ranks, listener, serve)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            os._exit(code)  # what was imported for the ranks has nothing to close here
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    listener.close()
    _be(rank, common, folder)


def _be(rank: int, common: dict[str, str], folder: Path) -> None:
    """Take on a rank's environment."""
    import torch

    own = folder / "attempt_0" / str(rank)
    own.mkdir(parents=True, exist_ok=True)
    numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_ERROR_FILE": str(own / "error.json")}
    os.environ.update(common | numbers)
    torch.set_num_threads(int(common["OMP_NUM_THREADS"].partition(",")[0]))
    from lightning_utilities.core.rank_zero import rank_zero_only

    # Which it read from the environment when it was imported: what is said once is said by the first.
    rank_zero_only.rank = rank  # type: ignore[attr-defined]  # a function that has an attribute


def _see_through(ranks: dict[int, int], listener: socket.socket, serve: Callable[[socket.socket], object]) -> int:
    """Serve the ranks' store until all have ended, and return the exit code of the first that failed, or 0."""
    store = serve(listener)  # noqa: F841  # while it lives
    failed = 0
    while ranks:
        process, status = os.wait()
        rank = ranks.pop(process, None)
        if rank is None:  # a shell's, say, that became this process
            continue
        code = os.waitstatus_to_exitcode(status)
        if code and not failed:
            failed = code if code > 0 else 128 - code
            if code < 0 and -code not in (signal.SIGTERM, signal.SIGINT):
                why = ", as where memory is short" if -code == signal.SIGKILL else ""
                print(file=sys.stderr, flush=True)  # behind a progress bar, whose rank cannot end it any more
                tell(
                    f"Expected every rank to work on, but rank {rank} was ended by {signal.Signals(-code).name}{why}; "
                    f"go on with {BY_ITSELF}, or start again if there is none."
                )
            _end(ranks)
    return failed


def _end(ranks: dict[int, int]) -> None:
    """Ask the ranks that are left to end, and see to it."""
    until = time.monotonic() + _PATIENCE
    _send(ranks, signal.SIGTERM)
    while ranks and time.monotonic() < until:
        process, _ = os.waitpid(-1, os.WNOHANG)
        ranks.pop(process, None)
        time.sleep(0.05)
    _send(ranks, signal.SIGKILL)


def _send(ranks: dict[int, int], number: int) -> None:
    for process in list(ranks):
        with contextlib.suppress(ProcessLookupError):  # it has just ended, and is taken from the list next
            os.kill(process, number)


@contextlib.contextmanager
def _signals_passed_on(ranks: dict[int, int]) -> Iterator[list[int]]:
    """SIGTERM goes on to the ranks, and is noted.

    Ctrl-C they hear themselves, from the terminal, and ignore more of it from then on; what was sent to this process
    alone reaches them a moment later.
    """
    heard: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        _send(ranks, number)

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: signal.setitimer(signal.ITIMER_REAL, _MOMENT)),
        signal.SIGALRM: signal.signal(signal.SIGALRM, lambda *_: _send(ranks, signal.SIGINT)),
    }
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
