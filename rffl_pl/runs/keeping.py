"""A run's checkpoints, of which every rank writes and reads its own part, on the disks that there are."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rffl_pl.errors import UserError
from rffl_pl.runs.checkpoint import CheckpointNotWrittenError, Stamp, common, load, stamps, write
from rffl_pl.runs.disks import Agreement, Disk, Disks
from rffl_pl.runs.readable import unreadable


class Keeper:
    """Writes and reads checkpoints; all ranks do so together, with names that rank 0 has for them.

    Args:
        ranks: All of them.
        disks: What they see.
        mark: What this launch has in common on all ranks, and with no other.
        all_serve: Whether every rank reads the server's part.
    """

    def __init__(self, ranks: Agreement, disks: Disks, mark: str, *, all_serve: bool) -> None:
        self._ranks, self._disks, self._mark, self._all_serve = ranks, disks, mark, all_serve
        self._writes = 0
        self._whole: set[Path] = set()  # checkpoints that are, on every disk

    def disk_of(self, folder: str | Path) -> Disk:
        """How this rank stands to the disk on which checkpoints are kept; says what it means that there are several.

        Raises:
            CheckpointNotWrittenError: On every rank, if one of them cannot write there.
            UserError: On every rank, if those that have to read the server's part would not find it, or several ranks
                are to write elsewhere than in the run's folder.
        """
        if self._ranks.world_size > 1 and (word := self._ranks.first_word(self._elsewhere(folder))) is not None:
            raise UserError(word)
        place = self._disks.here(folder).resolve()
        known = self._disks.known(place)
        try:
            disk = self._disks.at(place)
        except UserError as error:
            raise CheckpointNotWrittenError(str(error)) from error
        if disk.common or known is not None:
            return disk
        if self._all_serve:
            raise UserError(
                "Expected --run.root on a file system that all ranks see under --exchange sharded, but they see "
                "different ones; give such a one, or --exchange central."
            )
        self._warn(
            f"Not all ranks see the same folder {place}: every disk has the parts of checkpoints of those who see it, "
            "and the run goes on only where all of them are. If that is not meant, give --run.root on a file system "
            "that all ranks see."
        )
        return disk

    def write(self, checkpoint: dict[str, Any], path: str | Path) -> None:
        """Every rank its own participants' part, rank 0 the server's.

        Raises:
            CheckpointNotWrittenError: On every rank, if one of them could not.
            UserError: On every rank, if what one of a user's own classes gives could not be read back.
        """
        disk, target = self.disk_of(Path(path).parent), self._disks.here(path)
        found = unreadable(checkpoint, optimizers=not self._writes)
        if (word := self._ranks.first_word(found)) is not None:
            raise UserError(word)
        self._writes += 1
        write(
            checkpoint,
            target,
            mark=f"{self._mark}-{self._writes}",
            first=self._ranks.is_global_zero,
            disk=disk,
            whole=self._whole,
            agree=self._ranks.first_word,
        )

    def to_remove(self, path: str | Path) -> Path | None:
        """What this rank is to remove to have a checkpoint gone: on every disk that has it one rank does."""
        if self._ranks.world_size > 1 and self._elsewhere(path):
            return None
        target = self._disks.here(path)
        disk = self._disks.known(target.parent)
        leads = self._ranks.is_global_zero if disk is None else disk.leads
        return target if leads else None

    def read(self, path: str | Path, hosted: Iterable[int], *, server: bool) -> dict[str, Any]:
        """Every rank its own participants' part, those that serve the server's too; nothing can run code.

        Of a folder with several checkpoints all ranks read the newest that is whole, on every disk.

        Raises:
            UserError: On every rank, if one of them finds no whole checkpoint of this package.
        """
        hosted = list(hosted)
        found = self._stamps(self._disks.here(path))
        *newer, oldest = common([[Stamp(*one) for one in theirs] for theirs in self._ranks.everybodys(list(found))])
        mistakes: list[UserError] = []
        for stamp in newer:
            try:
                loaded = self._load(found[stamp], hosted, server)
                break
            except UserError as error:
                mistakes.append(error)
        else:
            loaded = self._load(found[oldest], hosted, server)
        for mistake in mistakes:  # not before: the oldest may be no better
            self._warn(f"{mistake} Going on from the one before.")
        return loaded

    def _elsewhere(self, path: str | Path) -> str | None:
        """The sentence on a place that is none of the run's: who names it may not be who has what lies there."""
        if self._disks.holds(path):
            return None
        return f"Expected checkpoints to lie in the run's folder, but rank 0 names {path}; leave dirpath out."

    def _stamps(self, path: Path) -> dict[Stamp, Path]:
        """The checkpoints that a path stands for on this rank, newest first; at least one."""
        found, wrong = stamps(path)
        if (word := self._ranks.first_word(None if found else wrong[-1])) is not None:
            raise UserError(word)
        if (word := self._ranks.first_word(wrong[0] if wrong else None)) is not None:
            self._warn(f"{word} Going on from the one before.")
        return found

    def _load(self, path: Path, hosted: Iterable[int], server: bool) -> dict[str, Any]:
        loaded = self._ranks.together(lambda: load(path, hosted, server=server))
        self._whole.add(self._disks.here(path))
        if not self._ranks.is_global_zero and "server" in loaded:
            loaded["server"].pop("history", None)  # rank 0 alone writes it on
        return loaded

    def _warn(self, sentence: str) -> None:
        if self._ranks.is_global_zero:
            warnings.warn(sentence, stacklevel=3)
