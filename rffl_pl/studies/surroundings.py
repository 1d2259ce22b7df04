"""What a process has once and every run leaves otherwise: environment, streams, warnings, random numbers, kernels."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

import torch

from rffl_pl.functional.streams import python_numpy_state, restore_python_numpy
from rffl_pl.launch.stopping import STOP


class Surroundings:
    """Those of one of several runs that take turns in this process; to begin with what the process has now.

    A run keeps what it left when it was last at work: messages go to its own log, what it draws at random does not
    depend on the others, and what it sets in the environment is not seen by them.
    """

    def __init__(self) -> None:
        self._state = _taken()
        filters, shown = self._state["warnings"]
        self._state["warnings"] = (list(filters), shown)  # which are changed in place

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Inside, the process is as the run left it; afterwards as it was before."""
        before = _taken()
        _put(self._state)
        try:
            yield
        finally:
            self._state = _taken()
            _put(before)

    def leave(self) -> None:
        """Let go of the streams; the run has ended."""
        for number in self._state["numbers"]:
            os.close(number)


def kernels() -> tuple[bool, bool, bool]:
    """The settings by which torch chooses kernels, which a trainer's options set for the process and nobody takes back.

    Returns:
        Whether deterministic ones alone will do, whether others are but warned of, and whether cuDNN tries which is
        the fastest.
    """
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled(), only_warned, torch.backends.cudnn.benchmark


def choose_kernels(deterministic: bool, only_warned: bool, tried: bool) -> None:
    """Have torch choose as `kernels` said."""
    if kernels()[:2] != (deterministic, only_warned):  # the first call imports a compiler for seconds
        torch.use_deterministic_algorithms(deterministic, warn_only=only_warned)
    torch.backends.cudnn.benchmark = tried


_State = dict[str, Any]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # what a full disk did not take is told of where the log is closed
            stream.flush()


def _taken() -> _State:
    """What the process has now; its two streams under numbers of their own, which `_put` closes."""
    _flush()
    return {
        "environment": dict(os.environ),
        "streams": (sys.stdout, sys.stderr),
        "numbers": [os.dup(1), os.dup(2)],
        "warnings": (warnings.filters, warnings.showwarning),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "others": python_numpy_state(),
        "kernels": kernels(),
        "deferred": STOP.deferred,
    }


def _put(state: _State) -> None:
    _flush()
    for name in os.environ.keys() - state["environment"].keys():
        del os.environ[name]
    os.environ.update(state["environment"])
    sys.stdout, sys.stderr = state["streams"]
    for number, kept in zip((1, 2), state["numbers"], strict=True):
        os.dup2(kept, number)
        os.close(kept)
    warnings.filters, warnings.showwarning = state["warnings"]
    with warnings.catch_warnings():  # has every module forget what it warned of, in whichever run
        pass
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    restore_python_numpy(state["others"])
    choose_kernels(*state["kernels"])
    STOP.deferred = state["deferred"]


@contextlib.contextmanager
def spoken_into(file: TextIO) -> Iterator[None]:
    """Have Python's streams go to a file, and what libraries write past them."""
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
