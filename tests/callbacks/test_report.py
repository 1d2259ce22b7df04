"""What a user is told of participants during a run."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from rffl_pl.callbacks.faults import Faults, ongoing
from rffl_pl.runs import Round

MEMBERS = [True, True, False]


def made(number: int, train_loss: Sequence[float] = (0.1,) * 3, **more: Any) -> Round:
    """A round of three, of whom the last was removed before."""
    measures = {"train_loss": [*train_loss], "similarity": [0.5, 0.25, math.nan], "weight": [0.75, 0.1, 0]}
    return Round(number=number, honest=3, measures=measures, **{"members": MEMBERS} | more)


def told(faults: Faults, number: int, reasons: dict[int, str] | None = None, **round_: Any) -> list[str]:
    """The warnings of such a round."""
    entry = made(number, **round_)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        faults.warn(entry, reasons or {})
    return [str(warning.message) for warning in caught]


def test_a_removal_is_explained_in_the_servers_words() -> None:
    """Its reason if it gives one, else what the removal was decided by."""
    gone: dict[str, Any] = {"members": [True, False, False], "removed": [1]}
    reason = "its validation accuracy is below a third of the mean; --server.removal_share 0 keeps everybody"
    assert told(Faults(), 11, {1: reason}, **gone) == [f"Round 11: participant 1 is removed: {reason}."]
    (plain,) = told(Faults(), 11, **gone)
    assert plain.endswith("the server's rule decided so (similarity 0.250, weight 0.100).")


def test_a_fault_is_told_once_and_counted() -> None:
    """Every participant's when it first occurs; whoever was removed before is left in peace."""
    faults = Faults()
    both: dict[str, Any] = {"set_aside": [1, 2], "train_loss": [0.1, 0.1, math.inf]}
    first, *more = told(faults, 1, **both)
    assert first.startswith("Round 1: participant 1's upload is set aside")
    assert not more
    assert told(faults, 2, **both) == []
    (other,) = told(faults, 3, **both | {"train_loss": [math.inf, 0.1, 0.1]})
    assert other.startswith("Round 3: participant 0's training loss is not finite")
    assert ongoing(made(number, **both) for number in (1, 2, 3)) == [
        "uploads that were set aside: participant 1 in 3 rounds"
    ]


def test_a_fault_in_the_round_of_the_removal_is_told() -> None:
    """It was a member when the round began."""
    (fault, removal) = told(Faults(), 4, set_aside=[2], removed=[2])
    assert "set aside" in fault
    assert "removed" in removal


def test_silence_is_told() -> None:
    """An upload that tells nothing is no fault of its sender, but the user should know."""
    faults = Faults()
    assert [message.split(",")[0] for message in told(faults, 90, silent=[0])] == [
        "Round 90: participant 0's upload tells nothing"
    ]
    assert len(told(faults, 91, silent=[0, 1])) == 1
    assert told(faults, 92, silent=[0, 1]) == []
    history = [made(number, silent=who) for number, who in enumerate([[0], [0, 1], [0, 1]])]
    assert ongoing(history) == ["uploads that told nothing: participant 0 in 3 rounds, participant 1 in 2 rounds"]
