"""What the kernel says of processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process that lives."""

    number: int
    parent: int
    group: int


def living() -> Iterator[Process]:
    """All but zombies, which stay for ever where nobody reaps orphans, as in many containers."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, parent, group, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                yield Process(int(process.name), int(parent), int(group))


def group_lives(group: int) -> bool:
    """Whether a process of that group does."""
    return any(process.group == group for process in living())
