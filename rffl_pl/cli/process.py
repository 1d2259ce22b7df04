"""What a process needs of the machine: readers that may leave, its memory kept, its terminal quiet."""

from __future__ import annotations

import ctypes
import gc
import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from rffl_pl import launch


class Outlasting:
    """A stream that goes on when nobody takes what is written: from then on it goes nowhere.

    Its reader has left, as ``head`` does, its terminal is gone, or its disk is full; the work is what counts.

    Args:
        stream: Standard output or standard error; all that is not writing stays its own.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, whether anybody reads it or not."""
        try:
            return self._stream.write(text)
        except OSError:
            self._let_go()
            return len(text)

    def flush(self) -> None:
        """Flush, whether anybody reads it or not."""
        try:
            self._stream.flush()
        except OSError:
            self._let_go()

    def _let_go(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # libraries write past Python, and the interpreter flushes at its end
        os.close(nowhere)


def outlast_readers() -> None:
    """Have work go on whose readers leave, and characters that a terminal cannot show become question marks."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # standard error replaces them by itself
        sys.stdout.reconfigure(errors="replace")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed before this process began
            stream = Path(os.devnull).open("w", encoding="utf-8", errors="replace")  # noqa: SIM115  # it lasts as long as the process
        if not isinstance(stream, Outlasting):
            setattr(sys, name, cast(TextIO, Outlasting(stream)))


@contextmanager
def importing() -> Iterator[None]:
    """Import torch and Lightning without looking for garbage, neither meanwhile nor later in what they leave.

    Nearly all of that half a million objects stay. Looking through them while they come takes a fifth of the time of
    importing, every full collection afterwards 0.3 s, and the end of the process 2. Ctrl-C ends it at once, since
    nothing is begun: libraries make another error of a KeyboardInterrupt, or take it for their own. In a process that
    has torch already nothing is done.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    handler = signal.getsignal(signal.SIGINT)
    ours = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if ours:  # who ignores it, as jobs in the background do, goes on
        signal.signal(signal.SIGINT, _interrupted)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, handler)
        gc.freeze()
        gc.enable()


def _interrupted(*_: object) -> NoReturn:
    launch.tell("Interrupted.")
    os._exit(130)


def keep_freed_memory() -> None:
    """Have glibc keep freed memory instead of returning it to the kernel.

    Activations lie above its mmap threshold, so that every training step would map and unmap them: without the page
    faults training on the CPU is 1.4 times as fast. Elsewhere than on glibc nothing happens.
    """
    mmap_threshold, trim_threshold, top_pad = -3, -1, -2
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for parameter, size in ((mmap_threshold, 1 << 25), (trim_threshold, 1 << 30), (top_pad, 1 << 28)):
        mallopt(parameter, size)


def be_quiet() -> None:
    """Leave the terminal to the run: Lightning's notes on devices and loaders say nothing about a federation."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("lightning.pytorch.profilers").setLevel(logging.INFO)  # who asks for a report reads it
    warnings.formatwarning = lambda message, *_, **__: f"Warning: {message}\n"
    for message in (
        ".*isinstance.treespec, LeafSpec.*",
        ".*does not have many workers.*",
        ".*smaller than the logging interval.*",  # of the batches of an epoch, which is a round here
        ".*Checkpoint directory .* exists.*",
        ".*Experiment logs directory .* exists.*",
        ".*LightningCLI's args parameter is intended.*",
        ".*have not yet implemented the batching rule.*",  # of stacks, which train all the same
        ".*RNN module weights are not part of single contiguous.*",  # they are part of the vector that travels
        ".*srun. command is available on your system but is not used.*",  # Slurm may be there; ranks are torchrun's
    ):
        warnings.filterwarnings("ignore", message=message)
