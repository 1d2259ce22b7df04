"""Tables against what pandas and scipy compute of the same results."""

from __future__ import annotations

import csv
import errno
import gzip
import itertools
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rffl_pl.errors import UserError
from rffl_pl.studies import tables
from rffl_pl.studies.estimate import Estimate, interval, mean_difference
from rffl_pl.studies.results import PLAYED, keep, read
from rffl_pl.studies.settings import settings_digest
from rffl_pl.studies.study import COLUMNS, Study
from rffl_pl.studies.within import widened
from rffl_pl.studies.written import latex, markdown
from tests.cli.folders import Run
from tests.conftest import ROOT
from tests.studies.files import study

TEXT = """\
name: made
axes:
  server: {RFFL: "", Fed_Avg: ""}
  split: {UNI: "", POW: ""}
  attack: {none: "", flip: ""}
"""
Values = dict[tuple[str, str, str, int], float]


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Values]:
    """A study with results drawn at random: three seeds, of one cell two, and of one cell none."""
    generator, values = random.Random(3), {}
    file, told = tmp_path / "studies" / "made" / "results.csv", study(tmp_path, TEXT, "made.yaml")
    file.parent.mkdir(parents=True)
    with file.open("w", newline="") as lines:
        table = csv.DictWriter(lines, ["study", "server", "split", "attack", *COLUMNS])
        table.writeheader()
        for server, split, attack in itertools.product(("RFFL", "Fed_Avg"), ("UNI", "POW"), ("none", "flip")):
            for seed in (1, 2, 3):
                if (split, attack) == ("POW", "flip") and (server == "RFFL" or seed == 3):
                    continue
                place = {"server": server, "split": split, "attack": attack}
                settings = settings_digest(Study.read(told), place)
                row = {"study": "made", **place, "seed": seed, "rounds": 5, "settings": settings}
                value = values[server, split, attack, seed] = generator.random()
                table.writerow({**row, "role": "all", "measure": "accuracy_mean", "value": value})
                for participant, role in enumerate(("honest", "honest", "adversary")):
                    one = {
                        "participant": participant,
                        "role": role,
                        "measure": "accuracy",
                        "value": value + participant,
                    }
                    table.writerow({**row, **one})
    return told, values


def test_the_interval_is_that_of_scipy() -> None:
    """On random values, for any number of seeds; of one there is none, of equal ones no width."""
    generator = np.random.default_rng(1)
    for seeds in (2, 3, 5, 30):
        values = generator.normal(size=seeds)
        low, high = stats.t.interval(0.95, seeds - 1, values.mean(), stats.sem(values))
        assert interval(list(values)) == pytest.approx((high - low) / 2)
    assert interval([0.3]) is None
    assert interval([0.3, 0.3]) == 0


