"""The packaged study of the takeover."""

from __future__ import annotations

from typing import Any

from rffl_pl.cli.resolve import Resolver
from rffl_pl.cli.study import packaged
from rffl_pl.studies import Study


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
