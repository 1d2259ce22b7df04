"""The worst case over an axis: which way is worse, of whom it is the mean, and what a place leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rffl_pl.comparison.measures import MEASURES
from rffl_pl.studies.results import Row
from rffl_pl.studies.study import Study
from rffl_pl.studies.worst import worst_over

STUDY = Study(
    name="made", base=[], seeds=[1], axes={"server": {"RFFL": [], "FedAvg": []}, "attack": {"none": [], "flip": []}}
)
VALUES = {("RFFL", "none"): (0.9, 0.1), ("RFFL", "flip"): (0.2, 0.6), ("FedAvg", "none"): (0.5, 0.3)}
"""By server and attack, of two honest participants; FedAvg is not attacked."""
OF_STUDIES = {
    "accuracy": "accuracy_mean", "lowest": "accuracy_min", "highest": "accuracy_max", "spread": "accuracy_spread",
    "worst_tenth": "accuracy_worst_tenth", "honest_removed_share": "honest_removed",
}  # fmt: skip
"""What results call otherwise than a page."""
WORSE = {OF_STUDIES.get(name, name): one.better for name, one in MEASURES.items() if one.better and name != "seconds"}
WORSE |= dict.fromkeys(("loss", "backdoor_success", "taken_most", "adversary_over_initial"), "lower")


def rows(measure: str) -> list[Row]:
    return [
        {
            "server": server, "attack": attack, "seed": "1", "rounds": "5", "participant": str(participant),
            "role": "honest", "measure": measure, "value": str(value), "cell": f"{server} {attack}",
        }
        for (server, attack), values in VALUES.items()
        for participant, value in enumerate(values)
    ]  # fmt: skip


@pytest.mark.parametrize(("measure", "better"), WORSE.items())
def test_which_way_is_worse(measure: str, better: str) -> None:
    """A table takes the best of what a page calls better when it is lower; or one participant's for everybody's."""
    of_rffl = [row for row in rows(measure) if row["server"] == "RFFL"]
    (worst,) = worst_over(STUDY, of_rffl, "attack", measure).rows
    assert float(worst["value"]) == pytest.approx(0.5 if better == "lower" else 0.4)


def test_what_a_place_leaves_out_is_no_value_less() -> None:
    """A server that is not attacked has no worst case, or one that should be and was not has one of the rest."""
    found = worst_over(replace(STUDY, exclude=[{"server": ["FedAvg"], "attack": ["flip"]}]), rows("a"), "attack", "a")
    assert {row["server"]: float(row["value"]) for row in found.rows} == pytest.approx({"RFFL": 0.4, "FedAvg": 0.4})
    assert found.left_out is None
    partial = worst_over(STUDY, rows("a"), "attack", "a")
    assert [row["server"] for row in partial.rows] == ["RFFL"]
    assert partial.left_out == "Left out: server=FedAvg seed=1 rounds=5, without a value at all labels of --worst."
