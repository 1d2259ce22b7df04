"""What a comparison has of a run, from its summary alone."""

from dataclasses import replace

import pytest

from rffl_pl.comparison.measures import MEASURES, measures_of
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


def test_what_an_attack_measures_is_no_metric_of_ones_own() -> None:
    """The success of a backdoor stands as a fraction among accuracies, and is nobody's worst case."""
    backdoored = replace(RUN, measured={"backdoor_success": [0.25, 0.75, 1.0], "length": [1.0, 2.0, 3.0]})
    found = measures_of([backdoored])
    success, own = found["backdoor_success"], found["own length"]
    assert (success.unit, success.better, own.unit, own.better) == ("percent", "lower", "number", None)
    assert "own backdoor_success" not in found
    assert [made.of and made.of(backdoored) for made in (success, own)] == [0.5, 1.5]
