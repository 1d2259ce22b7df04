"""What participants add, against the definition by orders, and from the runs of a study to its table."""

from __future__ import annotations

import csv
import itertools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import pytest

from rffl_pl.studies.contributions import Worth, alone, leave_one_out, shapley
from rffl_pl.studies.settings import settings_digest
from rffl_pl.studies.study import COLUMNS, Study
from tests.cli.folders import Run
from tests.studies.files import DIGITS, rows, study

MADE = """\
name: made
players: 3
axes:
  split: {UNI: "", POW: ""}
"""
PLAYED = f"""\
name: played
base: {DIGITS} --server FedAvg --federation.participants 2 --federation.adversaries 0 --trainer.max_epochs 2
players: 2
"""
Games = dict[tuple[str, int], dict[frozenset[int], float]]


def game(players: int, seed: int) -> dict[frozenset[int], float]:
    """What every group is worth, drawn at random."""
    lots = random.Random(seed)
    groups = [group for size in range(players + 1) for group in itertools.combinations(range(players), size)]
    return {frozenset(group): lots.uniform(-1, 1) for group in groups}


def by_orders(worth: Worth, player: int) -> float:
    """The definition: the mean over all orders of what the player adds to those before it."""
    players = max(map(len, worth))
    orders = list(itertools.permutations(range(players)))
    before = [frozenset(order[: order.index(player)]) for order in orders]
    return fmean(worth[group | {player}] - worth[group] for group in before)


@pytest.mark.parametrize("players", [1, 2, 3, 5])
def test_the_shapley_value_is_the_mean_over_all_orders(players: int) -> None:
    """On random games; the values add up to what all reach over nobody."""
    for seed in range(5):
        worth = game(players, seed)
        values = [shapley(worth, player) for player in range(players)]
        assert values == pytest.approx([by_orders(worth, player) for player in range(players)])
        assert sum(values) == pytest.approx(worth[frozenset(range(players))] - worth[frozenset()])


def test_its_laws() -> None:
    """Who adds nothing has nothing, twins have the same, and the value of a sum of games is the sum of values."""
    one, other = game(4, 1), game(4, 2)
    total = {group: one[group] + other[group] for group in one}
    assert [shapley(total, i) for i in range(4)] == pytest.approx(
        [shapley(one, i) + shapley(other, i) for i in range(4)]
    )
    idle = {group: one[group - {2}] for group in one}
    assert shapley(idle, 2) == 0
    twins = {group: one[frozenset({0}) if group & {0, 1} else frozenset()] + len(group & {0, 1}) for group in one}
    assert shapley(twins, 0) == pytest.approx(shapley(twins, 1))


def test_the_others() -> None:
    """What is lost without a player, and what it reaches without anybody."""
    worth = game(3, 1)
    assert leave_one_out(worth, 1) == worth[frozenset({0, 1, 2})] - worth[frozenset({0, 2})]
    assert alone(worth, 1) == worth[frozenset({1})] - worth[frozenset()]


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Games]:
    """A study of three players with results drawn at random: of one split two seeds, of the other one and a half."""
    told, games = study(tmp_path, MADE, "made.yaml"), {}
    read = Study.read(told)
    file = tmp_path / "studies" / "made" / "results.csv"
    file.parent.mkdir(parents=True)
    with file.open("w", newline="") as lines:
        table = csv.DictWriter(lines, ["study", "split", "coalition", *COLUMNS])
        table.writeheader()
        for number, (split, seed) in enumerate(itertools.product(("UNI", "POW"), (1, 2))):
            worth = games[split, seed] = game(3, number)
            for group, value in worth.items():
                if (split, seed, len(group)) == ("POW", 2, 2):
                    continue
                place = {"split": split, "coalition": "+".join(map(str, sorted(group))) or "nobody"}
                row = {"study": "made", **place, "seed": seed, "rounds": 5, "settings": settings_digest(read, place)}
                row["cell"] = f"{place} {seed}"
                played = 3 if (split, group) == ("UNI", frozenset({0})) else 5  # one kind of run ended early
                for measure, what in (("accuracy_mean", value), ("rounds_played", float(played))):
                    table.writerow(row | {"role": "all", "measure": measure, "value": what})
                for participant, role in enumerate(("honest", "honest", "adversary")):
                    one = {"participant": participant, "role": role, "measure": "loss"}
                    table.writerow(row | one | {"value": value * (1 + 2 * participant)})
    return told, games


