"""Labels that are chosen by validation examples: each place its own, or by some places alone; the table says which."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

import pytest

from rffl_pl.runs import RunFolder
from rffl_pl.studies.estimate import interval
from rffl_pl.studies.settings import settings_digest
from rffl_pl.studies.study import COLUMNS, CURVE_COLUMNS, Study
from tests.cli.folders import Ended, Run
from tests.studies.files import DIGITS, rows, study

TEXT = """\
name: made
axes:
  server: {RFFL: "", FedAvg: ""}
  rate: {0.1: "", 0.2: "", 0.4: "", 0.8: ""}
  attack: {nobody: "", noise: "", flips: ""}
curves: [reputation]
exclude:
  - {server: FedAvg, rate: [0.4]}
"""
SEEDS = ("1", "2", "3")
Rows = list[dict[str, str]]


class Made:
    """A study with results drawn at random, and the table of it."""

    def __init__(self, folder: Path, rffl: Run) -> None:
        generator, self.file, self.folder = random.Random(3), study(folder, TEXT, "made.yaml"), folder / "studies"
        self.study, self.rffl = Study.read(self.file), rffl
        self.rows: Rows = []
        self.rounds: Rows = []
        for place in self.study.places():
            for seed in SEEDS:
                known = {"study": "made", **place, "seed": seed, "rounds": "4"}
                known |= {"settings": settings_digest(self.study, place), "cell": "".join([*place.values(), seed])}
                for measure in ("accuracy_mean", "accuracy_validation"):
                    everybody = {"participant": "", "role": "all", "measure": measure}
                    self.rows.append(known | everybody | {"value": str(generator.random())})
                one = known | {"participant": "0", "role": "honest", "measure": "reputation"}
                self.rounds += [one | {"round": str(r), "value": str(generator.random())} for r in (1, 2, 3, 4)]
        self.write(self.rows)
        self._write("results.curves.csv", self.rounds, CURVE_COLUMNS)

    def write(self, some: Iterable[dict[str, str]]) -> None:
        self._write("results.csv", some, COLUMNS)

    def _write(self, name: str, some: Iterable[dict[str, str]], columns: Iterable[str]) -> None:
        folder = self.folder / "made"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("w", newline="") as lines:
            table = csv.DictWriter(lines, ["study", *self.study.axes, *columns])
            table.writeheader()
            table.writerows(some)

    def table(self, *words: str) -> Ended:
        return self.rffl("study", self.file, "--root", self.folder, "--table", *words)

    def lines(self, *words: str) -> list[dict[str, str]]:
        ended = self.table(*words, "--format", "csv")
        assert ended.code == 0, ended.err
        return list(csv.DictReader(ended.out.splitlines()))

    def of_seeds(self, measure: str, **place: str) -> list[float]:
        """By seed, at a place."""
        return [
            float(row["value"])
            for seed in SEEDS
            for row in self.rows
            if (place | {"measure": measure, "seed": seed}).items() <= row.items()
        ]

    def rates(self, server: str) -> list[str]:
        return ["0.1", "0.2", "0.8"] if server == "FedAvg" else ["0.1", "0.2", "0.4", "0.8"]


@pytest.fixture
def made(tmp_path: Path, rffl: Run) -> Made:
    return Made(tmp_path, rffl)


def test_of_each_place_the_best(made: Made) -> None:
    """The test accuracies of the label whose mean over seeds is the highest on validation examples."""
    lines = made.lines("server", "attack", "--tuned", "rate")
    assert len(lines) == 6
    chosen = set()
    for line in lines:
        place = {"server": line["server"], "attack": line["attack"]}
        means = {
            rate: fmean(made.of_seeds("accuracy_validation", rate=rate, **place))
            for rate in made.rates(place["server"])
        }
        best = max(means, key=means.__getitem__)
        values = made.of_seeds("accuracy_mean", rate=best, **place)
        assert line["tuned"] == f"rate={best}"
        assert float(line["mean"]) == pytest.approx(fmean(values))
        assert float(line["half_width_95_student_t"]) == pytest.approx(interval(values))
        chosen.add(best)
    assert len(chosen) > 1


def test_where_nobody_attacks(made: Made) -> None:
    """One label for every attack, of whoever cannot know them; also when the table has no such place."""
    lines = made.lines("server", "attack", "--tuned", "rate", "attack=nobody")
    some = made.lines("server", "attack", "--tuned", "rate", "attack=nobody", "--only", "attack=noise")
    assert some == [line for line in lines if line["attack"] == "noise"]
    assert len(lines) == 3 * len(some) == 6
    for line in lines:
        means = {
            rate: fmean(made.of_seeds("accuracy_validation", rate=rate, server=line["server"], attack="nobody"))
            for rate in made.rates(line["server"])
        }
        best = max(means, key=means.__getitem__)
        assert line["tuned"] == f"rate={best}"
        values = made.of_seeds("accuracy_mean", rate=best, server=line["server"], attack=line["attack"])
        assert float(line["mean"]) == pytest.approx(fmean(values))
    two = made.lines("server", "--only", "attack=flips", "--tuned", "rate", "attack=nobody", "attack=noise")
    assert len(two) == 2
    for line in two:
        means = {
            rate: fmean(
                value
                for attack in ("nobody", "noise")
                for value in made.of_seeds("accuracy_validation", rate=rate, server=line["server"], attack=attack)
            )
            for rate in made.rates(line["server"])
        }
        assert line["tuned"] == f"rate={max(means, key=means.__getitem__)}"


def test_against_the_worst_attack(made: Made) -> None:
    """The label is chosen first, by the worst of each seed, and the attack knows it: its worst on the test set."""
    for line in made.lines("server", "--tuned", "rate", "--worst", "attack"):

        def worst(measure: str, rate: str, server: str = line["server"]) -> list[float]:
            attacks = [made.of_seeds(measure, rate=rate, server=server, attack=a) for a in ("nobody", "noise", "flips")]
            return [min(values) for values in zip(*attacks, strict=True)]

        means = {rate: fmean(worst("accuracy_validation", rate)) for rate in made.rates(line["server"])}
        best = max(means, key=means.__getitem__)
        assert line["tuned"] == f"rate={best}"
        assert float(line["mean"]) == pytest.approx(fmean(worst("accuracy_mean", best)))
    (first, _) = made.lines("server", "--tuned", "rate", "attack=nobody", "--worst", "attack")
    (other, *_) = made.lines("server", "attack", "--tuned", "rate", "attack=nobody")
    assert first["tuned"] == other["tuned"]


def test_the_caption_says_which(made: Made) -> None:
    """By what it was chosen, and all labels, once where they are the same; of differences both sides'."""
    lines = made.lines("server", "attack", "--tuned", "rate")
    told = ", ".join(f"{line['server']} {line['attack']} {line['tuned'].partition('=')[2]}" for line in lines)
    assert f"; rate by validation accuracy: {told}." in made.table("server", "attack", "--tuned", "rate").out
    label = lines[0]["tuned"].partition("=")[2]
    only = ("--only", "server=RFFL", "--only", "attack=nobody")
    alone = made.table("server", "--tuned", "rate", *only).out
    assert f"; rate by validation accuracy: {label}; attack=nobody." in alone
    tex = made.table("server", "attack", "--tuned", "rate", "attack=noise", "--format", "tex").out
    rffl, fedavg = (line["tuned"].partition("=")[2] for line in lines if line["attack"] == "noise")
    assert f"; rate by validation accuracy at attack=noise: RFFL {rffl}, FedAvg {fedavg}." in tex
    words = ("attack", "server", "--between", "RFFL", "FedAvg", "--tuned", "rate")
    (line, *_) = made.lines(*words)
    by_place = {(one["server"], one["attack"]): one for one in lines}
    sides = [by_place[server, line["attack"]] for server in ("RFFL", "FedAvg")]
    rates = [side["tuned"].partition("=")[2] for side in sides]
    assert line["tuned"] == f"rate={' - '.join(rates)}"
    assert float(line["mean"]) == pytest.approx(float(sides[0]["mean"]) - float(sides[1]["mean"]))
    assert f"{line['attack']} RFFL {rates[0]}, {line['attack']} FedAvg {rates[1]}" in made.table(*words).out


