"""A thread that ends this process when there is nobody left to work for or with: no run hangs.

Whoever waits in a collective operation cannot see that its peer was stopped, lost its network or has no launcher any
more. All ranks tell each other through the launcher's store that they are alive, several times in the seconds after
which one of them is given up; how long a round takes does not matter.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from rffl_pl.errors import BY_ITSELF, reason
from rffl_pl.launch import flush, launcher, tell
from rffl_pl.launch.stopping import STOP

T = TypeVar("T")


class Ending(NamedTuple):
    """Why a process ends, in a sentence, and its exit code."""

    sentence: str
    code: int


Check = Callable[[], Ending | None]

_ANSWER = 10
"""Seconds within which a store answers, or is known not to."""
_LEFT = b"left"
"""What a rank says last whom nobody needs any more."""


class Store(Protocol):
    """What the launcher has for all ranks to see: values by name."""

    def set(self, key: str, value: str, /) -> None:
        """Let all ranks see a value."""

    def multi_get(self, keys: list[str], /) -> list[bytes]:
        """The values of several names."""


class Watch:
    """Looks every second whether this process must end.

    Args:
        checks: What is looked at.
    """

    def __init__(self, checks: Sequence[Check]) -> None:
        self._checks = checks
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no longer: the thread has ended, unless it waits for a store that does not answer.

        One that still talks to a store while the interpreter ends would abort the process.
        """
        self._over.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=_ANSWER)

    def _run(self) -> None:
        while not self._over.wait(1):
            for check in self._checks:
                try:
                    ending = check()
                except Exception as error:  # nobody would watch any more
                    ending = Ending(f"The watch over this run failed ({reason(error)}); go on with {BY_ITSELF}.", 1)
                if ending is not None and not self._over.is_set():
                    tell(ending.sentence)
                    leave(ending.code)


_tidying: list[Callable[[], None]] = []


@contextlib.contextmanager
def tidied(tidy: Callable[[], None]) -> Iterator[None]:
    """Where a process that ends at once is to tidy up before."""
    _tidying.append(tidy)
    try:
        yield
    finally:
        _tidying.remove(tidy)


def leave(code: int) -> None:
    """End this process now, whatever its other threads wait for."""
    for tidy in _tidying:
        with contextlib.suppress(Exception):  # whatever keeps it from that, it ends
            tidy()
    flush()
    os._exit(code)


def within(seconds: float, ask: Callable[[], T]) -> T:
    """What is answered within so many seconds.

    A connection whose network is gone answers nothing and does not fail: who waits for it is left behind.

    Raises:
        TimeoutError: If nothing is.
    """
    answer: Future[T] = Future()

    def wait() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=wait, name="asking", daemon=True).start()
    return answer.result(timeout=seconds)


def stopped_late(grace: float) -> Check:
    """Ends a process that was asked to end and did not come to the end of its round within ``grace`` seconds.

    It may have been asked while it waited for another rank, and not have come to hear it at all.
    """

    def check() -> Ending | None:
        came = STOP.came()
        ends_by_itself = STOP.heard is not None and not STOP.deferred
        if came is None or ends_by_itself or time.monotonic() - came < grace:
            return None
        return Ending(
            f"Stopped by {STOP.number.name}: the round did not end within {grace:g} s and is given up; go on from the "
            f"one before with {BY_ITSELF}, which begins anew if it was the first.",
            128 + STOP.number,
        )

    return check


def orphaned() -> Check:
    """Ends a process whose launcher is gone: nobody would end it when another rank fails."""

    def check() -> Ending | None:
        if os.getppid() == launcher():
            return None
        return Ending(f"The launcher of this run is gone; go on from the last checkpoint with {BY_ITSELF}.", 1)

    return check


