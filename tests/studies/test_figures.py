"""Pictures of studies: what is drawn is what the table says, within a run too."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from matplotlib import colors
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rffl_pl.errors import UserError
from rffl_pl.studies.estimate import interval
from rffl_pl.studies.figures import draw, save
from rffl_pl.studies.settings import settings_digest
from rffl_pl.studies.study import COLUMNS, CURVE_COLUMNS, Study
from rffl_pl.studies.tables import Table, tables
from rffl_pl.studies.within import widened
from tests.cli.folders import Run
from tests.studies.files import DIGITS, study

TEXT = """\
name: made
axes:
  server: {RFFL: "", FedAvg: ""}
  rate: {0.1: "", 0.2: "", 0.8: ""}
  split: {UNI: "", POW: ""}
curves: [reputation]
"""
Rows = list[dict[str, str]]
ROUNDS = 4


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Rows, Rows]:
    """A study with results of two honest participants and an adversary, drawn at random, also of every round."""
    generator, file = random.Random(5), study(tmp_path, TEXT, "made.yaml")
    last: Rows = []
    every: Rows = []
    read = Study.read(file)
    for place in read.places():
        for seed in ("1", "2", "3"):
            known = {"study": "made", **place, "seed": seed, "rounds": str(ROUNDS)}
            known |= {"settings": settings_digest(read, place), "cell": "".join([*place.values(), seed])}
            everybody = {"participant": "", "role": "all", "measure": "accuracy_mean"}
            last.append(known | everybody | {"value": str(generator.random())})
            for participant, role in enumerate(("honest", "honest", "adversary")):
                one = known | {"participant": str(participant), "role": role}
                last.append(one | {"measure": "accuracy", "value": str(generator.random())})
                of_rounds = [{"round": str(r), "value": str(generator.random())} for r in range(1, ROUNDS + 1)]
                every += [one | {"measure": "reputation"} | entry for entry in of_rounds]
    folder = tmp_path / "studies" / "made"
    folder.mkdir(parents=True)
    for name, rows, columns in (("results", last, COLUMNS), ("results.curves", every, CURVE_COLUMNS)):
        with (folder / f"{name}.csv").open("w", newline="") as lines:
            table = csv.DictWriter(lines, ["study", *read.axes, *columns])
            table.writeheader()
            table.writerows(rows)
    return file, last, every


def _drawn(rows: Rows, file: Path, axes: list[str], measure: str) -> tuple[list[Table], Figure]:
    wide, within = widened(Study.read(file), rows, axes, measure)
    shown = tables(wide, within, axes, measure, None)
    return shown, draw(shown, axes)


def _line(handle: Any) -> Line2D:
    """What the legend shows of a column: its line, or that of its points and bars."""
    line = handle[0] if isinstance(handle, ErrorbarContainer) else handle
    assert isinstance(line, Line2D)
    return line


def _lines(figure: Figure, panel: int) -> dict[str, list[tuple[float, float]]]:
    """By label, the points of every line or row of points."""
    lines = {
        label: _line(handle) for handle, label in zip(*figure.axes[panel].get_legend_handles_labels(), strict=True)
    }
    points = {label: np.asarray(line.get_xydata(), dtype=float) for label, line in lines.items()}
    return {label: [(x, y) for x, y in found.tolist()] for label, found in points.items()}


def test_numbers_stand_where_they_are_and_intervals_are_the_tables(made: tuple[Path, Rows, Rows]) -> None:
    """A panel for each place on the other axes; a line's points and bars are mean and interval, in %."""
    file, rows, _ = made
    shown, figure = _drawn(rows, file, ["rate", "server"], "accuracy_mean")
    titles = [axes.get_title("left") for axes in figure.axes]
    assert titles == ["split=UNI", "split=POW"]
    for panel, split in enumerate(("UNI", "POW")):
        lines = _lines(figure, panel)
        assert [*lines] == ["RFFL", "FedAvg"]
        for server, points in lines.items():
            assert [x for x, _ in points] == [0.1, 0.2, 0.8]
            bars = figure.axes[panel].containers[[*lines].index(server)].lines[2][0].get_segments()  # type: ignore[attr-defined]  # error bars
            for (rate, mean), bar in zip(points, bars, strict=True):
                here = {"server": server, "rate": str(rate), "split": split, "measure": "accuracy_mean"}
                values = [float(row["value"]) for row in rows if here.items() <= row.items()]
                assert mean == pytest.approx(100 * fmean(values))
                assert bar[1][1] - bar[0][1] == pytest.approx(200 * (interval(values) or 0))
    assert "95 %" in figure.get_suptitle()
    assert "3 seeds" in figure.get_suptitle()
    assert figure.axes[0].get_ylabel() == "accuracy_mean in %"
    assert figure.axes[0].get_xlabel() == "rate"
    assert len(shown) == 2