def test_rounds_of_what_was_chosen(made: Made, tmp_path: Path) -> None:
    """The choice is by the last round, and the rounds are the chosen label's; a picture says which."""
    by_place = {(one["server"], one["attack"]): one for one in made.lines("server", "attack", "--tuned", "rate")}
    words = ("round", "server", "--measure", "reputation", "--tuned", "rate")
    lines = made.lines(*words)
    assert len(lines) == 4 * len(by_place) == 24
    for line in lines:
        rate = by_place[line["server"], line["attack"]]["tuned"].partition("=")[2]
        here = {"server": line["server"], "attack": line["attack"], "rate": rate, "round": line["round"]}
        values = [float(row["value"]) for row in made.rounds if here.items() <= row.items()]
        assert float(line["mean"]) == pytest.approx(fmean(values))
    ended = made.rffl("study", made.file, "--root", made.folder, "--figure", *words, "--out", tmp_path / "out")
    assert ended.code == 0, ended.err
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        f"made-reputation-by-round-server-tuned-rate.{ending}" for ending in ("png", "pdf")
    }


def test_what_lies_at_an_end_is_told(made: Made) -> None:
    """The best of numbers may lie beyond the last one that was tried."""
    for highest, told in (("0.8", True), ("0.1", True), ("0.2", False)):
        made.write(
            row | {"value": "1.0"} if (row["rate"], row["measure"]) == (highest, "accuracy_validation") else row
            for row in made.rows
            if row["server"] == "RFFL"
        )
        ended = made.table("server", "attack", "--tuned", "rate", "attack=nobody")
        assert ended.code == 0, ended.err
        sentence = f"Chosen at an end of rate, try beyond it: server=RFFL rate={highest}.\n"
        assert (sentence in ended.err) is told, ended.err
    beyond = [row for row in made.rows if (row["rate"], row["seed"]) != ("0.8", "3")]
    made.write(row | {"value": "1.0"} if row["rate"] == "0.4" else row for row in beyond if row["server"] == "RFFL")
    assert "Chosen at an end" not in made.table("server", "attack", "--tuned", "rate").err  # 0.8 was tried, by halves
    made.write(row for row in made.rows if row["rate"] == "0.1")
    assert "Chosen at an end" not in made.table("server", "attack", "--tuned", "rate").err  # of one there is none


