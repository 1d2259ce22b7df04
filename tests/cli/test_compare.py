"""Runs beside each other, and the sentence for whatever is no run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats

from rffl_pl.cli import main
from rffl_pl.runs import RunFolder
from tests.cli.folders import DIGITS, Run
from tests.conftest import only_run


@pytest.fixture
def runs(rffl: Run, tmp_path: Path) -> Path:
    """The folder above one run of RFFL and one of FedAvg, which have other seeds, and its root."""
    small = ("--trainer.max_epochs", 2, "--data.examples_per_participant", 20)
    assert rffl(*DIGITS, *small, "--run.name", "one").code == 0
    other = ("--server", "FedAvg", "--seed_everything", 2)
    assert rffl(*DIGITS, *small, *other, "--run.name", "two").code == 0
    return tmp_path / "runs"


def cells(line: str) -> list[str]:
    """Of a row: columns are two spaces apart."""
    return re.split(r" {2,}", line.strip())


def test_settings_that_differ_and_results(rffl: Run, runs: Path, tmp_path: Path) -> None:
    """Those alone, and of every run what its summary says; a pattern names the same runs."""
    one, two = only_run(runs, "one"), only_run(runs, "two")
    out = ("--out", tmp_path / "page.html")
    ended = rffl("compare", one, two, *out)
    assert ended.code == 0, ended.err
    head, _, *rows, empty, _ = ended.out.splitlines()
    assert empty == ""
    assert cells(head)[:4] == ["run", "--server", "--seed_everything", "rounds"]
    first, second = (dict(zip(cells(head), cells(row), strict=True)) for row in rows)
    assert (first["--server"], second["--server"]) == ("RFFL", "FedAvg")
    assert (first["--seed_everything"], second["--seed_everything"]) == ("1", "2")
    for found, folder in ((first, one), (second, two)):
        summary = RunFolder.open(folder).summary()
        assert found["run"] == f"{folder.parent.name}/{folder.name}"
        assert (found["mean"], found["maximum"]) == (f"{summary.mean:.1%}", f"{summary.maximum:.1%}")
        assert (found["fairness"], found["gain, points"], found["rounds"]) == ("-", "-", "2")
        assert (found["adversaries removed"], found["honest removed"]) == ("0 of 1", "0 of 5")
        assert found["taken, points"] == "-"
    assert rffl("compare", runs / "*" / "*", *out).out == ended.out
    assert rffl("compare", one, one, two, *out).out == ended.out


def test_means_over_seeds(rffl: Run, runs: Path, tmp_path: Path) -> None:
    """Of settings with several seeds, a run that is there twice counting once; intervals are those of scipy."""
    one = only_run(runs, "one")
    copies = [one, *(shutil.copytree(one, tmp_path / "more" / name / one.name) for name in ("b", "c", "again"))]
    means = [0.5, 0.75, 0.6, 0.8]
    for copied, seed, mean in zip(copies, (1, 2, 3, 3), means, strict=True):
        config = yaml.safe_load((copied / "config.yaml").read_text())
        (copied / "config.yaml").write_text(yaml.safe_dump(config | {"seed_everything": seed}))
        summary = json.loads((copied / "summary.json").read_text())
        (copied / "summary.json").write_text(json.dumps(summary | {"mean": mean}))
    ended = rffl("compare", *copies, only_run(runs, "two"), "--out", tmp_path / "page.html")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    begin = lines.index("over seeds, ± 95 % interval of Student's t:") + 1
    head, _, rffl_line, fedavg_line = lines[begin : begin + 4]
    assert cells(head)[:3] == ["--server", "seeds", "mean, %"]
    low, high = stats.t.interval(0.95, 2, np.mean([50, 75, 70]), stats.sem([50, 75, 70]))
    assert cells(rffl_line)[:3] == ["RFFL", "3", f"65.0 ± {(high - low) / 2:.1f}"]
    alone = RunFolder.open(only_run(runs, "two")).summary().mean
    assert cells(fedavg_line)[:3] == ["FedAvg", "1", f"{100 * alone:.1f}"]  # type: ignore[operator]  # measured


def test_of_how_many_seeds_a_mean_is(rffl: Run, runs: Path, tmp_path: Path) -> None:
    """Where some have no value: an interval of two would pass for one of three."""
    one = only_run(runs, "one")
    copies = [one, *(shutil.copytree(one, tmp_path / "more" / name / one.name) for name in ("b", "c"))]
    for copied, seed, (fairness, gain) in zip(copies, (1, 2, 3), ((0.5, None), (0.9, 0.1), (None, None)), strict=True):
        config = yaml.safe_load((copied / "config.yaml").read_text())
        (copied / "config.yaml").write_text(yaml.safe_dump(config | {"seed_everything": seed}))
        result = json.loads((copied / "summary.json").read_text())
        (copied / "summary.json").write_text(json.dumps(result | {"fairness": fairness, "gain": gain}))
    ended = rffl("compare", *copies, "--out", tmp_path / "page.html")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    head, _, row = lines[lines.index("over seeds, ± 95 % interval of Student's t:") + 1 :][:3]
    found = dict(zip(cells(head), cells(row), strict=True))
    assert found["seeds"] == "3"
    assert found["fairness"] == "0.700 ± 2.541 (n=2)"
    assert found["gain, points"] == "10.0 (n=1)"
    assert "n=" not in found["mean, %"]
    assert found["taken, points"] == "-"


def test_settings_that_are_not_known(rffl: Run, runs: Path, tmp_path: Path) -> None:
    """All settings are said to be the same where those of a run from Python are not known."""
    one, bare = only_run(runs, "one"), tmp_path / "bare" / "run"
    bare.mkdir(parents=True)
    shutil.copy(one / "summary.json", bare)
    out = ("--out", tmp_path / "page.html")
    ended = rffl("compare", one, bare, *out)
    assert ended.code == 0, ended.err
    assert "settings of bare/run are not known: there is no config.yaml\n" in ended.out
    assert "the same" not in ended.out
    assert "all options are the same\n" in rffl("compare", one, shutil.copytree(one, tmp_path / "again"), *out).out


def test_all_runs_at_hand(
    rffl: Run, runs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without folders those below runs/, unfinished ones too; one that is damaged is told and left out."""
    shutil.copytree(only_run(runs, "one"), runs / "broken" / "now")
    (runs / "broken" / "now" / "config.yaml").write_text("{")
    (only_run(runs, "two") / "summary.json").unlink()
    (runs / "three" / "test").mkdir(parents=True)  # what `rffl test` leaves is no run
    (runs / "three" / "test" / "config.yaml").write_text("{}")
    monkeypatch.chdir(runs.parent)
    main(["compare"])
    listed = capfd.readouterr()
    _, _, first, second = listed.out.splitlines()
    assert first.startswith("one/")
    assert cells(first)[3] == "2"
    assert cells(second)[3:] == ["2 of 2", *"-------"]
    (sentence,) = listed.err.splitlines()
    assert sentence.startswith("left out: Expected runs/broken/now/config.yaml to be the YAML of a run")
    assert not (runs / "compare.html").exists()
    shutil.rmtree(runs / "broken")
    main(["compare", "runs/one", "runs/two"])
    written = capfd.readouterr()
    assert written.out.splitlines()[-1].startswith("page: runs/compare.html (")
    assert written.err.startswith("left out: Expected the run in runs/two/")
    assert "left out" not in written.out
    assert (runs / "compare.html").is_file()


