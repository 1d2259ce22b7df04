"""What runs are found again by, from their configuration."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from rffl_pl.runs.facts import facts, group, tags

CONFIG: dict[str, Any] = {
    "seed_everything": 3,
    "trainer": {"max_epochs": 25},
    "federation": {"participants": 10, "adversaries": 2},
    "server": {"class_path": "rffl_pl.servers.RFFL", "init_args": {"preset": "paper"}},
    "data": {
        "class_path": "rffl_pl.datamodules.MNIST",
        "init_args": {"split": {"class_path": "rffl_pl.datamodules.CLA"}},
    },
    "adversaries": [{"class_path": f"rffl_pl.adversaries.{name}"} for name in ("FreeRider", "LabelFlip", "SignRandom")],
}


def changed(**changes: Any) -> dict[str, Any]:
    """The configuration with other values at the top."""
    return deepcopy(CONFIG) | changes


def test_facts() -> None:
    """Each in its last name; an attack that nobody carries out is none."""
    assert facts(CONFIG) == {
        "dataset": "MNIST", "split": "CLA", "server_name": "RFFL", "preset": "paper", "attack": "FreeRider + LabelFlip",
        "participants": 10, "adversaries": 2, "seed": 3, "rounds": 25,
    }  # fmt: skip
    assert group(CONFIG) == "MNIST CLA RFFL paper FreeRider + LabelFlip 10+2"
    assert tags(CONFIG) == ["MNIST", "CLA", "RFFL", "paper", "FreeRider", "LabelFlip", "seed 3"]


def test_a_cell_says_its_study() -> None:
    """As a key and as a tag, and in no group: other studies have the same run."""
    cell = changed(run={"name": "x", "study": "attacks"})
    assert facts(cell) == facts(CONFIG) | {"study": "attacks"}
    assert tags(cell) == [*tags(CONFIG), "study attacks"]
    assert group(cell) == group(CONFIG)
    assert facts(changed(run={"study": None})) == facts(CONFIG)


@pytest.mark.parametrize("server", [{"class_path": "my.Median"}, {"class_path": "my.Median", "init_args": None}])
def test_what_there_is_not(server: object) -> None:
    """A server without options or preset, data without a split, nobody who attacks."""
    config = changed(server=server, data={"class_path": "Own"}, federation={"participants": 2, "adversaries": 0})
    assert facts(config)["server_name"] == "Median"
    assert not {"preset", "split"} & facts(config).keys()
    assert facts(config)["attack"] == "none"
    assert group(config) == "Own Median none 2+0"
    assert tags(config) == ["Own", "Median", "no attack", "seed 3"]


@pytest.mark.parametrize(("coalition", "named"), [([10, 0], "0+10"), ([], "nobody")])
def test_a_coalition_is_no_federation_of_all(coalition: list[int], named: str) -> None:
    """As a key and in the group."""
    some = changed(federation=CONFIG["federation"] | {"coalition": coalition})
    assert facts(some) == facts(CONFIG) | {"coalition": named}
    assert group(some) == f"only {named} {group(CONFIG)}"
    assert facts(changed(federation=CONFIG["federation"] | {"coalition": None})) == facts(CONFIG)


def test_a_group_is_that_of_all_seeds() -> None:
    """And of nothing else that has a name of its own."""
    assert group(changed(seed_everything=4)) == group(CONFIG)
    assert group(changed(federation={"participants": 5, "adversaries": 2})) != group(CONFIG)
    assert group(changed(adversaries=CONFIG["adversaries"][1:])) != group(CONFIG)


def test_names_are_no_longer_than_wandb_takes() -> None:
    """128 characters for a group, 64 for a tag."""
    long = changed(server={"class_path": "my." + "Long" * 50})
    assert len(group(long)) == 128
    assert max(map(len, tags(long))) == 64