def test_labels_that_span_powers_of_ten(tmp_path: Path) -> None:
    """Rates would lie upon each other but for the largest; dollar signs in labels are no formula."""
    rates = ("0.001", "0.01", "0.1")
    axes: dict[str, dict[str, list[str]]] = {
        "rate": {rate: [] for rate in rates},
        "price": {"$1_a$": [], "2$": []},
    }
    made = Study(name="made", base=[], axes=axes, seeds=[1])
    about = {"seed": "1", "rounds": "2", "participant": "", "role": "all", "measure": "loss", "cell": "", "value": "1"}
    rows = [about | {"rate": rate, "price": price} for rate in rates for price in axes["price"]]
    shown = tables(made, rows, ["rate", "price"], "loss", None)
    figure = draw(shown, ["rate", "price"])
    assert figure.axes[0].get_xscale() == "log"
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == [*rates]
    assert [path.stat().st_size > 1000 for path in save(figure, tmp_path, "made")] == [True, True]
    assert draw(tables(made, rows, ["price", "rate"], "loss", None), ["price", "rate"]).axes[0].get_xscale() == "linear"


def test_numbers_are_joined_in_their_order(tmp_path: Path) -> None:
    """In the file's, where a rate is added at its end, the line went to and fro."""
    rates = ("1", "0.1", "0.5", "0.2")
    made = Study(name="made", base=[], axes={"rate": {rate: [] for rate in rates}, "server": {"RFFL": []}}, seeds=[1])
    about = {"seed": "1", "rounds": "2", "participant": "", "role": "all", "measure": "loss", "cell": ""}
    rows = [about | {"rate": rate, "server": "RFFL", "value": rate} for rate in rates]
    figure = draw(tables(made, rows, ["rate", "server"], "loss", None), ["rate", "server"])
    assert _lines(figure, 0) == {"RFFL": [(0.1, 0.1), (0.2, 0.2), (0.5, 0.5), (1.0, 1.0)]}


def test_a_picture_says_which_column_it_has(made: tuple[Path, Rows, Rows]) -> None:
    """One of a difference did not say of what less what; and it explained a number that it does not show."""
    file, rows, _ = made
    study_, axes = Study.read(file), ["rate", "server"]
    figure = draw(tables(study_, rows, axes, "accuracy_mean", None, ["RFFL", "FedAvg"]), axes)
    (legend,) = figure.legends
    assert ([text.get_text() for text in legend.get_texts()], legend.get_title().get_text()) == (
        ["RFFL - FedAvg"],
        "server",
    )
    assert "mean difference of the same seeds" in figure.get_suptitle()
    assert "d_z" not in figure.get_suptitle()
    assert not draw(tables(study_, rows, ["rate"], "accuracy_mean", None), ["rate"]).legends


