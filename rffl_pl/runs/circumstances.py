"""What a run was computed with: versions, machine, and the commit of a checkout."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path

import torch

from rffl_pl import __version__

_PACKAGE = Path(__file__).parent.parent


@functools.cache
def circumstances() -> dict[str, str]:
    """This process's, by name."""
    devices = [torch.cuda.get_device_name()] if torch.cuda.is_available() else []
    return {
        "rffl_pl": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": ", ".join([platform.node(), f"{os.cpu_count()} cores", *devices]),
        "commit": _commit(),
    }


def _commit() -> str:
    """The commit of a git checkout of the package, with a + if it was changed since; else nothing."""
    if not (_PACKAGE.parent / ".git").exists():
        return ""
    words = ["git", "-C", str(_PACKAGE), "describe", "--always", "--abbrev=12", "--match=", "--dirty=+"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
