"""What happened in the rounds of runs, thinned to what a page can hold."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
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


def thinned(found: Mapping[str, Any], points: int, longest: int) -> dict[str, Any]:
    """Of a run's curves about so many rounds, and their values rounded.

    Args:
        found: The `curves`.
        points: How many rounds of the longest run's.
        longest: How many that has.
    """
    # Accuracies may be measured in few of the rounds: thinned with the others, most of them would be lost.
    measured, shown = (kept(found[name], points, longest) for name in ("measured", "rounds"))
    return {
        "measured": [found["measured"][place] for place in measured],
        "accuracy": [short(found["accuracy"][place]) for place in measured],
        "rounds": [found["rounds"][place] for place in shown],
        "who": found["who"],
        "reputation": [[short(curve[place]) for place in shown] for curve in found["reputation"]],
    }


def kept(numbers: Sequence[int], points: int, longest: int) -> list[int]:
    """The places of the first round and the last, and of those that are shown of every run of a page.

    Where one of the latter is not among them, as of rounds with an accuracy, the next that is stands for it: runs that
    are measured equally often have the same.

    Args:
        numbers: Of a run's rounds, or of those of them that have a value, ascending.
        points: How many of the longest run's.
        longest: How many that has.
    """
    every = range(len(numbers))
    if longest <= points or not numbers:
        return list(every)
    shown = (1 + round(i * (longest - 1) / (points - 1)) for i in range(points))
    next_ones = {bisect.bisect_left(numbers, number) for number in shown}
    return sorted(next_ones & set(every) | {0, len(numbers) - 1})


def drawn(honest: int, total: int) -> list[int]:
    """Whose reputation has a curve: all, or of many some of the honest and some of the adversaries."""
    if total <= MOST_LINES:
        return list(range(total))
    # At least one of either kind: beside a hundred honest a single adversary is what the chart is looked at for.
    of_honest = min(MOST_LINES - 1, max(1, round(MOST_LINES * honest / total))) if total > honest else MOST_LINES
    return [*_spread(0, honest, of_honest), *_spread(honest, total, MOST_LINES - of_honest)]


def _spread(start: int, stop: int, count: int) -> list[int]:
    if stop - start <= count:
        return list(range(start, stop))
    return sorted({start + round(i * (stop - start - 1) / max(count - 1, 1)) for i in range(count)})


def curves(rounds: Sequence[Round]) -> dict[str, Any]:
    """The mean accuracy of the honest and everybody's reputation, by round.

    Returns:
        ``measured``, the rounds of the ``accuracy``; ``rounds``, ``who`` has a curve, and their ``reputation``, a list
        each, the weight under servers without, and empty where nobody communicates.
    """
    if not rounds:
        return {"measured": [], "accuracy": [], "rounds": [], "who": [], "reputation": []}
    accuracies = {entry.number: entry.mean_accuracy for entry in rounds}
    measured = [number for number, accuracy in accuracies.items() if math.isfinite(accuracy)]
    who = drawn(rounds[0].honest, len(rounds[0].members)) if "reputation" in rounds[0].measures else []
    return {
        "measured": measured,
        "accuracy": [accuracies[number] for number in measured],
        "rounds": [entry.number for entry in rounds],
        "who": who,
        "reputation": [[entry.measures["reputation"][i] for entry in rounds] for i in who],
    }


def short(value: float | None, digits: int = 4) -> float | int | None:
    """So many digits at most; whole numbers stay as they are; None for what is no number."""
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int) or value == int(value):
        return int(value)
    return float(f"{value:.{digits}g}")