def test_labels_and_panels_beyond_the_room_there_is(tmp_path: Path) -> None:
    """A label of 300 characters had matplotlib give up the layout; hundreds of panels took minutes."""
    long, many = [f"{i}{'x' * 300}{i}" for i in range(2)], [str(i) for i in range(61)]
    axes: dict[str, dict[str, list[str]]] = {"place": {name: [] for name in long}, "other": {name: [] for name in many}}
    made = Study(name="made", base=[], axes=axes, seeds=[1])
    about = {"seed": "1", "rounds": "2", "participant": "", "role": "all", "measure": "loss", "cell": "", "value": "1"}
    rows = [about | {"place": name, "other": other} for name in long for other in many]
    figure = draw(tables(made, rows[:1] + rows[61:62], ["place", "other"], "loss", None), ["place", "other"])
    labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert labels == [f"{i}{'x' * 19}…{'x' * 18}{i}" for i in range(2)]
    assert len(save(figure, tmp_path, "long")) == 2
    alike = [f"{'x' * 30}{i}{'x' * 30}" for i in range(2)]
    axes = {"server": {name: [] for name in alike}, "rate": {"1": []}}
    rows_ = [about | {"server": name, "rate": "1"} for name in alike]
    shown = tables(replace(made, axes=axes), rows_, ["rate", "server"], "loss", None)
    assert [*_lines(draw(shown, ["rate", "server"]), 0)] == alike  # as one they would have one entry
    with pytest.raises(UserError, match=r"^Expected --figure to draw at most 60 panels, .*, but there are 61; narrow"):
        draw(tables(made, rows, ["place"], "loss", None), ["place"])


def test_signs_that_no_font_has(tmp_path: Path) -> None:
    """matplotlib told of each with a line of our code; a sentence says what to do."""
    made = Study(name="made", base=[], axes={"server": {"\u4e2d\u6587": [], "B": []}}, seeds=[1])
    about = {"seed": "1", "rounds": "2", "participant": "", "role": "all", "measure": "loss", "cell": "", "value": "1"}
    shown = tables(made, [about | {"server": server} for server in made.axes["server"]], ["server"], "loss", None)
    with pytest.warns(
        UserWarning, match=r"^Some labels have signs that matplotlib's font lacks, .* font\.family"
    ) as told:
        save(draw(shown, ["server"]), tmp_path, "made")
    assert len(told) == 1


def test_a_mean_of_those_who_have_a_value(made: tuple[Path, Rows, Rows]) -> None:
    """Whoever has diverged was left out of the mean in silence, and the loss of the others looked like everybody's."""
    file, last, every = made
    first = every[0]
    of_one = [row | {"measure": "mine"} for row in last if row["participant"] == "1"]
    assert (
        tables(Study.read(file), last + of_one, ["server"], "mine", None)[0].whose == " of the honest that have a value"
    )
    assert tables(Study.read(file), last, ["server"], "accuracy", None)[0].whose == " of the honest"
    never = [row for row in every if (row["cell"], row["participant"]) != (first["cell"], first["participant"])]
    watched = [row | {"measure": "weight"} for row in every]
    for some, whose in (
        (every, " of the honest"),
        (every[1:], " of the honest that have a value"),
        (never + watched, " of the honest that have a value"),
    ):
        wide, within = widened(Study.read(file), some, ["round", "server"], "reputation")
        shown = tables(wide, within, ["round", "server"], "reputation", None)
        assert [table.whose for table in shown if table.rest == {"rate": "0.1", "split": "UNI"}] == [whose]
        assert {table.whose for table in shown if table.rest["rate"] != "0.1"} == {" of the honest"}


def test_names_stand_side_by_side_and_are_not_joined(made: tuple[Path, Rows, Rows]) -> None:
    """No line suggests an order of servers; columns do not hide each other."""
    file, rows, _ = made
    _, figure = _drawn(rows, file, ["server", "rate"], "accuracy_mean")
    axes = figure.axes[0]
    lines = _lines(figure, 0)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["RFFL", "FedAvg"]
    assert len({x for points in lines.values() for x, _ in points}) == 6
    assert all(line.get_linestyle() == "None" for line in axes.get_lines() if line.get_label() in lines)