def test_who_lacks_a_seed_is_not_chosen(made: Made) -> None:
    """A mean over fewer seeds may be high by chance; it is told, and the others are chosen from."""
    highest = [
        row | {"value": "1.0"} if (row["rate"], row["measure"]) == ("0.2", "accuracy_validation") else row
        for row in made.rows
    ]
    made.write(row for row in highest if (row["server"], row["rate"], row["seed"]) != ("RFFL", "0.2", "3"))
    ended = made.table("server", "--only", "attack=noise", "--tuned", "rate", "--format", "csv")
    first, second = csv.DictReader(ended.out.splitlines())
    assert (first["tuned"] == "rate=0.2", second["tuned"]) == (False, "rate=0.2")
    assert first["seeds"] == "3"
    assert "Not chosen by --tuned, without results that others have: server=RFFL attack=noise rate=0.2." in ended.err
    table = made.table("server", "--only", "attack=noise", "--tuned", "rate").out
    assert "; not chosen, without results that others have: server=RFFL attack=noise rate=0.2;" in table


def test_who_alone_has_another_seed_is_not_chosen_for_that(made: Made) -> None:
    """Nobody else had all seeds any more, and the worst was taken."""
    worst = [
        row | {"value": "0.01"} if (row["rate"], row["measure"]) == ("0.1", "accuracy_validation") else row
        for row in made.rows
    ]
    more = [
        row | {"seed": "4", "cell": f"{row['cell']} 4"} for row in worst if (row["rate"], row["seed"]) == ("0.1", "3")
    ]
    chosen = []
    for some in (worst, worst + more):
        made.write(some)
        chosen.append([line["tuned"] for line in made.lines("server", "attack", "--tuned", "rate")])
    assert chosen[0] == chosen[1]
    assert "rate=0.1" not in chosen[1]


def test_seeds_of_one_label_alone(made: Made) -> None:
    """That of the file counts, which the others lack; of another one nothing else is known."""
    of_two = [row for row in made.rows if row["rate"] in ("0.1", "0.2")]
    made.write(row for row in of_two if (row["rate"], row["seed"]) != ("0.2", "1"))  # the file says nothing: seed 1
    assert {line["tuned"] for line in made.lines("server", "attack", "--tuned", "rate")} == {"rate=0.1"}
    made.write(row for row in of_two if (row["rate"], row["seed"]) == ("0.2", "3"))
    assert {line["tuned"] for line in made.lines("server", "attack", "--tuned", "rate")} == {"rate=0.2"}


