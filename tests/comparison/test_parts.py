"""Names, thinned curves and rounded numbers."""

from __future__ import annotations

import itertools
import math

import pytest

from rffl_pl.comparison.curves import (
    MOST_LINES,
    MOST_POINTS,
    MOST_VALUES,
    curves,
    drawn,
    kept,
    points_for,
    short,
    thinned,
)
from rffl_pl.comparison.options import options_of
from rffl_pl.comparison.settings import axes_about, called, differing, ordered, plain
from rffl_pl.runs import Round


def rounds(count: int, measured_every: int = 1) -> list[Round]:
    return [
        Round(
            number=n, honest=1, members=[True, True],
            measures={
                "accuracy": [math.nan if n % measured_every else n / 10, 0.0],
                "reputation": [0.5, 1 / 3],
            },
        )
        for n in range(1, count + 1)
    ]  # fmt: skip


def test_what_differs() -> None:
    """Values that do, and options that some lack; but not what another class cannot be told."""
    a = {"--server": "RFFL", "--server.gamma": "0.5", "--seed_everything": "1", "--federation.adversaries": "1"}
    b = a | {"--server.gamma": "0.3"}
    assert differing([a, dict(a)]) == []
    assert differing([a, b]) == ["--server.gamma"]
    fedavg = {name: value for name, value in a.items() if name != "--server.gamma"} | {"--server": "FedAvg"}
    assert differing([a, fedavg]) == ["--server"]
    assert differing([a, b, fedavg]) == ["--server", "--server.gamma"]
    assert differing([a, a | {"--server.own": "1"}]) == ["--server.own"]
    assert differing([a, a | {"--adversaries.0": "FreeRider"}]) == ["--adversaries.0"]
    assert differing([a, {}]) == []
    stopping = a | {"--trainer.callbacks.0": "EarlyStopping", "--trainer.callbacks.0.monitor": "loss"}
    assert differing([a | {"--trainer.callbacks": "None"}, stopping]) == ["--trainer.callbacks.0"]
    assert differing([a, a | {"--server.bound": "None"}]) == ["--server.bound"]


def test_a_list_of_classes_against_an_empty_one() -> None:
    """The classes are told, not that there is a list."""
    attacked = [{"class_path": "rffl_pl.adversaries.Sybil", "init_args": {"jitter": 0.1}}]
    options = [options_of({"adversaries": given, "seed_everything": 1}) for given in ([], attacked)]
    assert differing(options) == ["--adversaries.0"]
    assert [each.get("--adversaries.0") for each in options] == [None, "Sybil"]


def test_attacks_that_nobody_carries_out() -> None:
    """Runs of the same bits are told apart by them, or by the order in which a coalition's members are named."""
    attacks = [{"class_path": f"rffl_pl.adversaries.{name}"} for name in ("FreeRider", "LabelFlip")]
    told = [
        options_of({"adversaries": attacks, "federation": {"adversaries": count, "coalition": members}})
        for count, members in ((0, [1, 0]), (0, [0, 1]), (1, [0, 1]))
    ]
    assert told[0] == told[1]
    assert {name for name in told[0] if name.startswith("--adversaries")} == set()
    assert {name for name in told[2] if name.startswith("--adversaries")} == {"--adversaries.0"}


def test_axes_of_a_study_that_are_the_servers() -> None:
    """Whatever they are called: those whose labels stand for other options, and not of attack or split."""
    every = [
        (
            {"variant": variant, "adversary": attack, "split": split, "seed": seed},
            {"--server": "RFFL", "--server.gamma": gamma, "--adversaries.0": attack, "--data.split": split},
        )
        for variant, gamma in (("plain", "0.5"), ("long", "2"))
        for attack in ("FreeRider", "Sybil")
        for split, seed in (("UNI", "1"), ("POW", "2"))
    ]
    apart = ["variant", "adversary", "split", "seed"]
    assert axes_about(every, apart, "--server") == ["variant"]
    assert axes_about(every, apart, "--adversaries") == ["adversary"]
    assert axes_about(every[:4], apart, "--server") == []


