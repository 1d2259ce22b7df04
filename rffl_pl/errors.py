"""The one exception that is a user's to mend, and what may have been meant."""

from __future__ import annotations

import difflib
import math
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any

_AS_NEAR = 0.15
_PACKAGE = str(Path(__file__).parent)
_PYTHON = sysconfig.get_paths()["stdlib"]


class UserError(ValueError):
    """A mistake in the configuration, the data or a file that a user handed in.

    The command line prints its message as one sentence, once on each node, and exits with code 2; every
    other exception is a bug of ours and keeps its traceback.
    """


GO_ON = "mend it and go on with --ckpt_path last"
"""What to do where a round fails."""
BY_ITSELF = "--config RUN/config.yaml --ckpt_path last, where RUN is the run's folder"
"""How to resume a run whose folder the message cannot name: ``last`` alone may find another one of its name."""

LARGEST_COUNT = 2**31 - 1
"""What no size of a run comes near, and every library can still count to."""


def check_number(option: str, value: float | None, least: float, most: float = LARGEST_COUNT, remedy: str = "") -> None:
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
    if not isinstance(value, Real) or not value >= least:
        raise UserError(f"Expected {option} to be at least {least}, but got {value}{remedy and f'; {remedy}'}.")
    if value > most:
        raise UserError(f"Expected {option} to be at most {most}, but got {brief(value)}{remedy and f'; {remedy}'}.")


def check_positive(option: str, value: float, remedy: str = "") -> None:
    """See that a number is above 0 and finite; arguments as of `check_number`.

    Raises:
        UserError: If it is not.
    """
    _check(0 < value < math.inf, option, "be a positive number", value, remedy)


def check_not_negative(option: str, value: float, remedy: str = "") -> None:
    """See that a number is at least 0 and finite; arguments as of `check_number`.

    Raises:
        UserError: If it is not.
    """
    _check(0 <= value < math.inf, option, "be a number from 0 on", value, remedy)


def check_share(option: str, value: float, remedy: str = "", *, within: str = "[0, 1]") -> None:
    """See that a number lies between 0 and 1.

    Args:
        option: As it is typed.
        value: What was given.
        remedy: What to do, behind the message.
        within: The interval; a round bracket leaves out its end.

    Raises:
        UserError: If it does not.
    """
    at_an_end = (value == 0 and within.startswith("[")) or (value == 1 and within.endswith("]"))
    _check(0 < value < 1 or at_an_end, option, f"lie in {within}", value, remedy)


def _check(fits: bool, option: str, expected: str, value: float, remedy: str) -> None:
    if not fits:
        raise UserError(f"Expected {option} to {expected}, but got {value}{remedy and f'; {remedy}'}.")


def check_keys(node: Any, of: str) -> None:
    """See that every key of a YAML document stands once in its mapping: of several a parser silently takes the last.

    Args:
        node: What `yaml.compose` makes of it; None of an empty one.
        of: What it is of.

    Raises:
        UserError: If one is there again.
    """
    pairs = node.value if node is not None and isinstance(node.value, list) else []
    seen: set[tuple[str, str]] = set()
    for pair in pairs:
        key, *below = pair if isinstance(pair, tuple) else (None, pair)
        if key is not None and isinstance(key.value, str) and not key.tag.endswith(":merge"):
            if (key.tag, key.value) in seen:
                raise UserError(
                    f"Expected every key of {of} once in its place, but got {key.value} twice, again in line "
                    f"{key.start_mark.line + 1}; give it another name, or write what belongs to it in one place."
                )
            seen.add((key.tag, key.value))
        for one in below:
            check_keys(one, of)


def brief(number: float) -> str:
    """A number in few digits, also a whole one that is too large for them."""
    try:
        return f"{number:g}"
    except OverflowError:
        return f"a number of more than {sys.float_info.max_10_exp} digits"


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