def test_a_table_for_every_place_on_the_other_axes(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """Means and intervals, fewer seeds are told, what is not there is a dash, and the caption says what it is."""
    file, values = made
    ended = rffl("study", file, "--root", tmp_path / "studies", "--table", "server", "split")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    captions = [line for line in lines if line.startswith("Table: ")]
    what = "accuracy_mean in %: mean ± 95 % interval of Student's t over"
    assert captions == [
        f"Table: {what} 3 seeds, after the last round, 5; attack=none.",
        f"Table: {what} 2 to 3 seeds, after the last round, 5; attack=flip.",
    ]
    assert lines[2] == "| server | UNI | POW |"
    assert lines[4] == f"| RFFL | {shown(values, 'RFFL', 'UNI', 'none')} | {shown(values, 'RFFL', 'POW', 'none')} |"
    assert lines[-2] == f"| RFFL | {shown(values, 'RFFL', 'UNI', 'flip')} | - |"
    assert lines[-1].endswith(f"| {shown(values, 'Fed_Avg', 'POW', 'flip')} (n=2) |")


def test_seeds_that_are_asked_for(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """The mean is over others too."""
    words = ("--table", "server", "split", "--only", "attack=none", "--format", "csv", "--seeds", 1, 3)
    ended = rffl("study", made[0], "--root", tmp_path / "studies", *words)
    assert ended.code == 0, ended.err
    for line in csv.DictReader(ended.out.splitlines()):
        known = [made[1][line["server"], line["split"], "none", seed] for seed in (1, 3)]
        assert float(line["mean"]) == pytest.approx(np.mean(known))
        assert line["seeds"] == "2"


def test_who_ended_early_is_told_where_it_is_shown(tmp_path: Path, made: tuple[Path, Values]) -> None:
    """A table of whole runs says that they had at most so many rounds, or one of a run that broke off does not."""
    study_ = Study.read(made[0])
    known = read(study_, tmp_path / "studies" / "made" / "results.csv")
    rows = [row | {"cell": " ".join(row[name] for name in (*study_.axes, "seed"))} for row in known]
    of_all = [row for row in rows if row["measure"] == "accuracy_mean"]
    played = {row["cell"]: "3" if row["cell"] == "RFFL UNI flip 1" else "5" for row in of_all}
    rows += [row | {"measure": PLAYED, "value": played[row["cell"]]} for row in of_all]
    whole, early = tables.tables(study_, rows, ["server", "split"], "accuracy_mean", None)
    assert whole.caption().endswith("after the last round, 5; attack=none.")
    assert early.caption().endswith("after the last round, at most 5; attack=flip.")
    wide, within = widened(study_, rows, ["participant", "server"], "accuracy")
    shown = tables.tables(wide, within, ["participant", "server"], "accuracy", None)
    assert [table.rest for table in shown if "at most" in table.caption()] == [{"split": "UNI", "attack": "flip"}]


@pytest.mark.parametrize(("measure", "told"), [("accuracy", True), ("loss", True), ("reputation", False)])
def test_rounds_say_on_which_examples(measure: str, told: bool) -> None:
    """Reputations pass for what depends on held-out examples, or accuracies of rounds for those of the end."""
    entries = {("1", measure): Estimate(0.5, 0.1, 3, 5)}
    one = tables.Table(measure=measure, rest={}, rows=["1"], columns=[measure], entries=entries, by_round=True)
    assert ("in every round of 5, of held-out examples unless --data.watch is test" in one.caption()) == told


def test_results_that_were_compressed(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """The same table is drawn of results.csv.gz where there is one."""
    file, _ = made
    words = ("study", file, "--root", tmp_path / "studies", "--table", "server", "split")
    plain = rffl(*words).out
    results = tmp_path / "studies" / "made" / "results.csv"
    results.with_suffix(".csv.gz").write_bytes(gzip.compress(results.read_bytes()))
    assert "results.csv and results.csv.gz are both there; take the older one away." in rffl(*words).err
    results.unlink()
    assert rffl(*words).out == plain


def test_how_much_one_column_is_above_another(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """The difference's interval is that of scipy for the same seeds, paired, and d is Cohen's of the differences."""
    file, values = made
    words = ("--table", "split", "server", "--between", "RFFL", "Fed_Avg")
    ended = rffl("study", file, "--root", tmp_path / "studies", *words, "--only", "attack=none", "--format", "csv")
    assert ended.code == 0, ended.err
    head, *lines = csv.reader(ended.out.splitlines())
    for (split, column, _, measure, *numbers), expected in zip(lines, ("UNI", "POW"), strict=True):
        assert (split, column, measure) == (expected, "RFFL - Fed_Avg", "accuracy_mean")
        pairs = [(values["RFFL", split, "none", s], values["Fed_Avg", split, "none", s]) for s in (1, 2, 3)]
        test = stats.ttest_rel(*zip(*pairs, strict=True))
        low, high = test.confidence_interval(0.95)
        differences = np.array([first - second for first, second in pairs])
        effect = differences.mean() / differences.std(ddof=1)
        wanted = [differences.mean(), (high - low) / 2, 3, 5, effect]
        assert [float(number) for number in numbers] == pytest.approx(wanted)
    assert head[-1] == "d_z"
    shown = rffl("study", file, "--root", tmp_path / "studies", *words)
    assert "Table: accuracy_mean in points: mean difference of the same seeds ± 95 % interval" in shown.out
    first = next(line for line in shown.out.splitlines() if line.startswith("| UNI"))
    assert f"{100 * float(lines[0][4]):+.1f} ±" in first


def test_a_difference_of_labels_below_zero(rffl: Run, tmp_path: Path) -> None:
    """A scale of an attack is taken for an option that there is not."""
    axes = "{split: {UNI: ''}, scale: {-1: --server.gamma 0.1, -0.5: --server.gamma 0.2}}"
    told = study(tmp_path, f"name: made\naxes: {axes}\n", "made.yaml")
    read_again = Study.read(told)
    rows = [
        {"split": "UNI", "scale": scale, "seed": seed, "rounds": "2", "measure": "accuracy_mean", "value": value}
        | {"settings": settings_digest(read_again, {"split": "UNI", "scale": scale})}
        for scale, value in (("-1", "0.7"), ("-0.5", "0.5"))
        for seed in ("1", "2")
    ]
    keep(read_again, tmp_path / "studies" / "made" / "results.csv", rows)
    words = ("study", told, "--root", tmp_path / "studies", "--table", "split", "scale", "--between", "-1", "-0.5")
    ended = rffl(*words)
    assert ended.code == 0, ended.err
    assert "| UNI | +20.0 ± 0.0" in ended.out


def test_values_that_runs_do_not_have(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """A run without a value is no place that was not run, and no seed of a pair."""
    results = tmp_path / "studies" / "made" / "results.csv"
    words = ("study", made[0], "--root", tmp_path / "studies", "--only", "attack=none")
    lines = results.read_text().splitlines()
    gone = [line for line in lines if ",all,accuracy_mean," in line and line.startswith("made,RFFL,UNI,none,")]
    assert len(gone) == 3
    results.write_text("\n".join(line for line in lines if line not in gone[:1]) + "\n")
    table = rffl(*words, "--table", "split", "server")
    assert "(n=2)" in table.out
    ended = rffl(*words, "--table", "split", "server", "--between", "RFFL", "Fed_Avg")
    assert "Left out: seeds that one of the two columns lacks, 1 in all." in ended.err
    results.write_text("\n".join(line for line in lines if line not in gone) + "\n")
    table = rffl(*words, "--table", "split", "server")
    assert next(line for line in table.out.splitlines() if line.startswith("| UNI")).split("|")[2].strip() == "no value"
    both = [line for line in lines if not (",all,accuracy_mean," in line and line.startswith("made,RFFL"))]
    results.write_text("\n".join(both) + "\n")
    ended = rffl(*words, "--table", "split", "server", "--between", "RFFL", "Fed_Avg")
    assert ended.code == 2
    assert "at RFFL and Fed_Avg with the same seeds, but RFFL has no result of accuracy_mean." in ended.err
    assert rffl(*words, "--table", "split", "server", "--measure", "mean").code == 0  # as a run's summary calls it


def test_differences_that_are_alike_but_for_rounding() -> None:
    """A spread of rounding alone is none, and a number that rounds to nothing has no sign."""

    def by_seed(*values: float) -> dict[str, list[dict[str, str]]]:
        return {str(seed): [{"value": str(value), "rounds": "5"}] for seed, value in enumerate(values)}

    assert mean_difference(by_seed(0.9, 0.8, 0.3), by_seed(0.8, 0.7, 0.2)).effect is None
    assert mean_difference(by_seed(0.9, 0.8, 0.3), by_seed(0.8, 0.7, 0.1)).effect is not None
    assert mean_difference(by_seed(3e9, 3e9 + 1, 3e9), by_seed(2e9, 2e9, 2e9)).effect is None  # of bytes nine digits
    assert Estimate(-0.0001, 0.001, 3, 5, -0.01).text(100, 1, "+") == "+0.0 ± 0.1, d_z = 0.0"


def test_rows_between_which_nothing_lies(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """Whoever names two rows hears of labels that the columns lack, and not that the axes are the wrong way round."""
    words = (
        "study",
        made[0],
        "--root",
        tmp_path / "studies",
        "--table",
        "server",
        "split",
        "--between",
        "RFFL",
        "Fed_Avg",
    )
    ended = rffl(*words)
    assert ended.code == 2
    assert "RFFL and Fed_Avg are the rows of --table server split; give --table split server." in ended.err


def test_a_difference_where_some_places_have_no_pair(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """One place that was not run yet keeps the differences of all others from being shown."""
    words = ("study", made[0], "--root", tmp_path / "studies", "--table", "attack", "server")
    file = tmp_path / "studies" / "made" / "results.csv"
    some = [line for line in file.read_text().splitlines() if not line.startswith("made,RFFL,POW,")]
    file.write_text("\n".join(some) + "\n")
    alone = rffl(*words, "--only", "split=POW")
    lacking, without = alone.err.splitlines()
    assert lacking == "No result yet of 2 of 4 cells with seed 1; --dry-run lists them."
    assert without == "Without a result of this measure: server=RFFL."
    ended = rffl(*words, "--between", "RFFL", "Fed_Avg")
    assert ended.code == 0, ended.err
    assert [line for line in ended.out.splitlines() if line.startswith("| flip | ")]
    assert "split=UNI" in ended.out
    assert "split=POW" not in ended.out
    none = rffl(*words, "--between", "RFFL", "Fed_Avg", "--only", "split=POW")
    assert none.code == 2
    assert "at RFFL and Fed_Avg with the same seeds, but RFFL has no result of accuracy_mean." in none.err


def test_cells_without_a_result_are_counted(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """A table of half a study looks as one of all of it: those of its own seeds are told, or of those asked for."""
    words = ("study", made[0], "--root", tmp_path / "studies", "--table", "server")
    assert rffl(*words).err == "No result yet of 1 of 8 cells with seed 1; --dry-run lists them.\n"
    told = "No result yet of 4 of 24 cells with seeds 1, 2, 3; --dry-run lists them.\n"
    assert rffl(*words, "--seeds", 1, 2, 3).err == told
    assert rffl(*words, "--seeds", 1, 2, 3, "--only", "split=UNI").err == ""


def test_a_table_in_csv_and_latex(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """CSV is unrounded; of what participants have, the mean of the honest; LaTeX escapes what it must."""
    file, values = made
    words = ("study", file, "--root", tmp_path / "studies", "--table", "server", "--only", "attack=none")
    ended = rffl(*words, "--only", "split=UNI", "--format", "csv", "--measure", "accuracy")
    table = list(csv.DictReader(ended.out.splitlines()))
    assert [row["server"] for row in table] == ["RFFL", "Fed_Avg"]
    expected = [values["RFFL", "UNI", "none", seed] + 0.5 for seed in (1, 2, 3)]
    assert float(table[0]["mean"]) == pytest.approx(np.mean(expected))
    assert float(table[0]["half_width_95_student_t"]) == pytest.approx(interval(expected))
    assert (table[0]["seeds"], table[0]["rounds"], table[0]["split"]) == ("3", "5", "UNI")
    whole = rffl(*words, "--measure", "accuracy").out
    assert whole.startswith("Table: accuracy of the honest in %: mean ±")
    latex = rffl(*words, "--format", "tex").out
    assert r"\caption{accuracy\_mean in \%: mean $\pm$ 95 \% interval" in latex
    entry = shown(values, "Fed_Avg", "UNI", "none").replace("±", r"$\pm$")
    assert rf"Fed\_Avg & {entry} \\" in latex


def test_two_runs_of_a_place_are_not_mixed(tmp_path: Path, made: tuple[Path, Values]) -> None:
    """Of files that were put together the later run counts, in whole: its accuracy stood beside the other's own."""
    results = tmp_path / "studies" / "made" / "results.csv"
    with results.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    first = {"server": "RFFL", "split": "UNI", "attack": "none", "seed": "1"}
    later = next(row for row in rows if first.items() <= row.items() and row["measure"] == "accuracy_mean")
    with results.open("w", newline="") as lines:
        table = csv.DictWriter(lines, later.keys())
        table.writeheader()
        table.writerows([row | {"cell": "cc"} for row in rows] + [later | {"cell": "dd", "value": "0.9"}])
    study_ = Study.read(made[0])
    here = [row for row in read(study_, results) if first.items() <= row.items()]
    assert [(row["cell"], row["measure"], row["value"]) for row in here] == [("dd", "accuracy_mean", "0.9")]


@pytest.mark.parametrize("cut", ["", "c"])
def test_a_row_that_is_cut_off_in_its_cell(tmp_path: Path, made: tuple[Path, Values], cut: str) -> None:
    """It is of the same run as those before it, and not of a later one, for which they would give way."""
    results = tmp_path / "studies" / "made" / "results.csv"
    with results.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    last = {"server": "Fed_Avg", "split": "POW", "attack": "flip", "seed": "2"}
    with results.open("w", newline="") as lines:
        table = csv.DictWriter(lines, rows[0].keys())
        table.writeheader()
        table.writerows([row | {"cell": cut if row is rows[-1] else "cc"} for row in rows])
    here = [row for row in read(Study.read(made[0]), results) if last.items() <= row.items()]
    assert len(here) == 4


def test_labels_that_latex_takes_for_something_else() -> None:
    """Behind a row's end it reads brackets as a length and swallows a star; some signs its fonts draw as others."""
    text = latex("a|b", [["[x]", "<1>"], ["*", "a*"], ["plain", "[y]"]])
    assert r"\caption{a$|$b}" in text
    assert [line for line in text.splitlines() if line.endswith(r"\\")] == [
        r"{}[x] & $<$1$>$ \\", r"{}* & a* \\", r"plain & [y] \\",
    ]  # fmt: skip
    assert r"\caption{$\leq$ 2 $\times$ 3 $\rightarrow$ $-$1 $\approx$ $\geq$}" in latex(
        "\u2264 2 \u00d7 3 \u2192 \u22121 \u2248 \u2265", [["x"], ["1"]]
    )
    assert r"\caption{$\gamma$=1, -{}-data.watch, $\Omega$}" in latex("\u03b3=1, --data.watch, \u03a9", [["x"], ["1"]])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--table", "sever"), "but got sever; did you mean server?"),
        (("--table", "server", "server"), "the axis of the rows and another of the columns"),
        (("--table", "server", "--measure", "acuracy"), "but got acuracy; did you mean accuracy"),
        (("--table", "server", "--rounds", 6), "--rounds to be a number of rounds that made has, 5, but got 6"),
        (("--table", "server", "--seeds", 8, 9), "results.csv, 1, 2, 3, but got 8, 9; run the study with them first"),
    ],
)
def test_a_table_that_cannot_be(
    rffl: Run, tmp_path: Path, made: tuple[Path, Values], words: tuple[object, ...], expected: str
) -> None:
    """One sentence."""
    ended = rffl("study", made[0], "--root", tmp_path / "studies", *words)
    assert ended.code == 2
    assert expected in ended.err


def test_results_of_different_length_are_not_mixed(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """Only those of one number of rounds make a mean."""
    results = tmp_path / "studies" / "made" / "results.csv"
    first = results.read_text().splitlines()[1]
    results.write_text(results.read_text() + first.replace(",1,5,", ",4,9,") + "\n")
    words = ("study", made[0], "--root", tmp_path / "studies", "--table", "server", "split")
    ended = rffl(*words)
    assert ended.code == 2
    assert "there are some of 5 and 9; choose with --rounds" in ended.err
    assert rffl(*words, "--rounds", 5).code == 0


def test_results_of_other_words_are_not_mixed(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """After an edit of the study its old numbers stand under the new words, or seeds of both make one mean."""
    file, values = made
    words = ("study", file, "--root", tmp_path / "studies", "--table", "server", "split")
    file.write_text(TEXT.replace('{UNI: ""', "{UNI: --data.split UNI"))
    ended = rffl(*words, "--only", "attack=none")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[2] == "| server | POW |"
    told = "Left out: 6 runs that were run with other words, or files of yours, than made has now; run the study again."
    assert told in ended.err
    assert "Left out" not in rffl(*words, "--only", "split=POW").err
    none = rffl(*words, "--only", "split=UNI")
    assert none.code == 2
    assert "all that are in" in none.err

    results = tmp_path / "studies" / "made" / "results.csv"
    place = {"server": "RFFL", "split": "UNI", "attack": "none"}
    old, new = (settings_digest(Study.read(path), place) for path in (study(tmp_path, TEXT, "old.yaml"), file))
    lines = results.read_text().splitlines()
    again = [line.replace(old, new) if line.startswith("made,RFFL,UNI,none,1,") else line for line in lines]
    results.write_text("\n".join(again) + "\n")
    ended = rffl(*words, "--only", "split=UNI", "--only", "attack=none")
    assert "over" not in ended.out
    assert f"| RFFL | {100 * values['RFFL', 'UNI', 'none', 1]:.1f} |" in ended.out
    assert "Left out: 5 runs" in ended.err


@pytest.mark.parametrize(
    ("column", "number", "expected"),
    [
        ("seed", "1.5", "a whole number in every row's column seed, but got '1.5'"),
        ("rounds", "five", "a whole number in every row's column rounds, but got 'five'"),
        ("value", "0,9", "a number in every row's column value, but got '0,9'"),
        ("value", "", "a number in every row's column value, but got ''"),
        ("value", "nan", "a number in every row's column value, but got 'nan'"),
        ("value", "-inf", "a number in every row's column value, but got '-inf'"),
        ("participant", "inf", "a whole number in every row's column participant, but got 'inf'"),
    ],
)
def test_a_number_that_is_none_is_told(
    rffl: Run, tmp_path: Path, made: tuple[Path, Values], column: str, number: str, expected: str
) -> None:
    """A table that a spreadsheet rewrote ends in a traceback, or the next run writes over it."""
    results = tmp_path / "studies" / "made" / "results.csv"
    head, *lines = csv.reader(results.read_text().splitlines())
    lines[4][head.index(column)] = number
    with results.open("w", newline="") as file:
        csv.writer(file).writerows([head, *lines])
    before = results.read_bytes()
    ended = rffl("study", made[0], "--root", tmp_path / "studies", "--table", "server", "split", "--seeds", 1)
    assert ended.code == 2
    assert f"Expected {results} to have {expected}" in ended.err
    with pytest.raises(UserError, match="undo the change, or remove the row"):
        keep(Study.read(made[0]), results, [])
    assert results.read_bytes() == before


def test_a_label_with_a_bar_stays_one_cell() -> None:
    """It begins another column of the Markdown table; behind a backslash too, and stars are no emphasis."""
    assert markdown("n", [["", "a|b"], ["c", "1"]]).splitlines()[2:] == [r"|  | a\|b |", "|---|---:|", "| c | 1 |"]
    line = markdown("n", [["", "1"], [r"a\|b", "_c_ *d* <e> f_g"]]).splitlines()[-1]
    assert line == r"| a\\\|b | \_c\_ \*d\* \<e> f_g |"
    assert markdown("server=*A* in d_z", [["a"], ["1"]]).startswith(r"Table: server=\*A\* in d_z" + "\n")


def test_a_table_needs_no_torch(tmp_path: Path, made: tuple[Path, Values]) -> None:
    """Nobody waits seconds for a table."""
    program = "import sys\nfrom rffl_pl.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n"
    program += "    print('torch' in sys.modules)"
    words = ["study", str(made[0]), "--root", str(tmp_path / "studies"), "--table", "server", "split"]
    ended = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "False"


def shown(values: Values, server: str, split: str, attack: str) -> str:
    known = [100 * value for (*place, _), value in values.items() if place == [server, split, attack]]
    low, high = stats.t.interval(0.95, len(known) - 1, np.mean(known), stats.sem(known))
    return f"{np.mean(known):.1f} ± {(high - low) / 2:.1f}"


def test_files_that_other_programs_wrote(rffl: Run, tmp_path: Path, made: tuple[Path, Values]) -> None:
    """What changes no number is no reason to run anything again: Excel's mark, 0.0 for 0, and a row that came twice."""
    results = tmp_path / "studies" / "made" / "results.csv"
    words = ("study", made[0], "--root", tmp_path / "studies", "--table", "server", "split")
    keep(Study.read(made[0]), results, [])
    text, before = results.read_text(), rffl(*words).out
    lines = text.replace(",0,honest", ",0.0,honest").replace(",1,honest", ",1.0,honest").splitlines()
    assert ",0.0,honest" in lines[2]
    results.write_text("\n".join(["\ufeff" + lines[0], *lines[1:], *lines[1:8]]) + "\n", encoding="utf-8")
    assert rffl(*words).out == before
    keep(Study.read(made[0]), results, [])
    assert results.read_text() == text


def test_a_disk_that_can_only_be_read(made: tuple[Path, Values], monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished study fails there, where it has nothing to write."""
    study_ = Study.read(made[0])
    results = made[0].parent / "studies" / "made" / "results.csv"
    rows = read(study_, results)

    def refused(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr("rffl_pl.studies.results.replaced", refused)
    assert keep(study_, results, rows[:20]) == len(rows)
    with pytest.raises(UserError, match="file that can be written, but Read-only file system"):
        keep(study_, results, [rows[0] | {"value": "0.5"}])


def test_units() -> None:
    """A share is shown as it is, or a difference of two in per cent."""

    def unit(measure: str, paired: bool = False) -> str | None:
        return tables.Table(measure=measure, rest={}, rows=[], columns=[], entries={}, paired=paired).unit

    for name in ("accuracy_mean", "attack_success", "backdoor_success", "adversary_final", "quota", "taken_share"):
        assert (unit(name), unit(name, paired=True)) == ("%", "points")
    for name in ("gain", "adversary_gain", "taken", "taken_most", "smallest_gain", "adversary_over_initial"):
        assert unit(name) == "points"


def test_counts() -> None:
    """Whole participants or rounds: one that all seeds have stands alone, and the caption says so."""

    def shown(measure: str, *entries: tables.Estimate, paired: bool = False) -> tuple[list[str], str]:
        by_row = {(str(row), "RFFL"): entry for row, entry in enumerate(entries)}
        table = tables.Table(measure=measure, rest={}, rows=[*"01"], columns=["RFFL"], entries=by_row, paired=paired)
        return [table.cell(*entry) for entry in by_row], table.caption()

    same, mixed, one = (
        tables.Estimate(mean, half, seeds, 5) for mean, half, seeds in [(5, 0, 3), (13 / 3, 3.8, 3), (4, None, 1)]
    )
    texts, caption = shown("honest_removed", same, mixed, one)
    assert texts == ["5", "4.3 ± 3.8", "4.0 (n=1)"]
    assert caption.endswith("; a count alone is that of every seed.")
    assert "a count alone" not in shown("honest_removed", mixed, one)[1]
    assert shown("last_removal, worst attack", same)[0] == ["5"]
    assert shown("removed_in_round", tables.Estimate(33.5, 0, 3, 5))[0] == ["33.5 ± 0.0"]
    assert shown("first_removal", same, paired=True)[0] == ["+5"]
    assert shown("fairness", same, mixed)[0] == ["5.000 ± 0.000", "4.333 ± 3.800"]
    assert shown("accuracy_mean", tables.Estimate(0.5, 0, 3, 5))[0] == ["50.0 ± 0.0"]


def test_the_effect_of_a_difference() -> None:
    """Another number is shown for Cohen's d, or one of a single seed."""
    assert tables.Estimate(0.1, 0.05, 3, 5, effect=2.0).text(100, 1) == "10.0 ± 5.0, d_z = 2.0"
    first, second = ({"value": value, "rounds": "5", "seed": "1", "role": "all"} for value in ("0.9", "0.8"))
    assert tables.mean_difference({"1": [first]}, {"1": [second]}).effect is None