def test_who_has_nothing_to_be_chosen_by(made: Made) -> None:
    """It is left out and told, be it a label without a validation accuracy, or a server that nobody attacked."""
    made.write(
        row
        for row in made.rows
        if (row["server"], row["attack"]) != ("RFFL", "flips")
        and (row["server"], row["rate"], row["measure"]) != ("FedAvg", "0.8", "accuracy_validation")
    )
    ended = made.table("server", "attack", "--tuned", "rate", "attack=flips", "--format", "csv")
    assert {line["server"] for line in csv.DictReader(ended.out.splitlines())} == {"FedAvg"}
    told = "Not chosen by --tuned, without results that others have: "
    assert told in ended.err
    assert {*ended.err.partition(told)[2].splitlines()[0].rstrip(".").split("; ")} == {
        "server=RFFL", "server=FedAvg rate=0.8",
    }  # fmt: skip


def test_what_cannot_be_tuned(made: Made) -> None:
    """One sentence each."""
    for words, said in (
        (("server", "--tuned", "rat"), "--tuned to name an axis of made (server, rate, attack), but got rat"),
        (("server", "--tuned", "rate", "nobody"), "Expected --tuned to be AXIS=LABEL, but got nobody"),
        (("server", "--tuned", "rate", "attack=noisy"), "--tuned to name a label of the axis attack"),
        (("server", "--tuned", "rate", "rate=0.1"), "Expected --tuned rate without rate=LABEL behind it, but got both"),
        (("server", "--tuned", "rate", "--worst", "rate"), "Expected --tuned rate without --worst, but got both"),
        (("server", "rate", "--tuned", "rate"), "--table without the axis rate, of which --tuned chooses a label"),
        (("server", "--tuned", "rate", "--contribution", "alone"), "--tuned or --contribution, but got both"),
    ):
        ended = made.table(*words)
        assert (ended.code, said in ended.err, "Traceback" in ended.err) == (2, True, False), ended.err
    ended = made.rffl("study", made.file, "--root", made.folder, "--tuned", "rate")
    assert (ended.code, "--tuned to go with --table or --figure" in ended.err) == (2, True)
    for some in (made.rows, [row for row in made.rows if row["attack"] == "nobody"]):
        made.write(row for row in made.rows if row["measure"] != "accuracy_validation" or row not in some)
        ended = made.table("server", "--tuned", "rate", "attack=nobody")
        assert (ended.code, "with accuracy_validation for --tuned, but no run" in ended.err) == (2, True), ended.err
    made.write(row for row in made.rows if row["measure"] != "accuracy_validation")
    ended = made.table("server", "--tuned", "rate")
    assert ended.code == 2
    assert "run it with --data.watch validation --trainer.check_val_every_n_epoch 1." in ended.err


@pytest.mark.slow
def test_a_real_study(rffl: Run, tmp_path: Path) -> None:
    """What results have is what the runs watched after their last round, unless that was the test set."""
    text = f"""\
name: real
base: {DIGITS} --trainer.max_epochs 2
axes:
  watch: {{validation: --data.watch validation, test: --data.watch test}}
  rate: {{0.01: --model.optimizer.lr 0.01, 0.1: --model.optimizer.lr 0.1}}
seeds: [1]
"""
    words = ("study", study(tmp_path, text, "real.yaml"), "--root", tmp_path / "studies")
    assert rffl(*words).code == 0
    found = [row for row in rows(tmp_path / "studies/real/results.csv") if row["measure"] == "accuracy_validation"]
    assert {row["watch"] for row in found} == {"validation"}
    assert len(found) == 2
    for row in found:
        (folder,) = (tmp_path / "studies" / "cells" / row["cell"]).glob("2*")
        assert float(row["value"]) == pytest.approx(RunFolder.open(folder).rounds()[-1].mean_accuracy)
    ended = rffl(*words, "--table", "watch", "--tuned", "rate", "--format", "csv")
    assert ended.code == 0, ended.err
    (line,) = csv.DictReader(ended.out.splitlines())
    assert (line["watch"], line["tuned"]) == ("validation", "rate=0.1")
    assert "Without a result of this measure: watch=test." in ended.err
    assert "without results that others have: watch=test rate=0.01; watch=test rate=0.1." in ended.err
