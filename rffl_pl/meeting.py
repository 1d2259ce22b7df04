"""Where ranks meet, and what they leave there for one another: the launcher's store."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from datetime import timedelta

import torch.distributed as dist

from rffl_pl import launch
from rffl_pl.errors import UserError, reason
from rffl_pl.launch import words

_ARRIVAL = timedelta(minutes=30)
_LONG = 20
"""Seconds after which a rank that waits to meet the others says so."""


def store_at(listener: socket.socket) -> dist.Store:
    """The store of a launch, served on a listening socket; what torchrun has in its own process."""
    host, port = listener.getsockname()
    return dist.TCPStore(  # libuv's takes no socket that listens already
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=False
    )


def meet(backend: str) -> tuple[dist.Store, set[str]]:
    """Wait for all ranks at the launcher's store.

    Args:
        backend: What this rank would have the process group be.

    Returns:
        A part of the store in which nothing is yet, and what all ranks would.

    Raises:
        UserError: If not all come, or were not told of as many ranks.
    """
    rank, ranks = launch.rank(), launch.world_size()
    waiting = threading.Timer(_LONG, _tell_of_waiting)
    waiting.daemon = True
    waiting.start()
    try:
        ours: dist.Store = next(dist.rendezvous("env://", timeout=_ARRIVAL))[0]
        store = dist.PrefixStore(_fresh_prefix(ours, rank, ranks), ours)
        store.set(f"backend of {rank}", backend)
        return store, {store.get(f"backend of {other}").decode() for other in range(ranks)}
    except (RuntimeError, TimeoutError) as error:
        raise UserError(_why_not_met(error)) from error
    finally:
        waiting.cancel()


def _place() -> str:
    return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"


def _tell_of_waiting() -> None:
    launch.say(f"Waiting for {launch.world_size()} ranks to meet at {_place()}.")


def _why_not_met(error: Exception) -> str:
    """The sentence on ranks that did not meet."""
    if "EADDRINUSE" in str(error):
        return (
            f"Expected port {os.environ['MASTER_PORT']} of this machine to be free for ranks to meet, but another "
            "process has it; have the launcher give another MASTER_PORT, and see that one process alone has RANK 0."
        )
    return (
        f"Expected {launch.world_size()} ranks to meet at {_place()} within {_ARRIVAL.seconds // 60} minutes, "
        f"but not all came ({reason(error)}); see that every node was started and reaches it."
    )


def _fresh_prefix(store: dist.Store, rank: int, ranks: int) -> str:
    """A name under which nothing is in the store, the same for all ranks.

    After a restart the store still has what the ranks before wrote, and where one listened nobody answers. Rank 0
    chooses the name and gives it to whoever asks with a number that nobody used before.
    """
    question = os.urandom(8).hex()
    if rank != 0:
        store.set(f"question of {rank}", f"{question} of {ranks}")
        prefix = store.get(f"answer to {question}").decode()
        store.set(f"{prefix}: heard by {rank}", "")
        return prefix
    answered: set[str] = set()
    waiting = set(range(1, ranks))
    until = time.monotonic() + _ARRIVAL.seconds
    while waiting:
        if time.monotonic() > until:
            raise TimeoutError
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
        time.sleep(0.01)
    return question


_met: list[str] = []
"""Under which name this process's ranks have what they say in the launcher's store; nothing where there is one rank."""
_LAST = "last word"


def met(mark: str) -> None:
    """All ranks are here, and have something in common that no other launch has."""
    _met[:] = [mark]


def left() -> None:
    """They go apart."""
    _met.clear()


def leave_word(sentence: str) -> None:
    """Leave why this rank ends to those that will find it gone; the first one that does is heard."""
    with contextlib.suppress(RuntimeError):  # the store is gone as well
        for mark in _met:
            connection(mark).compare_set(_LAST, "", words.spoken(sentence))


def last_word() -> str | None:
    """What the first rank that ended has left, as `rffl_pl.launch.words` has it; None of one that could not."""
    with contextlib.suppress(RuntimeError):
        for mark in _met:
            store = connection(mark)
            if store.check([_LAST]):
                return store.get(_LAST).decode()
    return None


def connection(prefix: str) -> dist.Store:
    """Another connection to the launcher's store, so that whoever waits on the first one holds up nobody."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.PrefixStore(prefix, dist.TCPStore(host, port, None, False, timedelta(seconds=5)))