def test_rounds_along_and_a_line_for_every_participant(made: tuple[Path, Rows, Rows]) -> None:
    """Each participant's own mean in each round, adversaries dashed and called so."""
    file, _, every = made
    _, figure = _drawn(every, file, ["round", "participant"], "reputation")
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert len(panels) == 12  # 2 servers, 3 rates, 2 splits
    for panel, axes in enumerate(panels):
        place = dict(word.split("=") for word in axes.get_title("left").split())
        lines = _lines(figure, panel)
        assert [*lines] == ["0", "1", "2, adversary"]
        for label, points in lines.items():
            for number, mean in points:
                here = place | {"participant": label[0], "round": f"{number:.0f}"}
                assert mean == pytest.approx(fmean(float(row["value"]) for row in every if here.items() <= row.items()))
        adversary = next(line for line in axes.get_lines() if line.get_linestyle() == "--")
        last = _line(axes.get_legend_handles_labels()[0][2])
        assert colors.same_color(adversary.get_color(), last.get_color())


def test_a_table_may_have_rounds_or_participants_too(rffl: Run, tmp_path: Path, made: tuple[Path, Rows, Rows]) -> None:
    """With adversaries' own values beside, and the mean over the honest where participants are no axis."""
    file, last, every = made
    words = (
        "study",
        file,
        "--root",
        tmp_path / "studies",
        "--only",
        "split=UNI",
        "--only",
        "rate=0.1",
        "--format",
        "csv",
    )
    ended = rffl(*words, "--table", "participant", "server")
    assert ended.code == 0, ended.err
    lines = list(csv.DictReader(ended.out.splitlines()))
    assert [line["participant"] for line in lines if line["server"] == "RFFL"] == ["0", "1", "2, adversary"]
    for line in lines:
        here = {"split": "UNI", "rate": "0.1", "server": line["server"], "participant": line["participant"][0]}
        values = [float(row["value"]) for row in last if here.items() <= row.items()]
        assert float(line["mean"]) == pytest.approx(fmean(values))
    ended = rffl(*words, "--table", "round", "server", "--measure", "reputation")
    lines = list(csv.DictReader(ended.out.splitlines()))
    assert len(lines) == 2 * ROUNDS
    for line in lines:
        here = {"split": "UNI", "rate": "0.1", "role": "honest", "server": line["server"], "round": line["round"]}
        assert float(line["mean"]) == pytest.approx(
            fmean(float(row["value"]) for row in every if here.items() <= row.items())
        )


@pytest.mark.slow
def test_the_files_are_named_by_what_they_show(rffl: Run, tmp_path: Path, made: tuple[Path, Rows, Rows]) -> None:
    """As PNG and PDF in the study's folder, or by its name in another; a narrowed one does not replace the whole."""
    words = ("study", made[0], "--root", tmp_path / "studies", "--figure", "rate", "server")
    ended = rffl(*words)
    assert ended.code == 0, ended.err
    folder = tmp_path / "studies" / "made"
    whole = folder / "accuracy_mean-by-rate-server.png"
    assert ended.out.splitlines() == [str(whole), str(whole.with_suffix(".pdf"))]
    before = whole.read_bytes()
    assert before.startswith(b"\x89PNG")
    assert whole.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    assert rffl(*words, "--only", "split=UNI").code == 0
    assert rffl(*words, "--seeds", 1, "--rounds", ROUNDS).code == 0
    assert whole.read_bytes() == before
    assert (folder / f"accuracy_mean-by-rate-server-rounds={ROUNDS}-seeds=1.png").is_file()
    ended = rffl(*words, "--between", "RFFL", "FedAvg", "--out", tmp_path / "new" / "pictures")
    assert ended.code == 0, ended.err
    assert (tmp_path / "new" / "pictures" / "made-accuracy_mean-by-rate-server-RFFL-FedAvg.png").is_file()


