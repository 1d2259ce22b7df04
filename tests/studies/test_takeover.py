"""The packaged study of the takeover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import pytest

from rffl_pl.cli.resolve import Resolver
from rffl_pl.cli.study import packaged
from rffl_pl.studies import Study
from rffl_pl.studies.cells import cells_of
from rffl_pl.studies.study import Place, lies_in

STUDIES = sorted(name for name in packaged() if name != "studies/contribution.yaml")
"""The package's, but for one whose cells differ in a number alone."""

LARGE = 400
"""Places that resolve within a minute; the study of the takeover has 1,131."""


@pytest.mark.slow
def test_every_place_on_an_axis_is_a_run() -> None:
    """A task, an attack or a server of the study is refused, or none of its words reaches the run."""
    study = Study.read(packaged()["studies/takeover.yaml"])
    resolve, first = Resolver(), {axis: next(iter(labels)) for axis, labels in study.axes.items()}
    at: dict[tuple[str, str], dict[str, Any]] = {
        (axis, label): resolve(study.words({**first, "attack": "free_rider", axis: label}))
        for axis, labels in study.axes.items()
        for label in labels
    }
    assert at["task", "MNIST 10+11"]["federation"]["adversaries"] == 11
    assert at["task", "MR 5+1"]["model"]["network"]["init_args"]["vocabulary"] == 5000
    assert at["attack", "nobody"]["federation"]["adversaries"] == 0
    assert at["attack", "on_off_again"]["adversaries"][0]["init_args"]["period"] == 3
    assert at["server", "guarded"]["server"]["init_args"]["preset"] == "guarded"
    assert at["server", "leave one out"]["server"]["init_args"]["similarity"] == "leave_one_out"
    servers = [repr(at["server", label]["server"]) for label in study.axes["server"]]
    assert len(set(servers)) == len(servers)
    attacks = [repr((at["attack", label]["adversaries"], label == "nobody")) for label in study.axes["attack"]]
    assert len(set(attacks)) == len(attacks)


def test_nobody_attacks_in_another_run_of_every_task() -> None:
    """Two tasks differ in their adversaries alone, and the study as a whole is refused."""
    study = Study.read(packaged()["studies/takeover.yaml"])
    cells = cells_of(study, [1], None, Resolver(), {"attack": {"nobody"}, "server": {"paper"}})
    assert [cell.place["task"] for cell in cells] == [name for name in study.axes["task"] if name != "MNIST 10+11"]


def parts(study: Study) -> list[dict[str, set[str]]]:
    """To which labels one narrows it so that all of it is seen; of a large one, every two labels of different axes.

    One axis at a time lies at the label that most of the others are combined with: where nobody attacks, or one
    adversary has no clones, some are not.
    """
    places = study.places()
    if len(places) <= LARGE:
        return [{}]
    most = {axis: Counter(place[axis] for place in places).most_common(1) for axis in study.axes}
    return [{axis: {label}} for axis, ((label, _),) in most.items()]


def pairs(places: Iterable[Place]) -> set[frozenset[tuple[str, str]]]:
    """Labels of two axes that are combined."""
    return {frozenset(pair) for place in places for pair in combinations(place.items(), 2)}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", STUDIES)
def test_a_packaged_study_can_be_run_as_a_whole(name: str) -> None:
    """Two of its cells are the same run, or one is none, which those who run a part of it never see."""
    study, resolve = Study.read(packaged()[name]), Resolver()
    seen: list[Place] = []
    for only in parts(study):
        cells = cells_of(study, study.seeds, None, resolve, only)
        places = [place for place in study.places() if lies_in(place, only)]
        assert len(cells) == len(study.seeds) * len(places)
        seen += places
    assert pairs(seen) == pairs(study.places())
