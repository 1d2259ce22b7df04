"""What adversaries take where the smallest honest participant gains nothing: no mean of the other seeds."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from rffl_pl.studies.estimate import Estimate
from rffl_pl.studies.figures import draw
from rffl_pl.studies.settings import settings_digest
from rffl_pl.studies.study import COLUMNS, Study
from rffl_pl.studies.tables import Table
from tests.cli.folders import Run
from tests.studies.files import study

TEXT = """\
name: made
axes:
  server: {RFFL: "", FedAvg: "", CFFL: ""}
  attack: {replay: "", noise: ""}
"""
TAKEN = {  # by server and attack, of three seeds: what was taken at most, and what the smallest honest gains
    ("RFFL", "replay"): [(0.1, 0.4), (0.2, 0.4), (0.3, 0.4)],
    ("RFFL", "noise"): [(0.0, 0.4), (0.0, 0.4), (0.0, -0.1)],
    ("FedAvg", "replay"): [(0.1, 0.4), (0.2, 0.0), (0.3, -0.2)],
    ("FedAvg", "noise"): [(0.5, 0.0), (0.5, -0.1), (0.5, -0.2)],
    ("CFFL", "replay"): [(0.1, -0.4), (0.2, 0.0), (0.1, 0.4)],
    ("CFFL", "noise"): [(-0.1, -0.4), (-0.2, -0.1), (-0.3, -0.2)],
}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A study with results as runs leave them: without a share where the smallest honest gains nothing."""
    file, told = tmp_path / "studies" / "made" / "results.csv", study(tmp_path, TEXT, "made.yaml")
    file.parent.mkdir(parents=True)
    with file.open("w", newline="") as lines:
        table = csv.DictWriter(lines, ["study", "server", "attack", *COLUMNS])
        table.writeheader()
        for (server, attack), seeds in TAKEN.items():
            place = {"server": server, "attack": attack}
            row = {"study": "made", **place, "rounds": 5, "role": "all"}
            row["settings"] = settings_digest(Study.read(told), place)
            for seed, (most, gain) in enumerate(seeds, 1):
                measured = {"taken_most": most, "smallest_gain": gain}
                measured |= {"taken_share": most / gain} if gain > 0 else {}
                for measure, value in measured.items():
                    table.writerow(row | {"seed": seed, "measure": measure, "value": value})
    return told


@pytest.fixture
def table(made: Path, rffl: Run, tmp_path: Path) -> list[str]:
    """The lines of the table of shares."""
    words = ("--root", tmp_path / "studies", "--table", "server", "attack", "--measure", "taken_share")
    ended = rffl("study", made, *words)
    assert (ended.code, ended.err) == (0, "")
    return ended.out.splitlines()


def test_a_share_of_nothing_is_no_value_less(table: list[str]) -> None:
    """The runs in which cheating pays most are left out of the mean."""
    assert "; ∞ where the smallest honest participant gains nothing and something is taken" in table[0]
    assert [line.split(" | ") for line in table[4:]] == [
        ["| RFFL", "50.0 ± 62.1", "0.0 ± 0.0 |"],
        ["| FedAvg", "∞ in 2 of 3", "∞ |"],
        ["| CFFL", "∞ in 2 of 3", "0.0 ± 0.0 |"],
    ]


def test_the_worst_case_of_a_share(made: Path, rffl: Run, tmp_path: Path) -> None:
    """The server that loses most is gone, or another attack than the worst stands for it."""
    words = ("--root", tmp_path / "studies", "--table", "server", "--worst", "attack", "--measure", "taken_share")
    ended = rffl("study", made, *words)
    assert ended.err == ""
    assert ended.out.splitlines()[4:] == ["| RFFL | 50.0 ± 62.1 |", "| FedAvg | ∞ |", "| CFFL | ∞ in 2 of 3 |"]
    one = rffl("study", made, *words, "--only", "server=FedAvg", "--format", "csv").out.splitlines()
    assert one[1].startswith('FedAvg,"taken_share, worst attack",inf,,3,5')


def test_one_share_less_another(made: Path, rffl: Run, tmp_path: Path) -> None:
    """What has no bound less what has none is a number, or takes the other seeds with it."""
    words = ("--root", tmp_path / "studies", "--table", "attack", "server", "--measure", "taken_share")
    first = rffl("study", made, *words, "--between", "FedAvg", "RFFL").out.splitlines()
    assert first[4:] == ["| replay | +∞ in 2 of 3 |", "| noise | +∞ |"]
    second = rffl("study", made, *words, "--between", "RFFL", "FedAvg", "--format", "tex").out
    assert r"noise & -$\infty$ \\" in second
    third = rffl("study", made, *words, "--between", "FedAvg", "CFFL", "--only", "attack=replay").out.splitlines()
    assert third[4:] == ["| replay | ±∞ |"]


def test_a_picture_of_shares() -> None:
    """An infinite mean stands at the edge of its side, over its row; it is drawn as a number, or not at all."""
    none = Estimate(math.inf, None, 3, 5, infinite=2), Estimate(-math.inf, None, 3, 5, infinite=3)
    known = Estimate(0.5, 0.1, 3, 5), Estimate(0.25, 0.1, 3, 5)
    entries = {("replay", "A"): none[0], ("noise", "A"): known[0], ("replay", "B"): known[1], ("noise", "B"): none[1]}
    shown = Table(measure="taken_share", rest={}, rows=["replay", "noise"], columns=["A", "B"], entries=entries)
    (axes,) = draw([shown], ["attack", "server"]).axes
    marks = [(text.get_text(), round(text.get_position()[0]), text.get_verticalalignment()) for text in axes.texts]
    assert marks == [("∞", 0, "top"), ("∞", 1, "bottom")]
    points = [np.asarray(line.get_ydata()).tolist() for line in axes.get_lines() if line.get_marker() in ("o", "s")]
    assert points == [[50.0], [25.0]]
    assert max(map(abs, axes.get_ylim())) < 70