def test_what_cannot_be_drawn_is_one_sentence(rffl: Run, tmp_path: Path, made: tuple[Path, Rows, Rows]) -> None:
    """Each names what was typed."""
    words = ("study", made[0], "--root", tmp_path / "studies")
    (tmp_path / "file").write_text("")
    for given, said in (
        (("--figure", "rat"), "--figure to name axes of made (server, rate, split, participant, round), but got rat"),
        (("--table", "rate", "server", "split"), "the columns, but got rate server split; name one or two, each once"),
        (("--figure", "rate", "--table", "rate"), "--table or --figure, but got both"),
        (("--figure", "rate", "--format", "tex"), "--format to go with --table"),
        (("--table", "rate", "--out", "x"), "--out to go with --figure"),
        (("--figure", "rate", "--jobs", 2), "--jobs without --figure"),
        (("--figure", "rate", "--out", tmp_path / "file"), "--out to be a folder that can be written to"),
        (("--figure", "round", "server"), "--measure to be one of reputation, but got accuracy"),
        (("--table", "rate", "--measure", "reputation"), "reputation, which is kept by round; name the axis round."),
        (("--table", "participant", "--measure", "accuracy_mean"), "one that participants have (accuracy), but got"),
    ):
        ended = rffl(*words, *given)
        assert ended.code == 2
        assert said in ended.err
        assert "Traceback" not in ended.err
    (tmp_path / "studies" / "made" / "results.curves.csv").unlink()
    ended = rffl(*words, "--figure", "round", "server")
    assert ended.code == 2
    assert "made to have the key curves with accuracy, which keeps every round, but it has reputation" in ended.err


@pytest.mark.parametrize(
    ("measure", "final", "told"), [("f1", "f1", True), ("f1", "accuracy", False), ("reputation", "reputation", False)]
)
def test_metrics_of_rounds_say_on_which_examples(
    rffl: Run, tmp_path: Path, made: tuple[Path, Rows, Rows], measure: str, final: str, told: bool
) -> None:
    """One's own pass for those of the end, or what a server measures, which final models lack, for one's own."""
    for name, before, now in (("results", "accuracy", final), ("results.curves", "reputation", measure)):
        file = tmp_path / "studies" / "made" / f"{name}.csv"
        file.write_text(file.read_text().replace(f",{before},", f",{now},"))
    words = ("study", made[0], "--root", tmp_path / "studies", "--table", "round", "participant")
    ended = rffl(*words, "--measure", measure)
    assert ended.code == 0, ended.err
    assert ("of held-out examples unless --data.watch is test" in ended.out) == told


@pytest.mark.slow
def test_rounds_of_a_real_study(rffl: Run, tmp_path: Path) -> None:
    """Accuracies in every round, of a study that asks for them when it has run already: folders have them."""
    text = f"""\
name: real
base: {DIGITS} --trainer.max_epochs 3
axes:
  server: {{RFFL: "", FedAvg: --server FedAvg}}
seeds: [1, 2]
"""
    file = study(tmp_path, text, "real.yaml")
    words = ("study", file, "--root", tmp_path / "studies")
    assert rffl(*words).code == 0
    ended = rffl(*words, "--figure", "round", "server")
    assert ended.code == 2
    assert "add `curves: [accuracy]` to its file and run it again" in ended.err
    study(tmp_path, text + "curves: [accuracy]\n", "real.yaml")
    assert rffl(*words).code == 0
    ended = rffl(*words, "--figure", "round", "server")
    assert ended.code == 0, ended.err
    ended = rffl(*words, "--table", "round", "server", "--format", "csv")
    of_rounds = {line["round"]: line for line in csv.DictReader(ended.out.splitlines()) if line["server"] == "FedAvg"}
    assert [*of_rounds] == ["1", "2", "3"]
    assert all(line["seeds"] == "2" and 0 < float(line["mean"]) < 1 for line in of_rounds.values())