def test_names_of_settings() -> None:
    """Servers come first and seeds last; words stand alone, numbers with their option."""
    options = [
        "--seed_everything",
        "--model.optimizer.lr",
        "--data.split",
        "--adversaries.0",
        "--server",
        "--server.gamma",
    ]
    assert [plain(name) for name in ordered(options)] == [
        "server", "server.gamma", "adversaries.0", "data.split", "model.optimizer.lr", "seed",
    ]  # fmt: skip
    assert ordered(["split", "server", "seed"]) == ["split", "server", "seed"]
    run = {"--server": "RFFL", "--server.gamma": "0.5", "--seed_everything": "3", "--model.lr_decay": "None"}
    assert called(run, list(run)) == "RFFL · gamma 0.5 · lr_decay None"
    rates = {"--model.optimizer.lr": "0.1", "--server.optimizer.lr": "1", "--standalone.enabled": "True"}
    assert called(rates, [*rates, "--data.lr"]) == "optimizer.lr 0.1 · optimizer.lr 1 · standalone.enabled True"


def test_curves_are_thinned_to_what_a_page_holds() -> None:
    """The first round and the last stay, the rest is spread evenly, at the same rounds of longer and shorter runs."""
    assert kept(range(1, 102), 11, 101) == list(range(0, 101, 10))
    assert kept(range(1, 37), 11, 101) == [0, 10, 20, 30, 35]
    assert len(kept(range(1, 8), 11, 11)) == 7
    assert kept([], 11, 101) == []
    shown = thinned(curves(rounds(100)), 10, 100)
    assert shown["rounds"][0] == 1
    assert shown["rounds"][-1] == 100
    assert shown["measured"] == shown["rounds"]
    assert shown["accuracy"] == [number / 10 for number in shown["rounds"]]
    assert shown["who"] == [0, 1]
    assert shown["reputation"] == [[0.5] * 10, [0.3333] * 10]
    assert not any(thinned(curves([]), 10, 10).values())


@pytest.mark.parametrize("every", [2, 3, 5, 7, 20, 200])
def test_accuracies_of_some_rounds_are_kept(every: int) -> None:
    """Thinned with the reputations, a curve measured in every fifth round would lose all but the rounds of both."""
    shown = thinned(curves(rounds(200, measured_every=every)), 40, 200)
    measured = list(range(every, 201, every))
    assert len(shown["rounds"]) == 40
    assert shown["accuracy"] == [number / 10 for number in shown["measured"]]
    assert {measured[0], measured[-1]} <= set(shown["measured"]) <= set(measured)
    assert len(shown["measured"]) >= min(len(measured), 39)
    apart = [b - a for a, b in itertools.pairwise(shown["measured"])]
    assert max(apart, default=0) - min(apart, default=0) <= every


def test_accuracies_of_shorter_runs_are_of_the_same_rounds() -> None:
    """Seeds are averaged by round: those of a run that ended early must be those of the others, but for its last."""
    found = (curves(rounds(count, measured_every=3)) for count in (200, 100))
    long, short_one = (thinned(one, 40, 200)["measured"] for one in found)
    assert short_one[:-1] == [number for number in long if number < short_one[-1]]
    assert short_one[-1] == 99


def test_without_accuracies_there_are_reputations() -> None:
    """A run that measures none on the way has a curve of the others all the same."""
    shown = thinned(curves(rounds(100, measured_every=1000)), 10, 100)
    assert (shown["measured"], shown["accuracy"]) == ([], [])
    assert len(shown["rounds"]) == len(shown["reputation"][0]) == 10


@pytest.mark.parametrize("participants", [[10] * 100, [10] * 3, [500] * 100])
def test_a_page_stays_small(participants: list[int]) -> None:
    """However many participants there are; few runs keep most of their rounds."""
    lines = sum(min(count, MOST_LINES) + 1 for count in participants)
    assert points_for(participants) * lines <= MOST_VALUES
    assert points_for([10] * 3) == MOST_POINTS


def test_of_many_participants_some_are_drawn() -> None:
    """Both roles, spread over all of them."""
    assert drawn(10, 12) == list(range(12))
    some = drawn(90, 100)
    assert len(some) == MOST_LINES
    assert some[0] == 0
    assert some[-1] == 99
    assert sum(who >= 90 for who in some) == 2
    assert drawn(50, 50)[-1] == 49


@pytest.mark.parametrize(
    ("honest", "total"), [(39, 40), (99, 100), (100, 102), (196, 200), (1, 40), (1, 100), (20, 21), (1, 21), (50, 100)]
)
def test_few_of_either_role_are_among_the_drawn(honest: int, total: int) -> None:
    """However many there are of the other."""
    some = drawn(honest, total)
    assert len(some) <= MOST_LINES
    assert {who < honest for who in some} == {True, False}


def test_numbers_are_short() -> None:
    """Four digits, and none for what is no number."""
    assert [short(value) for value in (0.123456, 1234567, 1.0, math.nan, None, 12.34567)] == [
        0.1235,
        1234567,
        1,
        None,
        None,
        12.35,
    ]
