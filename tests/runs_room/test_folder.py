"""The folder of a run: nobody else's, and everything in it can be read back."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

from rffl_pl import __version__
from rffl_pl.errors import UserError
from rffl_pl.runs import Round, RunFolder
from rffl_pl.runs.history import History
from rffl_pl.runs.kinds import of_kind
from rffl_pl.runs.summarise import defined, summarise
from tests.conftest import QUICK, Ended, only_run
from tests.runs import kept_in


def test_runs_of_one_moment_never_share_a_folder(tmp_path: Path) -> None:
    """Many that start at once have a folder each, and one that is there is left alone."""
    (tmp_path / "digits" / "now").mkdir(parents=True)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: RunFolder.make(tmp_path / "digits" / "now").path.name, range(24)))
    assert sorted(made) == sorted(f"now_{n}" for n in range(2, 26))
    assert {path.name for path in (tmp_path / "digits").iterdir()} == {"now", *made}


def test_a_run_that_ends_leaves_those_beside_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of cells that train together each has a thread; one that ended once gave away the folders of all the others."""
    monkeypatch.setattr("rffl_pl.runs.folder.PATIENCE", 0.0)
    mine = RunFolder.make(tmp_path / "mine").take()
    with ThreadPoolExecutor(1) as beside:
        theirs = beside.submit(lambda: RunFolder.make(tmp_path / "theirs").take()).result()
        beside.submit(RunFolder.free).result()
        assert theirs.take() is theirs
        with pytest.raises(UserError, match="another process goes on with it"):
            beside.submit(mine.take).result()
    RunFolder.free()


def test_every_start_leaves_what_it_computes_with(tmp_path: Path) -> None:
    """In order, beside the name of the launch; a run that has none tells nothing."""
    run = RunFolder.make(tmp_path / "run")
    assert run.starts() == []
    run.take().start(0, 2)
    run.start(6, 4)
    run.free()
    first, second = run.starts()
    assert (first["rounds"], first["ranks"], second["rounds"], second["ranks"]) == (0, 2, 6, 4)
    assert (first["torch"], first["rffl_pl"]) == (torch.__version__, __version__)
    assert datetime.fromisoformat(first["at"]) <= datetime.fromisoformat(second["at"])
    assert len(run.launches()) == 2
    with run.starts_file.open("a") as file:
        file.write('{"at": "2026-')  # killed in the middle of a line
    assert run.starts() == [first, second]
    run.take().start(7, 1)
    run.free()
    assert [start["rounds"] for start in run.starts()] == [0, 6, 7]


def test_every_launch_leaves_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it writes there, not before; also one without any, and behind what earlier releases left."""
    run = RunFolder.make(tmp_path / "run")
    assert (run.launches(), run.launch()) == ([], None)
    run.launch_file.write_text("one")
    monkeypatch.setenv("SLURM_JOB_ID", "two")
    run.take()
    assert run.launch() == "one"
    run.sign()
    assert run.launch() == "two"
    run.free()
    monkeypatch.delenv("SLURM_JOB_ID")
    run.take().sign()
    run.free()
    assert (run.launches(), run.launch()) == (["one", "two", ""], None)


def test_records_of_starts_that_are_damaged(tmp_path: Path) -> None:
    """Lines that are JSON but no start, and a launch's name that is no text, are no traceback of whoever reads."""
    run = RunFolder.make(tmp_path / "run")
    run.starts_file.write_text('5\nnull\n[1]\n"a"\n{"rounds": 3}\n')
    assert run.starts() == [{"rounds": 3}]
    run.launch_file.write_bytes(b"one\xff\ntwo\n")
    assert run.launches() == ["one\N{REPLACEMENT CHARACTER}", "two"]


