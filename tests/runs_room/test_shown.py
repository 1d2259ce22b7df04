"""The table at the end of a run, and what is said below it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from rffl_pl.runs.shown import table_of, table_of_scores
from tests.runs_room.test_records import ATTACKED, SUMMARY

MEASURED: dict[str, Any] = {"standalone": [0.5, 0.5], "gain": 0.125, "gain_spread": 0.0625}


def below(**changes: Any) -> list[str]:
    """What the table says below the participants' rows."""
    summary = replace(SUMMARY, **changes)
    return table_of(summary).splitlines()[2 + len(summary.examples) :]


def test_a_plain_run_has_one_line() -> None:
    """Without reference, adversaries and label flip nothing is said of them."""
    assert below() == ["mean 62.5%  maximum 75.0%  fairness not measured"]


@pytest.mark.parametrize(
    ("gain", "ranks", "line"),
    [
        (0.125, 0.5, "mean gain over training alone +12.5 points (spread 6.2)  fairness of ranks 0.500"),
        (-0.125, -1.0, "mean gain over training alone -12.5 points (spread 6.2)  fairness of ranks -1.000"),
        (0.0, None, "mean gain over training alone +0.0 points (spread 6.2)  fairness of ranks undefined"),
    ],
)
def test_gain(gain: float, ranks: float | None, line: str) -> None:
    """With a reference the gain has its sign, and a rank correlation that is undefined is called so."""
    lines = below(**MEASURED | {"gain": gain, "rank_fairness": ranks, "fairness": 0.5})
    assert lines == ["mean 62.5%  maximum 75.0%  fairness 0.500", line]


def test_undefined_fairness() -> None:
    """A correlation that is undefined with a reference is not one that was not measured."""
    assert below(**MEASURED)[0].endswith("fairness undefined (constant)")
    assert below(**MEASURED, honest=1)[0].endswith("fairness undefined (one participant)")


@pytest.mark.parametrize(
    ("removed", "line"),
    [
        ([None, None, 2], "removed: 1 of 1 adversaries, 0 of 2 honest"),
        ([3, None, 2], "removed: 1 of 1 adversaries, 1 of 2 honest"),
        ([None, None, None], "removed: 0 of 1 adversaries, 0 of 2 honest"),
    ],
)
def test_adversaries(removed: list[int | None], line: str) -> None:
    """With adversaries it is said how many of them, and of the honest, were removed."""
    assert below(**ATTACKED | {"removed_in_round": removed})[1:] == [line]


def test_honest_participants_who_were_removed() -> None:
    """Without adversaries no line speaks of them, even if somebody was removed."""
    assert len(below(removed_in_round=[None, 2], precision=0.0)) == 1


@pytest.mark.parametrize("success", [0.0, 0.5])
def test_label_flip(success: float) -> None:
    """A label flip that was measured is told, also where it achieved nothing."""
    lines = below(**ATTACKED, recall=0.0, attack_success=success, target_accuracy=0.25)
    assert lines[2:] == [f"label flips: success {success:.1%}  target accuracy 25.0%"]


@pytest.mark.parametrize("many", [False, True])
def test_what_adversaries_took(many: bool) -> None:
    """What they end with beside what their examples and the initial network would have given them."""
    took = {"adversary_final": 0.8, "adversary_standalone": 0.9, "adversary_gain": -0.1, "initial": 0.1}
    more = {"examples": [10, 20, 30, 30], "removed_in_round": [None] * 4, "final": [0.5, 0.75, 0.7, 0.9]}
    more |= {name: [None] * 4 for name in ("standalone", "reputation", "quota")}
    ends, it = ("adversaries end on average", "they") if many else ("the adversary ends", "it")
    assert below(**ATTACKED | took | (more if many else {}))[-1] == (
        f"{ends} with 80.0%; training alone {it} would have 90.0%, the initial network has 10.0%"
    )


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({}, "+70.0 points over what its own work gives"),
        (
            {"smallest_gain": 0.14, "taken_share": 5.0},
            ", 500% of what the smallest honest participant gains (+14.0 points)",
        ),
        ({"smallest_gain": -0.02}, "; the smallest honest participant gains nothing (-2.0 points)"),
        ({"smallest_gain": 0.0}, "; the smallest honest participant gains nothing (+0.0 points)"),
    ],
)
def test_what_was_taken_home(known: dict[str, float], line: str) -> None:
    """One line, beside the smallest honest participant's gain where that is known."""
    said = below(**ATTACKED, taken=0.7, taken_most=0.7, **known)[-1]
    assert said.startswith("taken: +70.0 points over what its own work gives")
    assert said.endswith(line)


