"""What a comparison has of a run, from its summary alone."""

from dataclasses import replace

import pytest

from rffl_pl.comparison.measures import MEASURES
from rffl_pl.runs.records import Summary
from tests.runs_room.test_records import ATTACKED, SUMMARY

RUN: Summary = replace(
    SUMMARY,
    **ATTACKED | {"removed_in_round": [5, None, 2]},
    fairness=0.9, rank_fairness=0.8, gain=0.07, gain_spread=0.02, precision=0.5, recall=1.0, target_accuracy=0.3,
    attack_success=0.4, adversary_final=0.1, adversary_gain=-0.2, taken=0.11, taken_share=0.55,
    worst_tenth=0.45, spread=0.12,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "accuracy": 0.625, "lowest": 0.5, "highest": 0.75, "fairness": 0.9, "rank_fairness": 0.8, "gain": 0.07,
        "gain_spread": 0.02, "precision": 0.5, "recall": 1.0, "honest_removed_share": 0.5, "target_accuracy": 0.3,
        "attack_success": 0.4, "adversary_final": 0.1, "adversary_gain": -0.2, "taken": 0.11, "taken_share": 0.55,
        "worst_tenth": 0.45, "spread": 0.12,
    }.items(),
)  # fmt: skip
def test_of_a_summary(name: str, expected: float) -> None:
    """A measure is another of the summary's numbers, or counts adversaries among the honest."""
    made = MEASURES[name].of
    assert made is not None
    assert made(RUN) == expected


def test_of_no_honest_accuracy() -> None:
    """A lowest of nothing is a traceback."""
    lowest = MEASURES["lowest"].of
    assert lowest is not None
    assert lowest(replace(RUN, final=[None, None, 0.1])) is None
