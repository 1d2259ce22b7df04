"""Ranks that see different disks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rffl_pl.errors import UserError


@dataclass(frozen=True)
class Disk:
    """How a rank stands to the disk on which a folder lies.

    Attributes:
        leads: Whether it is the one of the ranks that see the folder which writes what is to lie there once. On rank
            0's disk that is rank 0.
        common: Whether all ranks see the folder.
    """

    leads: bool
    common: bool


def claimed(claim: Path) -> bool:
    """Whether a file was not there: nobody who sees its folder has made it.

    Raises:
        UserError: If it cannot be made.
    """
    try:
        claim.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            claim.open("x").close()
            return True
    except OSError as error:
        raise UserError(
            f"Expected a folder that can be written to, but {error.strerror}: {error.filename}; give another "
            "--run.root."
        ) from error
    return False
