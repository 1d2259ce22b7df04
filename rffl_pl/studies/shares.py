"""What adversaries take as a share of what the smallest honest participant gains, where that gains nothing."""

from __future__ import annotations

import math

from rffl_pl.studies.results import Row, which_of
from rffl_pl.studies.study import Study

SHARE = "taken_share"
_OF = ("taken_most", "smallest_gain")


def of_nothing(most: float | None, gain: float | None) -> float | None:
    """The share of a gain of nothing, or of a loss, which a run's result does not have.

    Args:
        most: What the adversary that took most has taken.
        gain: What the smallest honest participant gains.

    Returns:
        Infinity where something was taken, since nothing would be worse; else 0; None where one of them is not known.
    """
    if most is None or gain is None:
        return None
    return math.inf if most > 0 else 0.0


def with_missing_shares(study: Study, rows: list[Row]) -> list[Row]:
    """Results with a share of every run that has adversaries: without, a mean would be of the others alone."""
    known = [*zip(which_of(study, rows), rows, strict=True)]
    most, gain, shares = (
        {which: row for which, row in known if row["measure"] == measure} for measure in (*_OF, SHARE)
    )
    lacking = [which for which in most if which in gain and which not in shares]
    values = {which: of_nothing(float(most[which]["value"]), float(gain[which]["value"])) for which in lacking}
    return [*rows, *(most[which] | {"measure": SHARE, "value": repr(value)} for which, value in values.items())]
