"""The record of a run's rounds, kept on disk, so that neither memory nor checkpoints grow with them."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rffl_pl.errors import UserError
from rffl_pl.runs.durable import written
from rffl_pl.runs.records import Round

Mark = dict[str, int]
"""How far a checkpoint's copy of the file is its own: the number of ``rounds`` and the ``crc`` of their lines."""


_TEXT_OR_INFINITY = re.compile(r'(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign>-?)Infinity')


class History:
    """Every round so far, a line of JSON each in a file that is only ever appended to.

    A checkpoint has the same file under a second name and says how many lines are its own. So a history never writes
    into a file that was there before it: it begins a new one, and checkpoints keep theirs.

    Args:
        file: Where the rounds are kept; nothing is there until there is one.
        rounds: Those to begin with.

    Attributes:
        last: The last round; None before the first.
    """

    def __init__(self, file: Path, rounds: Iterable[Round] = ()) -> None:
        self.file = file
        self.last: Round | None = None
        self._count, self._crc = 0, 0
        for entry in rounds:
            self.append(entry)

    def append(self, entry: Round) -> None:
        """Keep a round.

        Raises:
            UserError: If there is no writing.
        """
        line = _line(entry)
        with written(self.file):
            if self.last is None:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                self.file.unlink(missing_ok=True)
            with self.file.open("ab") as file:
                file.write(line)
        self.last = entry
        self._count, self._crc = self._count + 1, zlib.crc32(line, self._crc)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Round]:
        if self._count:
            with self.file.open("rb") as file:
                yield from (Round(**_entry(line)) for line in islice(file, self._count))

    def mark(self) -> Mark:
        """How far the file goes now."""
        return {"rounds": self._count, "crc": self._crc}

    def share(self, other: Path) -> None:
        """Give the file a second name; where the file system has none, copy it."""
        other.unlink(missing_ok=True)
        try:
            os.link(self.file, other)
        except OSError:
            shutil.copyfile(self.file, other)


def read_shared(file: Path, mark: Mark) -> list[dict[str, Any]]:
    """The rounds that a checkpoint has of a shared file.

    Raises:
        UserError: If they are not all there, or not as they were.
    """
    try:
        with file.open("rb") as opened:
            lines = list(islice(opened, mark["rounds"]))
    except OSError as error:
        raise UserError(
            f"Expected --ckpt_path {file.parent} to be a whole checkpoint, but {file.name} cannot be read "
            f"({error.strerror}); copy checkpoints as whole folders."
        ) from error
    if len(lines) < mark["rounds"] or zlib.crc32(b"".join(lines)) != mark["crc"]:
        raise UserError(
            f"Expected --ckpt_path {file.parent} to be a whole checkpoint, but {file.name} is truncated or damaged; "
            "take an earlier one."
        )
    return [_entry(line) for line in lines]


def _line(entry: Round) -> bytes:
    """A round as JSON, which has null in place of NaN, and as infinity a number beyond all that a double holds."""
    measures = {
        name: [None if math.isnan(value) else value for value in values] for name, values in entry.measures.items()
    }
    text = json.dumps({**vars(entry), "measures": measures})
    return _TEXT_OR_INFINITY.sub(lambda found: found["text"] or f"{found['sign']}1e999", text).encode() + b"\n"


def _entry(line: bytes) -> dict[str, Any]:
    """What `_line` wrote, or an earlier release, whose NaN stands as such."""
    entry: dict[str, Any] = json.loads(line)
    measures = entry.get("measures", {}).items()
    return entry | {
        "measures": {name: [math.nan if value is None else value for value in values] for name, values in measures}
    }
