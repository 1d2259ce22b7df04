"""Files that are whole or not there, whenever a process is killed, the power fails or a disk is full."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rffl_pl.errors import UserError, words_of

_AT_A_TIME = 8
"""Files that wait for the disk together."""
_MANY = 32
"""Of fewer files that are removed waiting for the disk costs less than threads do."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def put(files: Iterable[tuple[Path, Callable[[BinaryIO], object]]]) -> None:
    """Write files, each by a function of its own; many wait for the disk together.

    Each is written beside what it takes the place of, and renamed once all are whole and on the disk; folders are made.

    Raises:
        UserError: If one cannot be written; what was there before still is.
    """
    partials: dict[Path, Path] = {}
    path = Path()
    try:
        for path, write in files:  # which it was is told below
            path.parent.mkdir(parents=True, exist_ok=True)
            partials[path] = path.with_name(f".{path.name}.partial")
            with partials[path].open("wb") as file:
                write(file)
        on_disk(partials.values())
        for path, partial in partials.items():
            partial.replace(path)
        on_disk({path.parent for path in partials})
    except (OSError, RuntimeError) as error:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
        end_if_asked(error)
        raise _unwritten(path, error) from error


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Where something is written into a file without more ado, as a line is added.

    Raises:
        UserError: If the disk does not take it.
    """
    try:
        yield
    except OSError as error:
        raise _unwritten(path, error) from error


def _unwritten(path: Path, error: BaseException) -> UserError:
    why = why_not_written(error).removesuffix(f": {path}")
    return UserError(f"Expected to write {path}, but {why}; {remedy(error)}, and go on with --ckpt_path last.")


def end_if_asked(error: BaseException) -> None:
    """End where that is what was asked for in the middle of writing: torch's writer makes an error of its own of it.

    Raises:
        KeyboardInterrupt: If a user has interrupted it; or as a signal has it, a `SystemExit`.
    """
    for one in _behind(error):
        if not isinstance(one, Exception):
            raise one


def why_not_written(error: BaseException) -> str:
    """What the system says; torch's writer hides it behind a complaint of its own."""
    for one in _behind(error):
        if isinstance(one, OSError) and one.strerror:
            return one.strerror + (f": {one.filename}" if one.filename else "")
    return words_of(error)


def remedy(error: BaseException) -> str:
    """What to do about it; torch's writer, where it tells nothing of the system, has had no room."""
    numbers = {one.errno for one in _behind(error) if isinstance(one, OSError)}
    return "see to that" if numbers and not numbers & _FULL else "make room"


def _behind(error: BaseException) -> Iterator[BaseException]:
    """An error, what it was made of, and what that was made of."""
    behind: BaseException | None = error
    while behind is not None:
        yield behind
        behind = behind.__cause__ or behind.__context__


def on_disk(paths: Iterable[Path]) -> None:
    """Wait until files, or folders' names, are on the disk; several at a time cost little more than one.

    Raises:
        OSError: If one cannot be written.
    """
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        list(pool.map(_flush, paths))


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if there is one; many files several at a time.

    Raises:
        OSError: If it cannot be removed.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    files = [file for file in path.iterdir() if not file.is_dir()]
    if len(files) > _MANY:
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            list(pool.map(Path.unlink, files))
    shutil.rmtree(path)


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
