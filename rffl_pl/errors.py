"""The one exception that is a user's to mend, and what may have been meant."""

from __future__ import annotations

import difflib
import os
import traceback
from collections.abc import Iterable
from pathlib import Path


class UserError(ValueError):
    """A mistake in the configuration, the data or a file that a user handed in.

    The command line prints its message as one sentence, once on each node, and exits with code 2; every
    other exception is a bug of ours and keeps its traceback.
    """


MOST = 2**31 - 1
"""What no size of a run comes near, and every library can still count to."""


def check_number(option: str, value: float | None, least: float, most: float = MOST, remedy: str = "") -> None:
    """See that a number lies in a range, whatever was given instead of one.

    Args:
        option: As it is typed.
        value: What was given.
        least: The smallest that is taken.
        most: The largest.
        remedy: What to do, behind the message.

    Raises:
        UserError: If it does not.
    """
    if not isinstance(value, int | float) or not value >= least:
        raise UserError(f"Expected {option} to be at least {least}, but got {value}{remedy and f'; {remedy}'}.")
    if value > most:
        raise UserError(f"Expected {option} to be at most {most}, but got {value:g}{remedy and f'; {remedy}'}.")


def check_folder(option: str, folder: str) -> None:
    """See that something can be the name of a folder.

    Args:
        option: As it is typed.
        folder: What was given.

    Raises:
        UserError: If it is empty, has several lines or other characters that cannot be seen, or is too long for a disk.
    """
    if (
        not isinstance(folder, str)
        or not folder.strip()
        or not folder.isprintable()
        or any(len(os.fsencode(part)) > 255 for part in Path(folder).parts)
    ):
        raise UserError(
            f"Expected {option} to be the name of a folder, one line of at most 255 bytes, but got {folder!r}."
        )


def reason(error: BaseException) -> str:
    """An exception in one line, with the place in a user's own file: ``KeyError: 'x' (my_data.py, line 9)``."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own and own[-1] == frames[-1] else ""
    return f"{type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}{place}"


def nearest(name: str, known: Iterable[str], likeness: float = 0.55) -> str:
    """``; did you mean A or B?`` if something known is near to a name, whatever its case; else nothing."""
    by_lower = {entry.lower(): entry for entry in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=likeness)
    return f"; did you mean {' or '.join(by_lower[entry] for entry in near)}?" if near else ""