def test_what_several_took_home() -> None:
    """Of several adversaries the mean and the most."""
    many = ATTACKED | {name: [*ATTACKED[name], *ATTACKED[name][-1:]] for name in ATTACKED}
    assert below(**many, taken=0.1, taken_most=0.3)[-1] == (
        "taken: +10.0 points over what their own work gives, +30.0 points at most"
    )


def test_all_there_is_to_say() -> None:
    """All lines together, in their order, and the participants' rows above them."""
    summary = replace(
        SUMMARY,
        **ATTACKED | MEASURED | {"standalone": [0.5, 0.5, None]},
        recall=1.0, precision=1.0, attack_success=0.1, target_accuracy=0.8,
    )  # fmt: skip
    lines = table_of(summary).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["0", "1", "2", "mean", "mean", "removed:", "label"]
    assert "(adversary)" in lines[4]
    assert lines[4].split()[-1] == "2"


def of_many(honest: int, adversaries: int) -> list[str]:
    """The lines of a table of that many participants, without its head."""
    total = honest + adversaries
    columns: dict[str, list[Any]] = {
        "standalone": [None],
        "final": [0.5],
        "reputation": [0.1],
        "quota": [1.0],
        "removed_in_round": [None],
    }
    many: dict[str, Any] = {name: values * total for name, values in columns.items()}
    return table_of(replace(SUMMARY, honest=honest, examples=list(range(total)), **many)).splitlines()[2:]


def test_of_forty_each_has_a_row() -> None:
    """A screen has room for them, and nothing is said of more."""
    lines = of_many(40, 40)
    assert [line.split()[0] for line in lines[:80]] == [str(i) for i in range(80)]
    assert lines[80].startswith("mean")


def test_of_a_thousand_some_have_a_row() -> None:
    """The first, the last and eighteen between them, of the honest; every adversary where these are few."""
    lines = of_many(997, 3)
    rows = [int(line.split()[0]) for line in lines[:23]]
    assert (rows[0], rows[19]) == (0, 996)
    assert {b - a for a, b in pairwise(rows[:20])} <= {52, 53}
    assert rows[20:] == [997, 998, 999]
    assert lines[23:25] == ["23 of 1000 participants; summary.json has all", lines[24]]
    assert lines[24].startswith("mean")


def test_scores_of_the_honest() -> None:
    """With their groups where there are any, and what else is measured; what is no number is a dash."""
    scores: dict[str, list[float | None]] = {
        "accuracy": [0.25, 0.75, 1.0],
        "loss": [0.5, None, 9.0],
        "calibration": [0.1, None, 0.9],
    }
    assert table_of_scores(scores, 2, ["A", None, None], ["calibration"]).splitlines() == [
        "participant  accuracy    loss  group",
        "-----------  --------  ------  -----",
        "          0     25.0%  0.5000      A",
        "          1     75.0%       -      -",
        "mean 50.0%  maximum 75.0%",
        "calibration: mean 0.1000 of the honest",
    ]
    lines = table_of_scores({"accuracy": [0.5] * 99, "loss": [1.0] * 99}, 90, [], []).splitlines()
    assert (len(lines), lines[-2]) == (24, "20 of 90 honest participants; scores.json has all")
