"""``rffl compare``: runs beside each other."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rffl_pl.cli.process import importing
from rffl_pl.cli.words import Words, expanded
from rffl_pl.errors import UserError

RUNS = Path("runs")
PAGE = RUNS / "compare.html"


def parser() -> Words:
    """The command's options."""
    made = Words(
        "rffl compare",
        "Which settings of runs differ, and what came of them: a table here, and a page with tables and "
        "charts that opens in any browser, without network. Without words: a table of all runs below runs/.",
    )
    made.add_argument(
        "runs", metavar="RUN", nargs="*",
        help="the folder of a run, a folder above several, a pattern, or a study's folder",
    )  # fmt: skip
    made.add_argument("--out", metavar="FILE.html", type=expanded, help=f"where the page is written: {PAGE}")
    return made


def answer(words: Sequence[str]) -> str:
    """The table of the runs that are named, and where their page is; of all below ``runs/`` if none is.

    Raises:
        UserError: If one is no run, none has ended, or the page cannot be written.
    """
    given = parser().read(words)
    with importing():  # runs are read with torch
        from rffl_pl.comparison import at_hand, chosen, table, write
        from rffl_pl.comparison.own import told_apart
        from rffl_pl.comparison.page import check_target

    every = [] if given.runs else list(at_hand(RUNS))
    mistakes = [one for one in every if isinstance(one, UserError)]
    readable = [one for one in every if not isinstance(one, UserError)]
    if mistakes and not readable:
        raise mistakes[0]
    if not given.runs and given.out is None:
        _tell_left_out(map(str, mistakes))
        return table(told_apart(readable), _terminal())
    target = given.out or PAGE
    check_target(target)
    results, unfinished = chosen(given.runs or [str(one.path) for one in readable])
    left_out = [*map(str, mistakes), *unfinished]
    damaged = write(results, left_out, target)
    _tell_left_out([*left_out, *damaged.values()])
    shown = [result for result in results if result.path not in damaged]
    return f"{table(shown, _terminal())}\n\npage: {target} ({target.stat().st_size / 1e6:.1f} MB)"


def _terminal() -> int | None:
    """The terminal's width in columns; None where the table goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _tell_left_out(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        print(f"left out: {sentence}", file=sys.stderr)