def test_results_are_read_without_asking_for_their_kinds_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time that a result of a study's thousands took."""
    asked: list[type] = []

    def counted(kind: type) -> dict[str, Any]:
        asked.append(kind)
        return get_type_hints(kind)

    monkeypatch.setattr("rffl_pl.runs.folder.get_type_hints", counted)
    run, entry = RunFolder(tmp_path), Round(number=1, honest=1, members=[True], measures={})
    run.write_summary(summarise([entry], [10], {"accuracy": torch.tensor([1.0])}))
    for _ in range(3):
        assert run.summary().mean == 1
    assert len(asked) < 2


def test_a_root_that_cannot_be_written_to(tmp_path: Path) -> None:
    """A sentence names the option."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"Expected --run\.root to be a folder that can be written to"):
        RunFolder.make(tmp_path / "file" / "digits" / "now")


def test_a_run_is_read_back(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Configuration, rounds, summary, weights and predictions are what the files and the checkpoint say."""
    args = ("--trainer.max_epochs", 12, "--run.name", "read")
    assert rffl("fit", "--config", "configs/digits.yaml", *QUICK, *args).code == 0
    run = RunFolder.open(only_run(tmp_path / "runs"))
    assert repr(run) == f"RunFolder('{run.path}')"
    assert run.config()["server"]["init_args"]["gamma"] == 0.5
    assert run.newest_checkpoint() == run.checkpoints / "last.ckpt"
    saved = kept_in(run.checkpoints / "last.ckpt")
    for entry, kept in zip(run.rounds(), saved["server"]["history"], strict=True):
        assert (entry.number, entry.honest, entry.members) == (kept["number"], 5, kept["members"])
        assert entry.removed == kept["removed"] == ([5] if entry.number == 11 else [])
        assert entry.measures.keys() == kept["measures"].keys()
        for name, values in kept["measures"].items():
            assert entry.measures[name] == pytest.approx(values, nan_ok=True), name
    summary = run.summary()
    assert summary.removed_in_round == [None] * 5 + [11]
    assert summary.final == json.loads(run.summary_file.read_text())["final"]
    for key, value in saved["federation"]["participants"][3]["network"].items():
        assert torch.equal(run.weights(3)[key], value)
    given = ("--config", run.config_file, "--ckpt_path", run.newest_checkpoint(), "--run.name", "asked")
    assert rffl("predict", *given).code == 0
    (asked,) = (tmp_path / "runs" / "asked").iterdir()
    rows = RunFolder.open(asked).predictions(3)
    with (asked / "predictions" / "participant_3.csv").open() as file:
        assert rows == list(csv.DictReader(file))
    assert len(rows) == 359


def test_who_is_honest_in_a_run_without_configuration(tmp_path: Path) -> None:
    """Of one from Python its rounds say so, else its result; otherwise all are."""
    run = RunFolder(tmp_path)
    entry = Round(number=1, honest=2, members=[True] * 3, measures={"accuracy": [1.0, 0.5, 0.0]})
    with run.metrics_file.open("w") as file:
        table = csv.DictWriter(file, list(entry.metrics()))
        table.writeheader()
        table.writerow(entry.metrics())
    History(run.rounds_file, [entry])
    run.write_summary(summarise([entry], [10, 20, 30], {"accuracy": torch.tensor([1.0, 0.5, 0.0])}))
    assert run.rounds()[0].mean_accuracy == 0.75
    run.rounds_file.unlink()
    assert run.rounds()[0].mean_accuracy == 0.75
    run.summary_file.unlink()
    assert run.rounds()[0].mean_accuracy == 0.5


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("config.yaml", "federation: {participants: null}", "to say how many federation.participants there are"),
        ("config.yaml", "federation: 3", "to say how many federation.participants there are"),
        ("rounds.jsonl", "{", "to be the rounds of a run, but it is damaged"),
        ("rounds.jsonl", "", "to be the rounds of a run, but it is damaged"),
    ],
)
def test_a_file_that_should_say_who_is_honest(tmp_path: Path, name: str, text: str, expected: str) -> None:
    """One sentence if it was damaged by hand."""
    run = RunFolder(tmp_path)
    run.metrics_file.write_text("round,member/participant_0\n1,1\n")
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=expected):
        run.rounds()