def test_the_worst_over_an_axis(rffl: Run, tmp_path: Path, made: tuple[Path, Rows, Rows]) -> None:
    """Of each seed its own, the lowest of accuracies, the highest of what adversaries take; whole seeds alone."""
    file, rows, _ = made
    words = ("study", file, "--root", tmp_path / "studies", "--worst", "rate", "--format", "csv")
    ended = rffl(*words, "--table", "server", "split")
    assert ended.code == 0, ended.err
    lines = list(csv.DictReader(ended.out.splitlines()))
    assert len(lines) == 4
    for line in lines:
        here = {"server": line["server"], "split": line["split"], "measure": "accuracy_mean"}
        of_seeds = [
            min(float(row["value"]) for row in rows if (here | {"seed": seed}).items() <= row.items())
            for seed in ("1", "2", "3")
        ]
        assert line["measure"] == "accuracy_mean, worst rate"
        assert float(line["mean"]) == pytest.approx(fmean(of_seeds))
        assert float(line["half_width_95_student_t"]) == pytest.approx(interval(of_seeds))
    shown = rffl(*words[:-2], "--table", "server", "split", "--between", "RFFL", "FedAvg")
    assert shown.code == 2  # columns are splits
    assert rffl(*words[:-2], "--table", "split", "server", "--between", "RFFL", "FedAvg").code == 0
    results = tmp_path / "studies" / "made" / "results.csv"
    some = [line for line in results.read_text().splitlines() if not line.startswith("made,RFFL,0.2,UNI,2,")]
    results.write_text("\n".join(some).replace("accuracy_mean", "taken") + "\n")
    ended = rffl(*words, "--table", "server", "split", "--measure", "taken")
    assert "Left out: server=RFFL split=UNI seed=2 rounds=4, without a value at all labels of --worst." in ended.err
    first = next(csv.DictReader(ended.out.splitlines()))
    values = [
        max(float(row["value"]) for row in rows if here.items() <= row.items())
        for seed in ("1", "3")
        if (here := {"server": "RFFL", "split": "UNI", "measure": "accuracy_mean", "seed": seed})
    ]
    assert first["seeds"] == "2"
    assert float(first["mean"]) == pytest.approx(fmean(values))


@pytest.mark.parametrize(
    ("measure", "pick"), [("last_removal", max), ("first_removal", max), ("recall", min), ("smallest_gain", min)]
)
def test_which_way_is_worse(
    rffl: Run, tmp_path: Path, made: tuple[Path, Rows, Rows], measure: str, pick: Callable[[list[float]], float]
) -> None:
    """The soonest removal of an adversary passes for the worst, or the best of a measure does."""
    file, rows, _ = made
    results = tmp_path / "studies" / "made" / "results.csv"
    results.write_text(results.read_text().replace("accuracy_mean", measure))
    words = ("--worst", "rate", "--measure", measure, "--format", "csv", "--only", "server=RFFL", "--only", "split=UNI")
    ended = rffl("study", file, "--root", tmp_path / "studies", "--table", "split", *words)
    assert ended.code == 0, ended.err
    here = {"server": "RFFL", "split": "UNI", "measure": "accuracy_mean"}
    of_seeds = [
        pick([float(row["value"]) for row in rows if (here | {"seed": seed}).items() <= row.items()])
        for seed in ("1", "2", "3")
    ]
    (line,) = csv.DictReader(ended.out.splitlines())
    assert float(line["mean"]) == pytest.approx(fmean(of_seeds))


def test_worst_cases_of_nothing(rffl: Run, tmp_path: Path, made: tuple[Path, Rows, Rows]) -> None:
    """One sentence each."""
    words = ("study", made[0], "--root", tmp_path / "studies", "--table", "split")
    for given, said in (
        (("--worst", "rat"), "--worst to name an axis of made (server, rate, split), but got rat"),
        (("--worst", "rate", "--contribution", "alone"), "--worst or --contribution, but got both"),
        (("participant", "--worst", "rate"), "--worst without the axis participant"),
        (("rate", "--worst", "rate"), "--table without the axis rate, of which --worst takes the worst label, but got"),
    ):
        ended = rffl(*words, *given)
        assert (ended.code, said in ended.err) == (2, True), ended.err
    results = tmp_path / "studies" / "made" / "results.csv"
    lines = results.read_text().splitlines()
    some = [line for line in lines if not (line.startswith("made,") and line.split(",")[2] == "0.2" and "UNI" in line)]
    results.write_text("\n".join(line for line in some if ",POW," not in line or ",0.1," not in line) + "\n")
    ended = rffl(*words, "--worst", "rate")
    assert ended.code == 2
    assert "with a seed at all of rate, 0.1, 0.2, 0.8, for --worst, but there are none" in ended.err
