"""What a user is told of participants during a run: removals, and each fault once."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from rffl_pl.runs import Round

_WHAT = {
    "diverged": (
        "training loss is not finite: it goes on from where it stood before the round, and its upload is set aside; a "
        "smaller learning rate may help"
    ),
    "own diverged": (
        "own model has a training loss that is not finite: it goes on from where it stood before the round; a smaller "
        "--model.personal or learning rate may help"
    ),
    "set aside": "upload is set aside: it is not finite, too long to compute with or of another shape",
    "silent": "upload tells nothing, being zeros or as short as the rounding of its model: it is no vote",
}
_AGAIN = {
    "diverged": "training losses that were not finite",
    "own diverged": "training losses of own models that were not finite",
    "set aside": "uploads that were set aside",
    "silent": "uploads that told nothing",
}


class Faults:
    """Warns of every fault of a participant when it first occurs."""

    def __init__(self) -> None:
        self._told: set[tuple[int, str]] = set()

    def warn(self, this: Round, reasons: Mapping[int, str]) -> None:
        """Tell what is new in a round.

        Args:
            this: The round.
            reasons: Why each of the removed was, in the server's words.
        """
        for participant, fault in _faults(this):
            if (participant, fault) not in self._told:
                self._told.add((participant, fault))
                warnings.warn(f"Round {this.number}: participant {participant}'s {_WHAT[fault]}.", stacklevel=2)
        for i in this.removed:
            measures = this.measures
            told = reasons.get(
                i,
                f"the server's rule decided so (similarity {measures['similarity'][i]:.3f}, weight "
                f"{measures['weight'][i]:.3f}).",
            )
            warnings.warn(f"Round {this.number}: participant {i} is removed: {told.rstrip('.')}.", stacklevel=2)


def ongoing(history: Iterable[Round]) -> list[str]:
    """A line for every kind of fault that somebody had more than once in a run's rounds."""
    counts = Counter(fault for this in history for fault in _faults(this))
    often = [(i, fault, count) for (i, fault), count in sorted(counts.items()) if count > 1]
    return [
        f"{_AGAIN[kind]}: {', '.join(f'participant {i} in {n} rounds' for i, fault, n in often if fault == kind)}"
        for kind in _AGAIN
        if any(fault == kind for _, fault, _ in often)
    ]


def _faults(this: Round) -> Iterator[tuple[int, str]]:
    """The faults of whoever was a member when the round began, one each, and those of models of one's own."""
    for i, loss in enumerate(this.measures.get("personal_loss", [])):
        if math.isinf(loss):
            yield i, "own diverged"
    losses = this.measures["train_loss"]
    for i, member in enumerate(this.members):
        if not (member or i in this.removed):
            continue
        if math.isinf(losses[i]):
            yield i, "diverged"
        elif i in this.set_aside:
            yield i, "set aside"
        elif i in this.silent:
            yield i, "silent"
