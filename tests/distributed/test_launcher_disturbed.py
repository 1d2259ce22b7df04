"""``--ranks`` where the process that forks them has other children, no output, or is asked to end meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.distributed

ENDS = """
from rffl_pl.launch.fork import become_ranks
become_ranks(2, lambda listener: None)
"""

ASKED_EARLY = """
import os, signal, time
from rffl_pl.launch.fork import become_ranks
fork = os.fork

def asked() -> int:
    process = fork()
    if process:
        os.kill(os.getpid(), signal.SIGTERM)
    return process

os.fork = asked
become_ranks(2, lambda listener: None)
time.sleep(300)
"""


def shell(script: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script whose argument is a command; until all have ended that can write to its standard error."""
    words = ["bash", "-c", script, sys.executable, "-c", program]
    return subprocess.run(words, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False, timeout=100)


@pytest.mark.slow
def test_other_children_and_no_output() -> None:
    """A child of the shell that became this process is taken for a rank, or a stream that is not there is flushed."""
    ended = shell('(exit 3) & exec "$0" "$@" >&-', ENDS)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_asked_to_end_while_ranks_are_forked() -> None:
    """The ranks that are there live on without a launcher."""
    ended = shell('exec "$0" "$@"', ASKED_EARLY)
    assert (ended.returncode, ended.stderr) == (143, "")
