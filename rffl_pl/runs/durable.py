"""Files that are whole or not there, whenever a process is killed, the power fails or a disk is full."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rffl_pl.errors import UserError


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A file to write what takes the place of ``path``: beside it, and renamed when it is whole and on the disk.

    Raises:
        UserError: If it cannot be written; what was there before still is.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        on_disk([partial])
        partial.replace(path)
        on_disk([path.parent])
    except (OSError, RuntimeError) as error:
        partial.unlink(missing_ok=True)
        raise UserError(
            f"Expected to write {path}, but {why_not_written(error)}; make room, and go on with --ckpt_path last."
        ) from error


def why_not_written(error: BaseException) -> str:
    """What the system says; torch's writer hides it behind a complaint of its own."""
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, OSError) and behind.strerror:
            return behind.strerror + (f": {behind.filename}" if behind.filename else "")
        behind = behind.__cause__ or behind.__context__
    return " ".join(str(error).split())


def on_disk(paths: Iterable[Path]) -> None:
    """Wait until files, or folders' names, are on the disk; several at a time cost little more than one.

    Raises:
        OSError: If one cannot be written.
    """
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(_flush, paths))


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
