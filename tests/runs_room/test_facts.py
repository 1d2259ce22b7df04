"""What runs are found again by, from their configuration."""

from __future__ import annotations

import inspect
from copy import deepcopy
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import yaml

from rffl_pl import servers
from rffl_pl.runs.facts import cell, facts, group, tags
from tests.conftest import ROOT

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


def server(name: str, **options: Any) -> dict[str, Any]:
    """A server, or a rule inside one, as a configuration has it."""
    return {"class_path": f"rffl_pl.servers.{name}", "init_args": options}


ADAM = {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.03}}
SGD = {"class_path": "torch.optim.SGD", "init_args": {"lr": 1.0, "momentum": 0.5}}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (server("FedAvg", variant="fedavg"), "FedAvg"),
        (server("FedAvg", variant="released"), "FedAvg released"),
        (server("CFFL", contribution="examples", selection="random", compounding="released"), "CFFL"),
        (
            server("CFFL", contribution="classes", selection="largest", compounding="none"),
            "CFFL classes largest no compounding",
        ),
        (server("NNM", rule=None, tolerated=None), "NNM"),
        (server("NNM", rule={"class_path": "rffl_pl.servers.Median"}), "NNM"),
        (server("NNM", rule=server("MultiKrum", selected=1)), "NNM of MultiKrum"),
        (server("ARC", rule=server("NNM", rule=server("TrimmedMean"))), "ARC of NNM of TrimmedMean"),
        (server("FedOpt", rule=server("FedAvg", variant="fedavg"), optimizer=None), "FedOpt"),
        (server("FedOpt", rule=None, optimizer=SGD), "FedOpt"),
        (server("FedOpt", rule=None, optimizer=ADAM), "FedOpt Adam"),
        (server("FedOpt", rule=server("Median"), optimizer=ADAM), "FedOpt Adam of Median"),
        (server("QFFL", q=0.1, weights="sampled"), "QFFL sampled"),
        ({"class_path": "my.Own", "init_args": {"rule": 3, "weights": [1, 2]}}, "Own"),
        ({"class_path": "my.Own", "init_args": {"rule": {"class_path": "my.Inner"}}}, "Own of Inner"),
    ],
)
def test_a_server_is_named_by_what_makes_it_another(given: dict[str, Any], named: str) -> None:
    """A dashboard averages over all of one name: two rules or optimizers under one would be shown as a third."""
    config = changed(server=given)
    assert facts(config)["server_name"] == named
    assert group(config) == f"MNIST CLA {named} FreeRider + LabelFlip 10+2"
    name = given["class_path"].rpartition(".")[2]
    assert tags(config)[2:-3] == ([name] if name == named else [name, named])  # the class alone finds all of them


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ({"proximal": 0.0, "personal": 0.0}, "FedAvg"),
        ({"proximal": 0.1, "personal": 0.0}, "FedAvg proximal 0.1"),
        ({"proximal": 1e-05, "personal": 2.0}, "FedAvg proximal 1e-05 personal 2"),
        ({"proximal": 0.1, "scaffold": True}, "FedAvg proximal 0.1 scaffold"),
        ({"scaffold": True, "objective": {"class_path": "my.Moon", "init_args": {}}}, "FedAvg scaffold Moon"),
        ({"objective": None}, "FedAvg"),
        ({"scaffold": False}, "FedAvg"),
    ],
)
def test_proximal_terms_are_another_framework(model: dict[str, float], named: str) -> None:
    """FedProx and Ditto are what they are compared with, FedAvg, but for a number; presets stay a key of their own."""
    assert facts(changed(server=server("FedAvg"), model=model))["server_name"] == named
    rffl = facts(changed(model=model))
    assert (rffl["server_name"], rffl["preset"]) == (named.replace("FedAvg", "RFFL"), "paper")


CLASSES = [
    one for one in map(vars(servers).get, servers.__all__)
    if isinstance(one, type) and issubclass(one, servers.Server) and not inspect.isabstract(one)
]  # fmt: skip


@pytest.mark.parametrize("one", CLASSES)
def test_a_server_with_its_defaults_is_named_by_its_class(one: type[servers.Server]) -> None:
    """Whether they are left out or given: a default that is not known here would part what is the same."""
    every = {name: given.default for name, given in inspect.signature(one).parameters.items()}
    assert facts(changed(server=server(one.__name__, **every)))["server_name"] == one.__name__
    if "rule" in every:
        inside = server(type(one().inner).__name__)  # type: ignore[attr-defined]
        assert facts(changed(server=server(one.__name__, rule=inside)))["server_name"] == one.__name__


@pytest.mark.parametrize("one", [one for one in CLASSES if one is not servers.RFFL])  # its switches go by presets
def test_a_server_with_another_word_has_another_name(one: type[servers.Server]) -> None:
    """A dashboard takes the mean of what has one name: two rules under it would pass for seeds of one."""
    for name, hint in get_type_hints(one.__init__).items():
        for word in get_args(hint) if get_origin(hint) is Literal else ():
            named = facts(changed(server=server(one.__name__, **{name: word})))["server_name"]
            is_default = word == inspect.signature(one).parameters[name].default
            assert (named == one.__name__) == is_default, f"{name} {word}"


def test_the_configurations_of_servers_have_a_name_each() -> None:
    """Two that a user takes for different would be one line of a dashboard."""
    files = sorted((ROOT / "configs" / "servers").glob("*.yaml"))
    found = [facts(changed(**yaml.safe_load(file.read_text()))) for file in files]
    assert len({(known["server_name"], known.get("preset")) for known in found}) == len(files) > 20


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


def test_long_names_of_different_places_are_different() -> None:
    """Two groups are one where their labels begin alike, and their intervals are of runs of both."""
    places = [{"data": "all that there is " * 6, "server": f"guarded, removal after {rounds}"} for rounds in (10, 30)]
    configs = [changed(run={"study": "thresholds", "place": place}) for place in places]
    for name in (group, cell):
        assert len({name(config) for config in configs}) == 2
        assert {len(name(config) or "") for config in configs} == {128}
    assert (cell(configs[0]) or "").endswith(" seed=3")
