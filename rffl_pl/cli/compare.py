"""`rffl compare`: runs beside each other."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterable
from pathlib import Path

from rffl_pl.errors import UserError
from rffl_pl.runs.compare import Result, read, read_finished, table


def answer(words: list[str]) -> str:
    """The table of the runs that are named, folders or patterns of them; of all below ``runs/`` if none is.

    Raises:
        UserError: If one is no run that has ended, or there is none at all.
    """
    if options := [word for word in words if word.startswith("-")]:
        raise UserError(f"Expected folders of runs to compare, but got {options[0]}; `rffl compare` takes no options.")
    return table([read_finished(path) for path in _named(words)] if words else list(_at_hand(Path("runs"))))


def _named(words: Iterable[str]) -> list[Path]:
    """Every folder once, in the order given."""
    found: list[Path] = []
    for word in words:
        matching = [Path(path) for path in sorted(glob.glob(word))] if glob.has_magic(word) else [Path(word)]
        if not matching:
            raise UserError(f"Expected folders of runs to compare, but nothing matches {word}.")
        found += matching
    return list(dict.fromkeys(found))


def _at_hand(root: Path) -> Iterable[Result]:
    """Every run that trains or has trained; what cannot be read is told and left out."""
    folders = sorted(path.parent for path in root.glob("*/*/metrics.csv"))
    if not folders:
        raise UserError(
            f"Expected runs below {root}/, but there are none here; name their folders, or train one: rffl fit "
            "--config digits.yaml."
        )
    for folder in folders:
        try:
            yield read(folder)
        except UserError as mistake:
            print(f"left out: {mistake}", file=sys.stderr)
