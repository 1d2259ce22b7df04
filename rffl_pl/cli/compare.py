"""``rffl compare``: runs beside each other."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rffl_pl.errors import UserError, nearest

RUNS = Path("runs")
PAGE = RUNS / "compare.html"


class _Parser(argparse.ArgumentParser):
    """Mistakes are raised, as one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"Expected words that rffl compare knows, but {message}; `rffl compare --help` lists them.")


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = _Parser(
        "rffl compare",
        description="Which settings of runs differ, and what came of them: a table here, and a page with tables and "
        "charts that opens in any browser, without network. Without words: a table of all runs below runs/.",
        allow_abbrev=False,
    )
    made.add_argument(
        "runs", metavar="RUN", nargs="*",
        help="the folder of a run, a folder above several, a pattern, or a study's folder",
    )  # fmt: skip
    made.add_argument("--out", metavar="FILE.html", type=Path, help=f"where the page is written: {PAGE}")
    return made


def answer(words: Sequence[str]) -> str:
    """The table of the runs that are named, and where their page is; of all below ``runs/`` if none is.

    Raises:
        UserError: If one is no run, none has ended, or the page cannot be written.
    """
    given = _given(list(words))
    from rffl_pl.comparison import at_hand, chosen, table, write  # runs are read with torch
    from rffl_pl.comparison.page import check_target

    if not given.runs and given.out is None:
        every = list(at_hand(RUNS))
        _tell_left_out([str(one) for one in every if isinstance(one, UserError)])
        return table([one for one in every if not isinstance(one, UserError)])
    target = given.out or PAGE
    check_target(target)
    results, left_out = chosen(given.runs or [str(one.path) for one in at_hand(RUNS) if not isinstance(one, UserError)])
    write(results, left_out, target)
    _tell_left_out(left_out)
    return f"{table(results)}\n\npage: {target} ({target.stat().st_size / 1e6:.1f} MB)"


def _given(words: list[str]) -> argparse.Namespace:
    made = parser()
    known = options()
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("-") and option not in (*known, "-h"):
            raise UserError(f"Expected an option of rffl compare, but got {option}{nearest(option, known) or '.'}")
    return made.parse_args(words)


def _tell_left_out(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        print(f"left out: {sentence}", file=sys.stderr)


def options() -> list[str]:
    """For completion."""
    words: list[Any] = [option for action in parser()._actions for option in action.option_strings]
    return [option for option in words if option.startswith("--")]