def test_a_table_of_what_everybody_adds(rffl: Run, tmp_path: Path, made: tuple[Path, Games]) -> None:
    """The means over the seeds that have all coalitions; in points where the measure is a share."""
    file, games = made
    words = ("study", file, "--root", tmp_path / "studies", "--table", "participant", "split", "--contribution")
    ended = rffl(*words, "shapley", "--format", "csv")
    assert ended.code == 0, ended.err
    assert ended.err == ("Left out: split=POW seed=2 rounds=5, which has 5 of 8 coalitions; run the study again.\n")
    found = {(row["participant"], row["split"]): row for row in csv.DictReader(ended.out.splitlines())}
    assert len(found) == 6
    for (player, split), row in found.items():
        seeds = (1, 2) if split == "UNI" else (1,)
        assert float(row["mean"]) == pytest.approx(fmean(by_orders(games[split, s], int(player)) for s in seeds))
        assert (row["seeds"], row["measure"]) == (str(len(seeds)), "shapley of accuracy_mean")
    text = rffl(*words, "shapley").out.splitlines()
    assert text[0] == (
        "Table: shapley of accuracy_mean in points: mean ± 95 % interval of Student's t over 1 to 2 seeds, after the "
        "last round, at most 5."
    )
    assert "after the last round, 5." in rffl(*words, "shapley", "--only", "split=POW").out
    assert text[4].startswith(f"| 0 | {100 * float(found['0', 'UNI']['mean']):.1f} ± ")
    lost = rffl(*words, "leave_one_out", "--measure", "loss", "--only", "split=POW", "--format", "csv").out
    values = [float(row["mean"]) for row in csv.DictReader(lost.splitlines())]
    assert values == pytest.approx([2 * leave_one_out(games["POW", 1], player) for player in range(3)])  # of both