def test_a_row_that_was_not_written_to_its_end(tmp_path: Path) -> None:
    """A run that is killed as it writes leaves half a row, in which everybody would be a member; others are damage."""
    run = RunFolder(tmp_path)
    whole = "round,loss/participant_0,member/participant_0,member/participant_1\n1,0.5,1,0\n"
    for torn in ("2", "2,1e-", "2,0.25,1,0"):
        run.metrics_file.write_text(whole + torn)
        assert [(entry.number, entry.members) for entry in run.rounds()] == [(1, [True, False])]
    run.metrics_file.write_text(whole + "2,1e-,1,0\n")
    with pytest.raises(UserError, match=r"metrics\.csv to have numbers, but could not convert string to float: '1e-'"):
        run.rounds()
    for damaged in ("2,0.5,1,0,7\n", "inf,0.5,1,0\n", "2,0.5,1,0,7,8\n"):
        run.metrics_file.write_text(whole + damaged)
        with pytest.raises(UserError, match=r"metrics\.csv to have numbers, but .*: it is damaged"):
            run.rounds()


def test_classes_with_ends_of_lines_in_their_names(tmp_path: Path) -> None:
    """A row of predictions is cut in two there, or the name is another one."""
    run = RunFolder(tmp_path)
    rows = [{"example": "0", "class": name} for name in ("a\u2028b", "a\nb", "a\r\nb", "é")]
    run.predictions_file(0).parent.mkdir()
    with run.predictions_file(0).open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["example", "class"])
        table.writeheader()
        table.writerows(rows)
    assert run.predictions(0) == rows


def test_what_a_run_did_not_leave(tmp_path: Path) -> None:
    """Each is a sentence: no run, a run that did not end, damaged files."""
    with pytest.raises(UserError, match=r"has none of them; give runs/<name>/<date and time>"):
        RunFolder.open(tmp_path)
    (tmp_path / "config.yaml").write_text("federation: {participants: 2}")
    run = RunFolder.open(tmp_path)
    for missing in (run.summary, run.rounds, run.scores, lambda: run.weights(0), lambda: run.predictions(0)):
        with pytest.raises(UserError, match="there is no such file; did it end"):
            missing()
    run.summary_file.write_text("{")
    with pytest.raises(UserError, match=r"summary\.json to be JSON, but it is damaged"):
        run.summary()
    run.write_weights([(0, {"weight": torch.ones(1)})])
    run.weights_file(0).write_bytes(run.weights_file(0).read_bytes()[:-50])
    with pytest.raises(UserError, match=r"participant_0\.pt to hold weights, but it cannot be read"):
        run.weights(0)


def test_results_are_json_without_nan(tmp_path: Path) -> None:
    """A value that is no number would be read by Python alone."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        RunFolder(tmp_path).write_scores({"scores": {"accuracy": [float("nan")]}})


def test_what_is_not_finite_is_null() -> None:
    """A loss may overflow; its file stays JSON."""
    assert [defined(value) for value in (0.5, float("nan"), float("inf"))] == [0.5, None, None]


@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [
        (1, float, True), (True, float, False), (True, int | None, False), (None, int | None, True), (1.5, int, False),
        ([0.5, None], list[float | None], True), ([0.5, True], list[float | None], False),
        ({"a": [1]}, dict[str, list[float]], True), ({"a": ["1"]}, dict[str, list[float]], False),
    ],
)  # fmt: skip
def test_kinds_of_numbers(value: object, kind: object, fits: bool) -> None:
    """A result that somebody has mended by hand ends in a traceback, or true counts as 1."""
    assert of_kind(value, kind) == fits


@pytest.mark.parametrize("path", ["", "."])
def test_a_folder_without_a_name(path: str) -> None:
    """No number goes behind it."""
    with pytest.raises(UserError, match=r"a run to have a folder of its own, but got \.; give one, as runs/mine"):
        RunFolder.make(path)
