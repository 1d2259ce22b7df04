"""What happened in the rounds of runs, thinned to what a page can hold."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

from rffl_pl.runs import Round

MOST_POINTS, FEWEST_POINTS = 40, 8
MOST_VALUES = 45_000
"""Of all curves of a page, about 0.3 MB."""
MOST_LINES = 20
"""So many participants of a run have a curve of their reputation."""


def points_for(participants: Sequence[int]) -> int:
    """How many rounds of every run a page shows.

    Args:
        participants: How many each run has.
    """
    lines = sum(min(count, MOST_LINES) + 1 for count in participants)
    return max(FEWEST_POINTS, min(MOST_POINTS, MOST_VALUES // max(lines, 1)))


def thinned(rounds: Sequence[Round], points: int, longest: int) -> list[Round]:
    """About so many of the rounds: the first and the last, and those that are shown of every run of a page.

    Where one of the latter is not among them, as of rounds with an accuracy, the next that is stands for it: runs that
    are measured equally often have the same.

    Args:
        rounds: A run's, or those of them that have a value, ascending.
        points: How many of the longest run's.
        longest: How many that has.
    """
    if longest <= points or not rounds:
        return list(rounds)
    numbers = [entry.number for entry in rounds]
    shown = (1 + round(i * (longest - 1) / (points - 1)) for i in range(points))
    next_ones = {bisect.bisect_left(numbers, number) for number in shown}
    kept = next_ones & set(range(len(rounds))) | {0, len(rounds) - 1}
    return [rounds[place] for place in sorted(kept)]


def drawn(honest: int, total: int) -> list[int]:
    """Whose reputation has a curve: all, or of many some of the honest and some of the adversaries."""
    if total <= MOST_LINES:
        return list(range(total))
    of_honest = max(1, round(MOST_LINES * honest / total)) if total > honest else MOST_LINES
    return [*_spread(0, honest, of_honest), *_spread(honest, total, MOST_LINES - of_honest)]


def _spread(start: int, stop: int, count: int) -> list[int]:
    if stop - start <= count:
        return list(range(start, stop))
    return sorted({start + round(i * (stop - start - 1) / max(count - 1, 1)) for i in range(count)})


def curves(rounds: Sequence[Round], points: int, longest: int) -> dict[str, Any]:
    """The mean accuracy of the honest and everybody's reputation, by the rounds that are shown.

    Returns:
        ``measured``, the rounds of the ``accuracy``; ``rounds``, ``who`` has a curve, and their ``reputation``, a list
        each, the weight under servers without, and empty where nobody communicates.
    """
    shown = thinned(rounds, points, longest)
    if not shown:
        return {"measured": [], "accuracy": [], "rounds": [], "who": [], "reputation": []}
    # Accuracies may be measured in few of the rounds: thinned with the others, most of them would be lost.
    measured = thinned([entry for entry in rounds if math.isfinite(entry.mean_accuracy)], points, longest)
    who = drawn(shown[0].honest, len(shown[0].members))
    named = [entry for entry in shown if "reputation" in entry.measures]
    return {
        "measured": [entry.number for entry in measured],
        "accuracy": [short(entry.mean_accuracy) for entry in measured],
        "rounds": [entry.number for entry in shown],
        "who": who if named else [],
        "reputation": [[short(entry.measures["reputation"][i]) for entry in shown] for i in who] if named else [],
    }


def short(value: float | None, digits: int = 4) -> float | int | None:
    """So many digits at most; whole numbers stay as they are; None for what is no number."""
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int) or value == int(value):
        return int(value)
    return float(f"{value:.{digits}g}")
