"""``rffl paper``: published beside measured, from results that are kept."""

from __future__ import annotations

import csv
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy import stats

from rffl_pl.cli import paper
from rffl_pl.cli.paper import _needed as needed
from rffl_pl.cli.resolve import Resolver
from rffl_pl.cli.study import packaged
from rffl_pl.paper import FIGURES, published
from rffl_pl.studies import Study, results
from rffl_pl.studies.cells import cells_of
from rffl_pl.studies.settings import settings_digest
from rffl_pl.studies.study import COLUMNS, CURVE_COLUMNS
from tests.bad_input.refusal import assert_refused
from tests.cli.folders import Run
from tests.studies.test_mistakes import assert_one_sentence

ATTACKS = Study.read(packaged()["studies/paper/attacks.yaml"]).small()
TABLE = "untargeted_freerider_uniform"


def keep_drawn(folder: Path, rounds: int, seeds: list[int], left_out: Callable[[str, int], bool]) -> None:
    """Results of the cells of one table, drawn at random, but of servers and seeds that are left out."""
    generator, only = random.Random(1), needed([TABLE])["attacks"]
    rows = []
    for cell in cells_of(ATTACKS, seeds, None, Resolver(), only):
        if left_out(cell.place["server"], cell.seed):
            continue
        about = dict.fromkeys(COLUMNS, "") | cell.place | {"study": ATTACKS.name, "measure": "accuracy"}
        about |= {"seed": str(cell.seed), "rounds": str(rounds), "settings": cell.settings, "cell": "of other code"}
        rows += [
            about | {"participant": str(i), "role": "honest" if i < 10 else "adversary", "value": str(value)}
            for i in range(12)
            for value in [generator.uniform(0.9, 0.94)]
        ]
    results.keep(ATTACKS, folder / "attacks-reduced.csv.gz", rows)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of three seeds; of the median only one, of FoolsGold none."""
    folder = tmp_path_factory.mktemp("results")
    keep_drawn(folder, 12, [1, 2, 3], lambda server, seed: server == "FoolsGold" or (server == "Median" and seed > 1))
    return folder


def test_a_table_from_what_is_kept(rffl: Run, kept: Path) -> None:
    """An entry is not the mean and interval of its own participant over seeds, or a mark is where none belongs."""
    ended = rffl("paper", "table", TABLE, "--reduced", "--results", kept, "--format", "csv")
    assert ended.code == 0, ended.err
    lines = list(csv.DictReader(ended.out.splitlines()))
    assert len(lines) == len(published(TABLE))
    rows = results.read(ATTACKS, kept / "attacks-reduced.csv.gz")
    for line in lines:
        mine = [r for r in rows if r["server"] == line["row"] and r["participant"] == line["participant"]]
        values = [100 * float(row["value"]) for row in mine]
        assert (line["mean"] == "") == (not values)
        if len(values) == 3:
            low, high = stats.t.interval(0.95, 2, sum(values) / 3, stats.sem(values))
            assert float(line["mean"]) == pytest.approx(sum(values) / 3)
            assert float(line["half_width_95_student_t"]) == pytest.approx((high - low) / 2)
            outside = float(line["published"]) + 0.5 < low or float(line["published"]) - 0.5 > high
            assert line["parts"] == str(outside)
        elif values:
            assert (line["half_width_95_student_t"], line["parts"]) == ("", "")
    assert {"True", "False"} <= {line["parts"] for line in lines if line["row"] != "Median"}


def test_the_table_says_what_it_is(rffl: Run, kept: Path) -> None:
    """A reader cannot tell the schedule, seeds and rounds, which figures part, or that some were never measured."""
    ended = rffl("paper", "table", TABLE, "--reduced", "--results", kept)
    caption, _, head, _, *lines = ended.out.splitlines()
    for words in (
        "reduced schedule",
        "over 1 to 3 seeds (of one there is none, and no ≠)",
        "last round, 12; ",
        "; missing: 1 run.",
    ):
        assert words in caption
    by_name = {line.split("|")[1].strip(): line for line in lines}
    assert len(by_name) == 12
    assert by_name["FedAvg, published"].count(" 97 ") == 10
    assert by_name["FedAvg, measured"].count("≠") == 10
    assert by_name["FoolsGold, measured"].count(" - ") == 10
    assert "≠" not in by_name["Median, measured"]
    assert head.count("|") == 12
    tex = rffl("paper", "table", TABLE, "--reduced", "--results", kept, "--format", "tex").out
    assert tex.count(r"$\neq$") == ended.out.count("≠")
    assert tex.count(r"\\") == len(lines) + 1


def test_results_of_another_configuration_are_left_out(rffl: Run, tmp_path: Path, kept: Path) -> None:
    """A packaged study that has changed since shows what its old words reached."""
    rows = results.read(ATTACKS, kept / "attacks-reduced.csv.gz")
    old = [row | {"settings": "of old"} if row["server"] == "FedAvg" else row for row in rows]
    results.keep(ATTACKS, tmp_path / "attacks-reduced.csv.gz", old)
    ended = rffl("paper", "table", TABLE, "--reduced", "--results", tmp_path)
    (line,) = (line for line in ended.out.splitlines() if line.startswith("| FedAvg, measured"))
    assert line.count(" - ") == 10
    assert ended.err == (
        "Left out: 3 runs that were run with other words, or files of yours, than attacks-reduced has now; run the "
        "study again.\n"
    )


def test_without_results_the_paper_alone(rffl: Run, tmp_path: Path) -> None:
    """It fails, or does not say how to measure."""
    ended = rffl("paper", "table", "accuracy", "--results", tmp_path / "none")
    assert ended.code == 0, ended.err
    assert "Nothing is measured yet: --run" in ended.out
    assert "| RFFL, published | 96 (96) | 95 (96) | 73 (94) |" in ended.out
    assert not (tmp_path / "none").exists()


def test_what_is_kept_is_not_run_again(rffl: Run, kept: Path) -> None:
    """Results of another machine's code are run again, or a cell that has none is left out."""
    words = ("paper", "table", TABLE, "--reduced", "--results", kept, "--dry-run", "--seeds", 1, 2, 3)
    listed = rffl(*words, "--rounds", 12)
    states = [line for line in listed.out.splitlines() if ": 12 rounds, " in line]
    to_run = [line.split(":")[0] for line in states if line.endswith("to run")]
    assert len(states) == 18
    place = "setting=UNI 10+2 attack=free_rider server="
    assert to_run == [
        *(f"{place}FoolsGold seed={seed}" for seed in (1, 2, 3)), f"{place}Median seed=2", f"{place}Median seed=3",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif("RFFL_DATA_DIR" not in os.environ, reason="RFFL_DATA_DIR, the folder with MNIST, is not set")
def test_what_is_missing_is_run_and_kept(rffl: Run, tmp_path: Path) -> None:
    """The table does not have what was just measured, or the results lose what was there, another seed's too."""
    folder = tmp_path / "results"
    keep_drawn(folder, 1, [1, 2], lambda server, _: server == "FoolsGold")
    words = ("paper", "table", TABLE, "--reduced", "--results", folder, "--run", "--rounds", 1)
    for seed in (1, 2):
        ended = rffl(*words, "--seeds", seed, "--root", tmp_path / "studies", "--jobs", 2)
        assert ended.code == 0, ended.err
    rows = results.read(ATTACKS, folder / "attacks-reduced.csv.gz")
    assert {(row["server"], row["seed"], row["cell"] == "of other code") for row in rows} == {
        (server, seed, server != "FoolsGold") for server in ATTACKS.axes["server"] for seed in "12"
    }
    assert "over 2 seeds, after the last round, 1;" in ended.out
    assert " - |" not in ended.out


def test_every_figure_is_drawn(rffl: Run, tmp_path: Path, kept: Path) -> None:
    """A picture is not written, or hides that a panel has no data."""
    flips = Study.read(packaged()["studies/paper/label_flip.yaml"]).small()
    place = {"split": "UNI", "adversaries": "2"}
    settings = settings_digest(flips, place)
    rows = [
        dict.fromkeys(CURVE_COLUMNS, "") | place | {"seed": "1", "rounds": "3", "settings": settings}
        | {"round": str(number), "participant": str(i), "role": "honest" if i < 5 else "adversary"}
        | {"measure": measure, "value": str(0.1 * i + 0.01 * number)}
        for measure in flips.curves for number in (1, 2, 3) for i in range(7)
        if (i, number) != (2, 2)  # as of one whose models were not finite
    ]  # fmt: skip
    results.keep_curves(flips, tmp_path / "label_flip-reduced.csv.gz", rows)
    name = "label_flip_uniform"
    ended = rffl("paper", "figure", name, "--reduced", "--results", tmp_path, "--out", tmp_path / "out")
    assert ended.code == 0, ended.err
    for ending, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        assert (tmp_path / "out" / f"{name}-reduced.{ending}").read_bytes()[:4] == magic
    assert set(ended.out.split()) == {str(tmp_path / "out" / f"{name}-reduced.{ending}") for ending in ("png", "pdf")}
    ended = rffl("paper", "figure", "free_riders", "--reduced", "--results", tmp_path, "--out", tmp_path / "out")
    assert_refused(ended, f"Expected results of free_riders in {tmp_path}, but there are none; try without --reduced")


def test_a_measurement_that_is_interrupted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who presses Ctrl-C before the first result is told to give what it gave."""

    def interrupted(words: list[str]) -> None:
        raise KeyboardInterrupt

    words = ["figure", "free_riders", "--reduced", "--results", str(tmp_path), "--root", str(tmp_path), "--run"]
    assert paper.main([*words, "--jobs", "1"], interrupted) == 130
    assert "Expected" not in capsys.readouterr().err


def test_without_results(rffl: Run, tmp_path: Path) -> None:
    """A table of nothing invites to hours of work, while what was measured lies in the repository."""
    ended = rffl("paper", "table", "accuracy", "--reduced", "--results", tmp_path / "none")
    assert ended.code == 0
    assert "What was measured with this package lies in the folder results of its repository" in ended.err


def test_results_that_are_a_file(rffl: Run, tmp_path: Path) -> None:
    """What lies beside it is not looked for."""
    file = tmp_path / "mnist.csv.gz"
    file.touch()
    ended = rffl("paper", "table", "accuracy", "--results", file)
    assert (ended.code, ended.out) == (2, "")
    assert f"Expected --results to be a folder, but {file} is a file" in ended.err


def test_all_of_it_in_one_folder(rffl: Run, tmp_path: Path, kept: Path) -> None:
    """A table of the list is not written, or the picture of what nobody has measured."""
    ended = rffl("paper", "all", "--reduced", "--results", kept, "--out", tmp_path / "paper")
    assert ended.code == 0, ended.err
    listed = [line.split()[0] for line in rffl("paper", "list").out.splitlines() if line.startswith("  ")]
    assert len(listed) == 25
    written = {path.stem for path in (tmp_path / "paper").iterdir()}
    assert written == {f"{name}-reduced" for name in listed if name not in FIGURES}
    assert len(list((tmp_path / "paper").iterdir())) == 20 * 3
    assert f"left out, since nothing is measured of them: {', '.join(FIGURES)}" in ended.err


def test_settings_are_those_that_would_run(rffl: Run) -> None:
    """The table shows a copy of the paper's numbers, not what is configured."""
    ours = [line for line in rffl("paper", "table", "fi_hyperparameters").out.splitlines() if "configured" in line]
    assert ours[1] == "| MNIST, configured | 16 | 0.15 | 0.977 | 60 | 1 |"
    assert not any("≠" in line for line in ours[1:])
    reduced = rffl("paper", "table", "fi_hyperparameters", "--reduced").out
    assert "configured here, reduced schedule;" in reduced
    assert "| MNIST, configured | 16 | 0.15 | 0.977 | 12 ≠ | 1 |" in reduced


MISTAKES = {
    "no verb": ((), "the following arguments are required: verb"),
    "an unknown verb": (("tabel", "accuracy"), "invalid choice: 'tabel'"),
    "an unknown table": (("table", "acuracy"), "but got acuracy; did you mean accuracy"),
    "a figure that is a table": (("figure", "accuracy"), "Expected a figure of the paper, but got accuracy"),
    "no name": (("table",), "Expected a table of the paper, but got none"),
    "a name too many": (("all", "accuracy"), "Expected nothing behind rffl paper all, but got accuracy"),
    "an unknown option": (("list", "--result", "x"), "but got --result; did you mean --results"),
    "a list that is to run": (("list", "--run"), "--run and --dry-run with table, figure or all, but rffl paper list"),
    "rounds of no run": (("table", "accuracy", "--rounds", 3), "Expected --rounds to go with --run or --dry-run"),
    "seeds of no run": (("figure", "free_riders", "--seeds", 77), "Expected --seeds to go with --run or --dry-run"),
    "a folder of no file": (
        ("table", "accuracy", "--out", "x"),
        "Expected --out to go with figure or all, but got rffl",
    ),
    "a format of no table": (("all", "--format", "tex"), "Expected --format to go with table, but got rffl paper all"),
    "no place to write": (("all", "--out", "/proc/x"), "Expected --out to be a folder that can be"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(rffl: Run, mistake: str) -> None:
    """It ends in a traceback, or another code than 2."""
    words, expected = MISTAKES[mistake]
    ended = rffl("paper", *words)
    assert_one_sentence(ended.code, ended.err, expected)
