"""Standard output that nothing can be written to any more: the work goes on, and its exit code says how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest

from rffl_pl.cli.process import Outlasting
from tests.conftest import ROOT


def full_disk() -> TextIO:
    return Path("/dev/full").open("w")


def closed_terminal() -> TextIO:
    ours, its = os.openpty()
    os.close(ours)
    return os.fdopen(its, "w")


@pytest.mark.parametrize("lost", [full_disk, closed_terminal])
@pytest.mark.parametrize("text", ["x", "x" * 100_000], ids=["buffered", "at once"])
def test_what_cannot_be_written_goes_nowhere(lost: Callable[[], TextIO], text: str) -> None:
    """A finished run fails by it, there or when the interpreter closes the stream."""
    stream = lost()
    outlasting = Outlasting(stream)
    for _ in range(2):
        assert outlasting.write(text) == len(text)
        outlasting.flush()
    stream.close()


def test_no_standard_output_at_all() -> None:
    """A process that was started without has no stream, not one that is closed."""
    program = (
        "import sys\nfrom rffl_pl.cli.process import outlast_readers\noutlast_readers()\nsys.stdout.write('3 · 4')"
    )
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, program],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
