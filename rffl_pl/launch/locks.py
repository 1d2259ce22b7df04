"""Files that one process at a time has to itself."""

from __future__ import annotations

import fcntl
import time
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