class Heartbeats:
    """Ends a process when another rank has not been heard of for some time, while there is a run.

    Between runs this rank goes on saying that it is alive, to those whose next run has begun already, and gives up
    nobody: who has come to its end before the others may be gone.

    Args:
        connect: Gives a connection of this thread's own to a store that all ranks reach.
        rank: This process's rank.
        ranks: How many there are.
        patience: After how many seconds a rank is given up.

    Attributes:
        round: Which round this process plays.
    """

    def __init__(self, connect: Callable[[], Store], rank: int, ranks: int, patience: float) -> None:
        self.rank, self.patience = rank, patience
        self.round = 0
        self._connect = connect
        self._every = min(5.0, patience / 6)
        self._beat = 0
        self._told = [b""] * ranks
        self._heard = [0.0] * ranks
        self._looked = 0.0
        self._needed, self._gone = True, False  # as in a run; whether the store is gone, between runs
        self._run, self._failed = 1, 0  # which it is, and which failed here last
        self._store: Store | None = self._say(None)  # all have said something before anybody listens

    def begin(self, patience: float) -> None:
        """A run begins: who says nothing from now on is given up, and so is who has left, since all are needed."""
        self.patience, self.round, self._run, self._failed = patience, 0, self._run + 1, 0
        self._every = min(5.0, patience / 6)
        self._heard = [time.monotonic()] * len(self._heard)
        self._needed, self._gone = True, False

    def end(self, *, failed: bool) -> None:
        """A run has ended here; where it failed others may be in the middle of it, and are not to wait for that."""
        self._needed, self._failed = failed, self._run if failed else 0

    def between_runs(self) -> Ending | None:
        """Say that this rank is alive, and hear the others; nothing that goes wrong ends what is done meanwhile.

        It is said as often as this is asked, since the next run may be less patient.
        """
        self._looked = time.monotonic()
        if not self._gone:  # or torch tells of the store every ten seconds for as long as the program works
            with contextlib.suppress(Exception):
                self._gone = not self._listen(self._looked)
        return None

    def leave(self) -> None:
        """Say that this rank ends, and that nobody needs it for what is left of a run, if that is so."""
        with contextlib.suppress(RuntimeError):  # the store goes just now
            if not self._needed and not self._gone:
                (self._store or self._connect()).set(str(self.rank), _LEFT.decode())

    def __call__(self) -> Ending | None:
        """Say that this rank is alive, and look at the others."""
        now = time.monotonic()
        if now - self._looked < self._every:
            return None
        if now - self._looked > 3 * self._every:  # this process itself was stopped for a while, or begins
            self._heard = [max(now, heard) for heard in self._heard]
        reached = self._listen(now)
        self._looked = time.monotonic()
        silent = [rank for rank, heard in enumerate(self._heard) if now - heard > self.patience]
        if not silent:
            return None
        who = f"Rank {silent[0]} has" if reached else "The launcher's store has"
        return Ending(
            f"{who} not been heard of for {self.patience:g} s, in round {self.round}: its process is stopped, or its "
            f"machine or network is gone. All ranks end; go on with {BY_ITSELF}.",
            1,
        )

    def _say(self, store: Store | None) -> Store:
        store = store or self._connect()
        self._beat += 1
        store.set(str(self.rank), f"{self._beat} {self._failed}")
        return store

    def _asked(self, store: Store | None) -> tuple[Store, list[bytes]]:
        """Say that this rank is alive, and what all say."""
        store = self._say(store)
        return store, store.multi_get(list(map(str, range(len(self._told)))))

    def _listen(self, now: float) -> bool:
        """Note who is alive; returns whether the store could be reached."""
        try:
            self._store, told = within(_ANSWER, partial(self._asked, self._store))
        except (RuntimeError, TimeoutError):  # what comes in late on that connection would be taken for another answer
            self._store = None
            return False
        self._heard = [
            heard if new == old or new.endswith(f" {self._run}".encode()) else math.inf if new == _LEFT else now
            for new, old, heard in zip(told, self._told, self._heard, strict=True)
        ]
        self._told = told
        return True