@contextmanager
def writable(option: str) -> Iterator[None]:
    """Where something is written below a folder that an option names: what a disk refuses is one sentence.

    Args:
        option: As it is typed.

    Raises:
        UserError: If there is no writing.
    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"Expected {option} to be a folder that can be written to, but {error.strerror}: {error.filename}."
        ) from error


def words_of(error: BaseException) -> str:
    """What an exception says, in one line."""
    return " ".join(str(error).split())


def in_a_line(error: BaseException) -> str:
    """Which exception it is and what it says, in one line: ``ValueError: no such thing``."""
    return f"{type(error).__name__}: {words_of(error)}"


def at_home(option: str, folder: str) -> str:
    """A folder with somebody's home in place of what stands for it: behind an equals sign no shell does that.

    Args:
        option: As it is typed.
        folder: What was given.

    Raises:
        UserError: If nobody of that name has a home.
    """
    found = os.path.expanduser(folder)
    if found.startswith("~"):
        raise UserError(f"Expected {option} to be a folder, but got {folder}, which is nobody's home; give its path.")
    return found


def reason(error: BaseException) -> str:
    """An exception in one line, with the place in a user's own files and, at most, the two that led there.

    Such as ``KeyError: 'x' (my_data.py, line 9)`` or ``(my_tools.py, line 9, called from my_data.py, line 30)``.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((_PACKAGE, "<")) and not _of_others(frame)]
    return f"{in_a_line(error).rstrip('.')}{_place(own[-3:])}"


def _place(frames: Sequence[traceback.FrameSummary]) -> str:
    """Where frames are, the innermost, which is the last, first; a file is named where another one comes before it."""
    places, before = [], ""
    for frame in reversed(frames):
        name = Path(frame.filename).name
        places.append(f"{name}, line {frame.lineno}" if name != before else f"line {frame.lineno}")
        before = name
    return f" ({', called from '.join(places)})" if places else ""


def _of_others(frame: traceback.FrameSummary) -> bool:
    """Whether a file is a library's or Python's own."""
    return bool(re.search("(site|dist)-packages", frame.filename)) or frame.filename.startswith(_PYTHON)


def is_packaged(kind: type) -> bool:
    """Whether a class is the package's, and not somebody's own."""
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def path_of(kind: type | Callable[..., Any]) -> str:
    """The path that a class or a function is imported by, ``my_package.MyClass``."""
    return f"{kind.__module__}.{kind.__qualname__}"


def lost_a_rank(error: BaseException) -> bool:
    """Whether an exception says that the connection to another rank broke, where there is one."""
    signs = ("closed by peer", "reset by peer", "Broken pipe", "gloo/transport", "NCCL")
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    return several and isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


@contextmanager
def ones_own(one: object, option: str, doing: str, remedy: str = "mend it") -> Iterator[None]:
    """Where a class that may be a user's own does its part: what it raises is one sentence; the package's own is a bug.

    That another rank is gone, or the GPU has no room, is not its mistake.

    Args:
        one: The object.
        option: By which its class was given.
        doing: What it does, say ``start``.
        remedy: What to do about it.

    Raises:
        UserError: If it fails.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # torch's error of memory, which is not imported
        if is_packaged(type(one)) or lost_a_rank(error) or type(error).__name__ == "OutOfMemoryError":
            raise
        raise UserError(f"Expected {option} {path_of(type(one))} to {doing}, but {reason(error)}; {remedy}.") from error


def nearest(name: str, known: Iterable[str], likeness: float = 0.55) -> str:
    """``; did you mean A or B?`` if something known is near to a name; else nothing.

    Whatever its case; and only what is about as near as the nearest.
    """
    by_lower = {entry.lower(): entry for entry in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=likeness)
    if not near:
        return ""
    likely = difflib.SequenceMatcher(None, near[0], name.lower()).ratio()
    near = difflib.get_close_matches(name.lower(), near, n=3, cutoff=likely - _AS_NEAR)
    return f"; did you mean {' or '.join(by_lower[entry] for entry in near)}?"
