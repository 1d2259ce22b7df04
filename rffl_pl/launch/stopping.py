"""A process that is asked to end by SIGTERM, as torchrun, Slurm and Kubernetes do before they kill it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType


class Stopped(SystemExit):
    """The end of a process that was asked to: a shell sees 128 and the signal's number, 143.

    Args:
        number: The signal's.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number).name


class StopSignal:
    """Hears SIGTERM; an older handler hears it too.

    While rounds are played it is kept in mind, since ranks have to end together; else `Stopped` is raised at once.

    Attributes:
        heard: When it came first, by the monotonic clock in seconds.
        deferred: Whether it is kept in mind.
    """

    number = signal.SIGTERM

    def __init__(self) -> None:
        self.heard: float | None = None
        self.deferred = False
        self._older: signal._HANDLER = None

    def listen(self) -> None:
        """Hear the signal from now on, though somebody else took it over since the last time."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self._older is None:
            self.heard, self._older = None, signal.getsignal(self.number)
        if self._older is not signal.SIG_IGN:
            signal.signal(self.number, self._hear)

    def ignore(self) -> None:
        """Leave the signal to the older handler."""
        if self._older is not None and threading.current_thread() is threading.main_thread():
            signal.signal(self.number, self._older)
            self._older = None
        self.deferred = False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep the signal in mind, and raise nothing, for what must come to its end in a process that ends anyway."""
        before, self.deferred = self.deferred, True
        try:
            yield
        finally:
            self.deferred = before

    def _hear(self, number: int, frame: FrameType | None) -> None:
        first = self.heard is None
        self.heard = self.heard or time.monotonic()
        if callable(self._older):
            self._older(number, frame)
        if first and not self.deferred:
            raise Stopped(number)


STOP = StopSignal()
"""This process's."""