def test_a_page_of_all_runs_at_hand(
    rffl: Run, runs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A damaged one is told and left out of the page too; where all are, the first one's mistake is the answer."""
    shutil.copytree(only_run(runs, "one"), runs / "broken" / "now")
    (runs / "broken" / "now" / "config.yaml").write_text("{")
    monkeypatch.chdir(runs.parent)
    main(["compare", "--out", "page.html"])
    assert "left out: Expected runs/broken/now/config.yaml to be the YAML of a run" in capfd.readouterr().err
    for name in ("one", "two"):
        shutil.rmtree(runs / name)
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--out", "page.html"])
    assert ended.value.code == 2
    assert capfd.readouterr().err.startswith("Error: Expected runs/broken/now/config.yaml to be the YAML of a run")


def summary(**changed: Any) -> str:
    """The result of three participants as it lies in a folder, with something changed in it."""
    each = {name: [None] * 3 for name in ("standalone", "final", "reputation", "quota", "removed_in_round")}
    whole = {"rounds": 2, "honest": 3, "examples": [1, 2, 3], "mean": 0.5, "maximum": 1, "fairness": None, **each}
    return json.dumps(whole | changed)


MINIMAL = "{federation: {}, server: {}, data: {}, trainer: {}}"


@pytest.mark.parametrize(
    ("words", "files", "expected"),
    [
        (["{}/nowhere"], {}, "as runs/studies/digits, but there is no such folder"),
        (["{}/*"], {}, "but nothing matches"),
        (["--html", "x"], {}, "Expected an option of rffl compare, but got --html; did you mean --help?"),
        (["{}"], {}, "has none of them; give runs/<name>/<date and time>"),
        (["{}"], {"config.yaml": "a: 1"}, "says nothing of a federation"),
        (
            ["{}"],
            {"config.yaml": MINIMAL, "config.3.yaml": MINIMAL.replace("federation: {}", "federation: 5")},
            "config.3.yaml to be of a run of rffl_pl, but it says nothing of a federation",
        ),
        (["{}"], {"config.yaml": "- a"}, "to be the YAML of a run, but it is damaged"),
        (["{}"], {"summary.json": '{"accuracy": 1}'}, "to be the result of a run, but it is another's"),
        (["{}"], {"summary.json": "[1]"}, "summary.json to be JSON, but it is damaged"),
        (["{}"], {"summary.json": '{"rounds": "2"}'}, "to be the result of a run, but its rounds is '2'."),
        (["{}"], {"summary.json": '{"examples": [1, null, 3]}'}, "but its examples is [1, None, 3]."),
        (["{}"], {"summary.json": summary(final=[0.5, None])}, "for each of 3 participants, but its final has 2."),
        (["{}"], {"metrics.csv": "round,loss\n1,2\n"}, "to be of a run of rffl_pl, but it has no participants"),
        (["{}"], {"metrics.csv": "round,member/participant_0\n1,1\n"}, "it has no summary.json after 1 round;"),
        (["{}"], {"config.yaml": MINIMAL, "weights/participant_2.pt": ""}, "a disk of its own that the first rank is"),
        (["{}"], {"config.yaml": MINIMAL}, "it has no summary.json after 0 rounds;"),
        (
            ["{}/now-test"],
            {"now-test/config.yaml": MINIMAL},
            "of a run that trained, but rffl test left it; give the fo",
        ),
    ],
)
def test_whatever_is_no_run(rffl: Run, tmp_path: Path, words: list[str], files: dict[str, str], expected: str) -> None:
    """One sentence and exit code 2."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    ended = rffl("compare", *(word.format(folder) for word in words))
    assert (ended.code, ended.out) == (2, "")
    (error,) = ended.err.splitlines()
    assert error.startswith("Error: Expected ")
    assert expected in error


def test_another_machines_share_of_a_run(
    rffl: Run, runs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Beside other runs it is left out without a word, as if it had never begun."""
    here, there = only_run(runs, "one"), runs / "apart" / "now"
    shutil.copytree(here, there, ignore=shutil.ignore_patterns("*.csv", "*.json*", "*.png"))
    monkeypatch.chdir(runs.parent)
    main(["compare", "runs/one", "runs/two", "runs/apart"])
    (sentence,) = capfd.readouterr().err.splitlines()
    assert sentence.startswith("left out: Expected the run in runs/apart/now to have its rounds and its result there")


def test_no_runs_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence says how to come by one."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["compare"])
    assert stop.value.code == 2
    assert "rffl fit --config digits.yaml" in capsys.readouterr().err
