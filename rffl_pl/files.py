"""Files and folders that several processes come by.

One at a time has a file to itself, and who reads one never sees half of it. A folder that was made for what then did
not come is taken away, unless another process has put something there. What lies in a file is told by a digest.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


def locked(file: IO[Any], patience: float) -> bool:
    """Whether this process has a file to itself now; the kernel lets go of it when the file is closed.

    Where the file system has no locks everybody has it.

    Args:
        file: An open file.
        patience: Seconds to wait for another process that has it.
    """
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.1)
        except OSError:  # a file system without locks
            return True
        else:
            return True


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Where to write what takes a file's place at the end, at once; if it fails, what was there before still is.

    The place is nobody else's: of several who replace one file the last one's stays, whole. A link stays one: what it
    leads to is replaced.

    Raises:
        OSError: If the file cannot be replaced.
    """
    path = path.resolve()
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def content_of(file: Path) -> str:
    """A digest of what lies in a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def user_cache() -> Path:
    """The package's part of the user's cache folder.

    In a container whose user has neither a name nor a home it lies in the folder of what is temporary.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        folder = Path(tempfile.gettempdir())
    return folder / "rffl_pl"


def absent(folder: Path) -> list[Path]:
    """The folder and those above it that do not exist, the innermost first."""
    return [path for path in (folder, *folder.parents) if not os.path.exists(path)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those that are there and empty."""
    for folder in folders:
        with suppress(OSError, ValueError):
            folder.rmdir()
