"""Ranks that see different disks: who writes on each, and what all of them have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rffl_pl.errors import UserError
from rffl_pl.runs.checkpoint import Version


def claimed(claim: Path) -> bool:
    """Whether a file was not there: nobody who sees its folder has made it.

    Raises:
        UserError: If it cannot be made.
    """
    try:
        claim.parent.mkdir(parents=True, exist_ok=True)
        claim.open("x").close()
    except FileExistsError:
        return False
    except OSError as error:
        raise UserError(
            f"Expected --run.root to be a folder that can be written to, but {error.strerror}: {error.filename}."
        ) from error
    return True


def common(everybodys: Sequence[Sequence[Version]]) -> list[Version]:
    """The checkpoints that every rank has its part of, rank 0's newest first.

    Raises:
        UserError: If there is none.
    """
    first = everybodys[0]
    found = [version for version in first if all(version in theirs for theirs in everybodys)]
    if not found:
        rank, theirs = min(enumerate(everybodys), key=lambda one: len(set(first).intersection(one[1])))
        raise UserError(
            "Expected every rank to find its part of one checkpoint at --ckpt_path, but rank 0's (round "
            f"{_rounds(first)}) and rank {rank}'s (round {_rounds(theirs)}) are of different ones; give the folder "
            "checkpoints of one and the same run on every machine."
        )
    return found


def _rounds(versions: Sequence[Version]) -> str:
    return ", ".join(str(version.round) for version in versions)