MISTAKES = {
    "only some coalitions": (
        ("--table", "participant"),
        ("--contribution", "alone", "--only", "coalition=0+1", "--only", "coalition=0"),
        "--only without coalition with --contribution, which needs every one, but got 0, 0+1; leave it out",
    ),
    "no table": ((), ("--contribution", "shapley"), "--contribution to go with --table"),
    "an unknown one": (
        ("--table", "participant"),
        ("--contribution", "banzhaf"),
        "to be one of shapley, leave_one_out, alone, but got b",
    ),
    "an unknown measure": (
        ("--table", "participant"),
        ("--contribution", "alone", "--measure", "los"),
        "--measure to be one of accuracy_mean, loss, rounds_played, but got los; did you mean loss?",
    ),
    "an axis that it has not": (
        ("--table", "coalition"),
        ("--contribution", "alone"),
        "--table to name axes of made (participant, split, round), but got coalition",
    ),
    "coalitions that were not run": (
        ("--table", "participant"),
        ("--contribution", "alone", "--only", "split=POW", "--seeds", 2),
        "results of all 8 coalitions of made with one seed for --contribution, but there are 5 at most; run the study",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(rffl: Run, tmp_path: Path, made: tuple[Path, Games], mistake: str) -> None:
    """It names what was typed."""
    table, words, expected = MISTAKES[mistake]
    assert_refused(rffl, ("study", made[0], "--root", tmp_path / "studies", *table, *words), expected)


def test_a_study_without_players(rffl: Run, tmp_path: Path, made: tuple[Path, Games]) -> None:
    """Its labels may even be the same: which participants they are of is not known."""
    made[0].write_text(MADE.replace("players: 3\n", "") + "  coalition: {nobody: '', '0': ''}\n")
    words = ("study", made[0], "--root", tmp_path / "studies", "--only", "split=UNI", "--table", "split")
    read = Study.read(made[0])
    file = tmp_path / "studies" / "made" / "results.csv"
    place = {"split": "UNI", "coalition": "0"}
    row = {"study": "made", **place, "seed": 1, "rounds": 5, "settings": settings_digest(read, place), "role": "all"}
    with file.open("w", newline="") as lines:
        table = csv.DictWriter(lines, ["study", "split", "coalition", *COLUMNS])
        table.writeheader()
        table.writerow(row | {"measure": "accuracy_mean", "value": 1})
    assert rffl(*words).code == 0
    assert_refused(rffl, (*words, "--contribution", "shapley"), "made to have the key players for --contribution")


def test_players_are_all_participants(rffl: Run, tmp_path: Path, made: tuple[Path, Games]) -> None:
    """Of fewer, the table would be of a game without the others."""
    made[0].write_text(MADE.replace("players: 3", "players: 2"))
    words = ("study", made[0], "--root", tmp_path / "studies", "--table", "participant", "--contribution", "alone")
    assert_refused(rffl, words, "players of made to be the number of all participants, adversaries too, but it is 2")


def test_no_coalition_is_left_out(rffl: Run, tmp_path: Path) -> None:
    """Then nothing could be said of what anybody adds."""
    file = study(tmp_path, MADE + "exclude: [{split: UNI, coalition: nobody}]\n", "made.yaml")
    assert_refused(rffl, ("study", file), "exclude to leave out no coalition of a study with players")


@pytest.mark.parametrize("players", ["0", "13", "two", "[1]", "-1"])
def test_players_that_are_none(rffl: Run, tmp_path: Path, players: str) -> None:
    """Each more doubles the runs."""
    file = study(tmp_path, MADE.replace("players: 3", f"players: {players}"), "made.yaml")
    assert_refused(rffl, ("study", file), "players to be a number of participants in 1 .. 12")


def test_an_axis_of_that_name(rffl: Run, tmp_path: Path) -> None:
    """It would be overwritten."""
    file = study(tmp_path, MADE + "  coalition: {a: ''}\n", "made.yaml")
    assert_refused(rffl, ("study", file), "another name for the axis coalition")


@pytest.mark.slow
def test_from_the_runs_to_the_table(rffl: Run, tmp_path: Path) -> None:
    """Without any other axis: four runs, of which nobody's has the initial network and everybody's that of all."""
    file, root = study(tmp_path, PLAYED, "played.yaml"), tmp_path / "studies"
    ended = rffl("study", file, "--root", root)
    assert ended.code == 0, ended.err
    assert [line.split(" seed")[0] for line in ended.out.splitlines() if line.startswith("[")] == [
        "[1/4] coalition=nobody", "[2/4] coalition=0", "[3/4] coalition=1", "[4/4] coalition=0+1",
    ]  # fmt: skip
    found = {row["coalition"]: float(row["value"]) for row in mean_of(rows(root / "played" / "results.csv"))}
    assert found["nobody"] < 0.2 < found["0+1"]
    table = rffl(
        "study", file, "--root", root, "--table", "participant", "--contribution", "shapley", "--format", "csv"
    )
    values = [float(row["mean"]) for row in csv.DictReader(table.out.splitlines())]
    first = (found["0"] - found["nobody"] + found["0+1"] - found["1"]) / 2
    assert values == pytest.approx([first, found["0+1"] - found["nobody"] - first])


def mean_of(results: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The rows of the mean accuracy."""
    return [row for row in results if row["measure"] == "accuracy_mean"]


def assert_refused(rffl: Run, words: Sequence[object], expected: str) -> None:
    """Exit code 2 and one sentence."""
    ended = rffl(*words)
    assert ended.code == 2, ended
    (said,) = (line for line in ended.err.splitlines() if line)
    assert said.startswith("Error: Expected ")
    assert expected in said
