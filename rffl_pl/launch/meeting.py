"""How ranks meet at the launcher's store, and what they leave there for one another."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Protocol

from rffl_pl import launch
from rffl_pl.errors import UserError, reason
from rffl_pl.launch import watch, words

ARRIVAL = timedelta(minutes=30)
_LONG = 20
"""Seconds after which a rank that waits to meet the others says so."""
_LAST = "last word"
_ABSENT = "why one does not come"


class Store(watch.Store, Protocol):
    """The launcher's store, with what ranks need of it to meet, beside what `rffl_pl.launch.watch` needs."""

    def get(self, key: str, /) -> bytes:
        """The value of a name, once there is one."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all these names have one."""

    def compare_set(self, key: str, expected: str, value: str, /) -> bytes:
        """Let all ranks see a value, unless there is another than expected."""


@contextlib.contextmanager
def told_of_waiting(to: str) -> Iterator[None]:
    """Have it said that this rank waits for others, if it does for long.

    Args:
        to: What they are to do.
    """
    waiting = threading.Timer(_LONG, launch.say, [f"Waiting for {launch.world_size()} ranks to {to}."])
    waiting.daemon = True
    waiting.start()
    try:
        yield
    finally:
        waiting.cancel()


def place() -> str:
    """Where ranks meet: the launcher's store."""
    return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"


def why_not_met(error: Exception) -> str:
    """The sentence on ranks that did not meet."""
    if "EADDRINUSE" in str(error):
        return (
            f"Expected port {os.environ['MASTER_PORT']} of this machine to be free for ranks to meet, but another "
            "process has it; have the launcher give another MASTER_PORT, and see that one process alone has RANK 0."
        )
    return (
        f"Expected {launch.world_size()} ranks to meet at {place()} within {ARRIVAL.seconds // 60} minutes, "
        f"but not all came ({reason(error)}); see that every node was started and reaches it."
    )


def why_not_connected(error: Exception) -> str:
    """The sentence on a rank that has met the others, but cannot reach them by gloo, each by its own address."""
    if found := re.search(r"Unable to find address for: (\S+)", str(error)):
        return (
            f"Expected GLOO_SOCKET_IFNAME to name a network of this machine, but got {found[1]}, which is none; "
            "`ip address` lists them."
        )
    address = re.search(r"remote=\[(\S+)\]:(\d+)", str(error))
    why = reason(error) if address is None else f"nobody answers at {address[1]}, port {address[2]}"
    return (
        f"Expected rank {launch.rank()} to reach the other ranks, but {why}; give every machine GLOO_SOCKET_IFNAME, "
        "the network by which the others reach it, as eth0, and see that no firewall is between."
    )


def fresh_prefix(store: Store, rank: int, ranks: int) -> str:
    """A name under which nothing is in the store, the same for all ranks.

    After a restart the store still has what the ranks before wrote, and where one listened nobody answers. Rank 0
    chooses the name and gives it to whoever asks with a number that nobody used before.
    """
    question = os.urandom(8).hex()
    until = time.monotonic() + ARRIVAL.seconds
    if rank != 0:
        store.set(f"question of {rank}", f"{question} of {ranks}")
        while not store.check([f"answer to {question}"]):
            _wait(store, until)
        prefix = store.get(f"answer to {question}").decode()
        store.set(f"{prefix}: heard by {rank}", "")
        return prefix
    answered: set[str] = set()
    waiting = set(range(1, ranks))
    while waiting:
        for other in [other for other in waiting if store.check([f"question of {other}"])]:
            asked, _, theirs = store.get(f"question of {other}").decode().partition(" of ")
            if asked not in answered:
                # torchrun tells all alike, and keeps what ranks wrote before a restart, when they may have been more.
                if theirs != str(ranks) and "TORCHELASTIC_RUN_ID" not in os.environ:
                    raise UserError(
                        f"Expected all ranks to have the same WORLD_SIZE, but rank {other} has {theirs} and rank 0 has "
                        f"{ranks}; give it alike on all nodes."
                    )
                store.set(f"answer to {asked}", question)
                answered.add(asked)
            if store.check([f"{question}: heard by {other}"]):
                waiting.remove(other)
        _wait(store, until)
    return question


def _wait(store: Store, until: float) -> None:
    """Wait a moment for others to come.

    Raises:
        TimeoutError: If it is too late.
        UserError: If one of them does not come, with what it has left.
    """
    if store.check([_ABSENT]):
        raise UserError(words.heard(store.get(_ABSENT).decode(errors="replace")))
    if time.monotonic() > until:
        raise TimeoutError
    time.sleep(0.01)


def leave_absence(store: Store, sentence: str) -> None:
    """Leave why this rank does not come to those that wait for it; the first one that does is heard."""
    store.compare_set(_ABSENT, "", words.spoken(sentence))


def absent(connect: Callable[[], Store]) -> watch.Check:
    """Ends a rank that waits for connections to others, one of which has left that it does not come.

    Args:
        connect: Gives a connection of this check's own to the launcher's store.
    """
    stores: list[Store] = []

    def check() -> watch.Ending | None:
        try:
            if not stores:
                stores.append(connect())
            if not stores[0].check([_ABSENT]):
                return None
            return watch.Ending(words.heard(stores[0].get(_ABSENT).decode(errors="replace")), 2)
        except RuntimeError as error:
            return watch.Ending(f"Expected ranks to connect, but {place()} has gone ({reason(error)}).", 1)

    return check


_stores: list[Callable[[], Store]] = []
"""Gives a connection to where this process's ranks leave something; nothing where there is one rank."""


def met(connect: Callable[[], Store]) -> None:
    """Ranks have met: this one may leave words for the others from now on.

    Args:
        connect: Gives a connection to a part of the store that no other launch has.
    """
    _stores[:] = [connect]


def left() -> None:
    """Ranks part: this one forgets the store where they leave words for one another."""
    _stores.clear()


def leave_word(sentence: str) -> None:
    """Leave why this rank ends to those that will find it gone; the first one that does is heard."""
    with contextlib.suppress(RuntimeError):  # the store is gone as well
        for connect in _stores:
            connect().compare_set(_LAST, "", words.spoken(sentence))


def last_word() -> str | None:
    """What the first rank that ended has left, as `rffl_pl.launch.words` has it; None of one that could not."""
    with contextlib.suppress(RuntimeError):
        for connect in _stores:
            store = connect()
            if store.check([_LAST]):
                return store.get(_LAST).decode(errors="replace")
    return None
