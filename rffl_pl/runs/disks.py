"""Ranks that see different disks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rffl_pl.errors import UserError

T = TypeVar("T")


class Agreement(Protocol):
    """How ranks come to agree: all of them ask the same, and each waits for the others."""

    @property
    def is_global_zero(self) -> bool: ...

    @property
    def world_size(self) -> int: ...

    def together(self, step: Callable[[], T]) -> T: ...

    def first_word(self, word: str | None) -> str | None: ...

    def everybodys(self, obj: Any) -> list[Any]: ...

    def broadcast(self, obj: Any) -> Any: ...


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


class Disks:
    """Where a rank sees what rank 0 names, and with whom it shares the disk.

    Args:
        ranks: All of them.
        mark: What this launch has in common on all ranks, and with no other.
    """

    def __init__(self, ranks: Agreement, mark: str) -> None:
        self._ranks, self._mark = ranks, mark
        self._theirs: list[Path] = []  # rank 0's names of the run's folder
        self._mine = Path()
        self._known: dict[Path, Disk] = {}

    def runs_in(self, folder: Path) -> None:
        """Have the run's folder known, by the name that this rank has for it: Lightning tells all ranks rank 0's."""
        self._mine = folder.resolve()
        self._theirs = [Path(name) for name in self._ranks.broadcast([str(folder), str(self._mine)])]

    def here(self, path: str | Path) -> Path:
        """This rank's path to a place that rank 0 may have named."""
        place = Path(path)
        inside = next((place.relative_to(folder) for folder in self._theirs if place.is_relative_to(folder)), None)
        mine = place if inside is None else self._mine / inside
        return mine.parent.resolve() / mine.name  # itself it may be a link to another

    def holds(self, path: str | Path) -> bool:
        """Whether a place that rank 0 named lies in the run's folder; where that is not known, anywhere."""
        place, folders = Path(path), [*self._theirs, self._mine]
        inside = (place.relative_to(folder) for folder in folders if place.is_relative_to(folder))
        return not self._theirs or any(".." not in part.parts for part in inside)

    def known(self, folder: Path) -> Disk | None:
        """The answer of `at`, if it was called for this folder before; else None."""
        return self._known.get(folder.resolve())

    def at(self, folder: Path) -> Disk:
        """How this rank stands to the disk on which a folder lies; it is made if it is not there.

        All ranks ask, each for the folder by the name that it has for it.

        Raises:
            UserError: On every rank, if one of them cannot write there.
        """
        folder = folder.resolve()
        if self._ranks.world_size == 1:
            return Disk(leads=True, common=True)
        if folder not in self._known:
            claim = folder / f".first-{self._mark}"
            leads = self._ranks.together(lambda: self._ranks.is_global_zero and _claimed(claim))
            try:
                leads = self._ranks.together(lambda: leads or _claimed(claim))
            finally:
                with suppress(OSError):
                    claim.unlink(missing_ok=True)
            self._known[folder] = Disk(leads=leads, common=sum(self._ranks.everybodys(leads)) == 1)
        return self._known[folder]


def _claimed(claim: Path) -> bool:
    """Whether a file was not there: nobody who sees its folder has made it.

    Raises:
        UserError: If it cannot be made.
    """
    try:
        claim.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            claim.open("x", encoding="utf-8").close()
            return True
    except OSError as error:
        raise UserError(
            f"Expected a folder that can be written to, but {error.strerror}: {error.filename}; give another "
            "--run.root."
        ) from error
    return False
