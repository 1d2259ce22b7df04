"""A process that is asked to end by SIGTERM, as torchrun, Slurm and Kubernetes do before they kill it."""

from __future__ import annotations

import contextlib
import os
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


class _Arrivals:
    """The numbers of signals as the kernel delivers them, which needs no main thread that comes to hear them.

    Somebody else who reads them, as an event loop does, keeps them to himself.
    """

    def __init__(self) -> None:
        self._pipe: tuple[int, int] | None = None  # for good: a number that is closed may be another file's already
        self._open = False

    def open(self) -> None:
        """Begin; what came before is forgotten."""
        if self._pipe is None:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
        self.read()
        older = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._open = older == -1
        if not self._open:
            signal.set_wakeup_fd(older)

    def close(self) -> None:
        """End, in the thread that began."""
        if self._open:
            signal.set_wakeup_fd(-1)
            self._open = False

    def read(self) -> bytes:
        """What has come since the last time."""
        if self._pipe is None:
            return b""
        try:
            return os.read(self._pipe[0], 1 << 16)
        except BlockingIOError:
            return b""


class StopSignal:
    """Hears SIGTERM; an older handler hears it too.

    While rounds are played it is kept in mind, since ranks have to end together; else `Stopped` is raised at once.
    A main thread that waits for another rank hears nothing before it has come back: other threads ask `came`.

    Attributes:
        heard: When the main thread heard it first, by the monotonic clock in seconds.
        deferred: Whether it is kept in mind.
    """

    number = signal.SIGTERM

    def __init__(self) -> None:
        self.heard: float | None = None
        self.deferred = False
        self._older: signal._HANDLER = None
        self._arrivals = _Arrivals()
        self._seen: float | None = None

    def listen(self) -> None:
        """Hear the signal from now on, though somebody else took it over since the last time."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self._older is None:
            found = signal.getsignal(self.number)
            # Lightning puts back what it found, also what hears nothing any more.
            self.heard, self._older = None, signal.SIG_DFL if found == self._hear else found
            self._seen = None
            self._arrivals.open()
        if self._older is not signal.SIG_IGN:
            signal.signal(self.number, self._hear)

    def ignore(self) -> None:
        """Leave the signal to the older handler."""
        if self._older is not None and threading.current_thread() is threading.main_thread():
            signal.signal(self.number, self._older)
            self._arrivals.close()
            self._older = None
        self.deferred = False

    def forget(self) -> None:
        """Hear no more of what comes to the process that this one was forked from: they would share the pipe."""
        self._arrivals.close()
        self._arrivals = _Arrivals()

    def came(self) -> float | None:
        """When it came first, whether the main thread has heard it or not; for one thread that asks again and again."""
        if self.number in self._arrivals.read():
            self._seen = self._seen or time.monotonic()
        return self.heard or self._seen

    def comes(self, seconds: float) -> bool:
        """Whether it has been heard, or is within so many seconds; for the main thread, while it is kept in mind."""
        until = time.monotonic() + seconds
        while self.heard is None and time.monotonic() < until:
            time.sleep(0.05)
        return self.heard is not None

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

os.register_at_fork(after_in_child=STOP.forget)
