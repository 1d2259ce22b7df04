"""What a study's file says beside axes: words of some places, a small version, curves; and on which GPU a cell runs."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rffl_pl.cli.session import Machine, Session
from rffl_pl.errors import UserError
from rffl_pl.runs import Round, RunFolder
from rffl_pl.studies import play, results
from rffl_pl.studies.cells import Cell, CellFolder
from rffl_pl.studies.own import digest_of
from rffl_pl.studies.settings import left_out, of_today, settings_digest
from rffl_pl.studies.study import Study
from tests.cli.folders import Run
from tests.studies.files import DIGITS, rows, study

TEXT = f"""\
name: both
base: {DIGITS} --trainer.max_epochs 9
reduced: --trainer.max_epochs 2
axes:
  server: {{RFFL: "", FedAvg: --server FedAvg}}
  split: {{UNI: --data.split UNI, POW: --data.split POW}}
also:
  - {{server: RFFL, split: [POW], words: --server.gamma 0.3}}
exclude:
  - {{server: FedAvg, split: UNI}}
curves: [reputation, accuracy]
"""


def test_words_of_some_places_come_last(tmp_path: Path) -> None:
    """They reach another place, or are overruled by the axes; the small version's come before both."""
    read = Study.read(study(tmp_path, TEXT))
    last = {(place["server"], place["split"]): read.small().words(place)[-2:] for place in read.places()}
    assert last["RFFL", "POW"] == ["--server.gamma", "0.3"]
    assert last["RFFL", "UNI"] == ["--data.split", "UNI"]
    small = read.small()
    assert small.name == "both-reduced"
    assert small.words({"server": "RFFL", "split": "UNI"})[-4:-2] == ["--trainer.max_epochs", "2"]
    with pytest.raises(UserError, match="both-reduced to have the key reduced"):
        small.small()


def test_labels_are_what_is_written(tmp_path: Path) -> None:
    """YAML's ``on`` is the label True, ``0.10`` the label 0.1 or another one where a place is named."""
    text = """\
axes:
  guard: {on: --a, no: "", ~: --b}
  share: {0.10: --c, 010: --d}
also:
  - {guard: on, share: [0.10], words: --e}
exclude:
  - {guard: no, share: 010}
seeds: [7, 08]
"""
    read = Study.read(study(tmp_path, text))
    assert {axis: list(labels) for axis, labels in read.axes.items()} == {
        "guard": ["on", "no", "~"],
        "share": ["0.10", "010"],
    }
    assert read.only(["guard=on"]) == {"guard": {"on"}}
    assert read.words({"guard": "on", "share": "0.10"})[-1] == "--e"
    assert {"guard": "no", "share": "010"} not in read.places()
    assert read.seeds == [7, 8]


@pytest.mark.slow
def test_the_small_version_and_its_curves(rffl: Run, tmp_path: Path) -> None:
    """Results keep another schedule's rows, or a round's value is not the one that the run measured."""
    root = tmp_path / "studies"
    ended = rffl("study", study(tmp_path, TEXT), "--root", root, "--reduced", "--only", "server=RFFL")
    assert ended.code == 0, ended.err
    kept = rows(root / "both-reduced" / "results.csv")
    assert {row["rounds"] for row in kept} == {"2"}
    curves = rows(root / "both-reduced" / "results.curves.csv")
    for split in ("UNI", "POW"):
        (cell,) = {row["cell"] for row in curves if row["split"] == split}
        (folder,) = (root / "cells" / cell).glob("*/")
        rounds = RunFolder(folder).rounds()
        for measure in ("reputation", "accuracy"):
            here = [row for row in curves if (row["split"], row["measure"]) == (split, measure)]
            found = {(int(row["round"]), int(row["participant"])): float(row["value"]) for row in here}
            wanted = {(e.number, i): value for e in rounds for i, value in enumerate(e.measures[measure])}
            assert found == pytest.approx(wanted)
    roles = {(row["participant"], row["role"]) for row in curves}
    assert ("4", "honest") in roles
    assert ("5", "adversary") in roles

    lone = TEXT.replace('RFFL: ""', "RFFL: --server Standalone").replace("[reputation, accuracy]", "[reputation]")
    other = study(tmp_path, lone)  # its runs have no reputations, and so no rows to take the place of those
    words = ("study", other, "--root", root, "--reduced", "--only", "server=RFFL", "--only", "split=UNI")
    assert rffl(*words).code == 0
    now = rows(root / "both-reduced" / "results.curves.csv")
    assert now == [row for row in curves if row["split"] == "POW"]


def test_rounds_that_other_code_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where results of other code will do, their rounds are said to be gone, and that good rows be taken out."""
    read, machine = Study.read(study(tmp_path, TEXT)).small(), Machine.given(tmp_path, lambda words: None, 1, None, 1)
    only = {"server": {"RFFL"}, "split": {"UNI"}}
    file = tmp_path / "results.csv"
    (cell,) = Session.of(read, only, None, machine, file).cells
    old = row("RFFL", "UNI", "0.1") | {"settings": cell.settings, "cell": "of other code", "seconds": "3"}
    results.keep(read, file, [old])
    assert Session.of(read, only, None, machine, file, any_code=True).play() == 0
    assert "the folders of 1 are gone" in capsys.readouterr().err
    results.keep_curves(read, file, [old | {"round": "1"}])
    assert Session.of(read, only, None, machine, file, any_code=True).play() == 0
    assert capsys.readouterr() == ("both-reduced: 1 cell, 1 of them finished\n", "")


def test_results_of_other_code_are_finished_if_one_says_so(rffl: Run, tmp_path: Path) -> None:
    """Who adds a server to the package has to run again all that is kept of the others, or nothing runs at all."""
    file, kept = study(tmp_path, TEXT), tmp_path / "both-reduced" / "results.csv"
    read, machine = Study.read(file).small(), Machine.given(tmp_path, lambda words: None, 1, None, 1)
    (cell,) = Session.of(read, {"server": {"RFFL"}, "split": {"UNI"}}, None, machine, kept).cells
    old = {"settings": cell.settings, "rounds": str(cell.rounds), "cell": "of other code", "seconds": "3"}
    results.keep(read, kept, [row("RFFL", "UNI", "0.1") | old])
    words = ("study", file, "--root", tmp_path, "--reduced", "--only", "server=RFFL", "--dry-run")
    assert "2 cells, 2 to run" in rffl(*words).out
    assert "2 cells, 1 to run" in rffl(*words, "--any-code").out


def test_rounds_of_other_code_beside_new_results(rffl: Run, tmp_path: Path) -> None:
    """A cell that is run again without curves leaves none of its place: they would be shown beside its new results."""
    file = study(tmp_path, TEXT.replace("curves: [reputation, accuracy]\n", ""))
    read = Study.read(file).small()
    kept = tmp_path / "both-reduced" / "results.csv"
    old = [
        row(server, split, "0.1") | {"rounds": "2", "cell": "old"}
        for server, split in (("RFFL", "UNI"), ("RFFL", "POW"))
    ]
    results.keep(read, kept, [one | {"seconds": "3"} for one in old])
    results.keep_curves(read, kept, [one | {"round": "1"} for one in old])
    ended = rffl("study", file, "--root", tmp_path, "--reduced", "--only", "server=RFFL", "--only", "split=UNI")
    assert ended.code == 0, ended.err
    assert [line["split"] for line in rows(kept.with_name("results.curves.csv"))] == ["POW"]
    assert {line["split"]: line["cell"] == "old" for line in rows(kept)} == {"UNI": False, "POW": True}


def test_a_round_that_diverged(tmp_path: Path) -> None:
    """An infinity that is kept makes the file of all rounds one that nobody can read or add to."""
    read = Study.read(study(tmp_path, TEXT))
    cell = Cell(digest="a", place=read.places()[0], seed=1, rounds=1, words=[], settings="s")
    entry = Round(number=1, honest=2, members=[True] * 2, measures={"accuracy": [0.5, math.inf]})
    results.keep_curves(read, tmp_path / "results.csv", results.curves_of(read, cell, [entry]))
    results.keep_curves(read, tmp_path / "results.csv", [])
    assert [row["value"] for row in rows(tmp_path / "results.curves.csv")] == ["0.5"]


def test_a_number_of_a_callback_in_every_round(rffl: Run, tmp_path: Path) -> None:
    """An index of one's own that `metrics.csv` has is none of the study's measures, which says so after all cells."""
    text = TEXT.replace("name: both\nbase: ", "name: both\nbase: --trainer.callbacks+=tests.studies.seen.Least ")
    file = study(tmp_path, text.replace("curves: [", "curves: [least, "))
    words = ("study", file, "--root", tmp_path, "--reduced", "--only", "server=RFFL", "--only", "split=UNI")
    ended = rffl(*words)
    assert ended.code == 0, ended.err
    assert "curves" not in ended.err
    curves = rows(tmp_path / "both-reduced" / "results.curves.csv")
    least = [row for row in curves if row["measure"] == "least"]
    assert [(row["round"], row["participant"], row["role"]) for row in least] == [("1", "", "all"), ("2", "", "all")]
    for row in least:
        everybody = [r for r in curves if (r["round"], r["measure"], r["role"]) == (row["round"], "accuracy", "honest")]
        assert float(row["value"]) == pytest.approx(min(float(r["value"]) for r in everybody))
    shown = rffl(*words, "--measure", "least", "--table", "round", "server", "--format", "csv")
    assert shown.code == 0, shown.err
    assert len(shown.out.splitlines()) == 3
    refused = rffl(*words, "--measure", "least", "--table", "round", "participant")
    assert "Expected --measure to be one that participants have (accuracy, reputation), but got least" in refused.err


def test_a_configuration_by_any_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edited, a file that `--config=` names would pass off what was run before for what it says now."""
    monkeypatch.setenv("HOME", str(tmp_path))
    there, home = tmp_path / "mine.yaml", "~/mine.yaml"
    for words in (
        f"--config {there}", f"--config={there}", f"--config {home}", f"--config={home}", f"-c {there}", f"-c{there}",
        f"-c={home}", f"--model {there}", f"--model={there}",
    ):  # fmt: skip
        digests = []
        for rate in (0.1, 0.2):
            group = "" if "--model" in words else "model: "
            there.write_text(f"{group}{{optimizer: {{init_args: {{lr: {rate}}}}}}}")
            read = Study.read(study(tmp_path, TEXT.replace("name: both\nbase: ", f"name: both\nbase: {words} ")))
            digests.append(settings_digest(read, read.places()[0]))
        assert digests[0] != digests[1], words


def test_a_configuration_of_the_package_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results under one of its names are left out under another, or it is another once its content changes."""
    monkeypatch.chdir(tmp_path)  # where no such file lies
    names = ("digits.yaml", "configs/digits.yaml", "./configs/digits.yaml", "mnist.yaml")
    of = Study(name="one", base=[], axes={"a": {name: ["--config", name] for name in names}}, seeds=[1])
    first, *same, other = (settings_digest(of, {"a": name}) for name in names)
    assert {*same} == {first} != {other}


def test_a_configuration_in_the_words(tmp_path: Path) -> None:
    """A long one was taken for the name of a file, which is too long for the system."""
    said = f"--config '{{run: {{root: {'r' * 300}}}}}'"
    for words in (said, said.replace(" ", "=", 1)):
        read = Study.read(study(tmp_path, TEXT.replace("base: ", f"base: >-\n  {words} ", 1)))
        assert settings_digest(read, read.places()[0])


def test_curves_of_what_no_run_measures(rffl: Run, tmp_path: Path) -> None:
    """A misspelt measure is missing in the results without a word, or with one after hours."""
    text = TEXT.replace("reduced: --trainer.max_epochs 2", "reduced: --trainer.max_epochs 1")
    file = study(tmp_path, text.replace("curves: [reputation,", "curves: [acuracy, reputation,"))
    words = ("study", file, "--root", tmp_path / "studies", "--reduced", "--only", "server=RFFL", "--only", "split=UNI")
    ended = rffl(*words)
    assert ended.code == 0
    early, sentence = (line for line in ended.err.splitlines() if "curves" in line)
    assert early == "Warning: no round so far has acuracy, which curves names; did you mean accuracy?"
    assert sentence.startswith("Expected curves to name measures of rounds (accuracy, ")
    assert sentence.endswith("but got acuracy; did you mean accuracy?")
    study(tmp_path, text.replace("curves: [reputation,", "curves: [backdoor_success, reputation,"))
    assert "curves" not in rffl(*words, "--seeds", 9).err  # which the places that were left out may have


@pytest.mark.slow
@pytest.mark.distributed
def test_each_cell_has_its_gpu_and_threads(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers see the same GPU, or all of them, or what the user's own environment named; or each takes all cores.

    Lightning gives a process that was told nothing a thread for every core: two of them took ten times as long.
    """
    text = f"""\
base: {DIGITS} --trainer.max_epochs 1 --trainer.accelerator cpu --trainer.callbacks+=tests.studies.seen.Device
axes:
  server: {{RFFL: "", FedAvg: --server FedAvg}}
seeds: [1, 2]
"""
    root = tmp_path / "studies"
    with monkeypatch.context() as patch:  # for the workers alone: in this process Lightning would take all cores, too
        patch.delenv("OMP_NUM_THREADS", raising=False)
        ended = rffl("study", study(tmp_path, text, "gpus.yaml"), "--root", root, "--devices", 6, 7)
    assert ended.code == 0, ended.err
    seen = [line for log in (root / "cells").glob("*/log.txt") for line in log.read_text().splitlines()]
    devices = [line.removeprefix("sees GPU ") for line in seen if line.startswith("sees GPU ")]
    assert set(devices) == {"6", "7"}
    assert len(devices) == 4
    assert {line for line in seen if line.startswith("threads: ")} == {f"threads: {max(1, play._cores() // 2)}"}
    third = ("--only", "server=RFFL", "--seeds", 3)
    alone = rffl("study", tmp_path / "gpus.yaml", "--root", root, "--devices", 6, 7, *third)
    assert alone.code == 0, alone.err
    last = max((root / "cells").glob("*/log.txt"), key=lambda log: log.stat().st_mtime)
    assert "sees GPU 6\n" in last.read_text()  # the only one left runs in the study's own process


def test_gpus_by_number_or_uuid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name that nvidia-smi lists is refused."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    names = ["10", "GPU-8f4e2a1b-0c3d-11ee-be56-0242ac120002", "MIG-41b3359c-e721-56e5-8009-12e5797ed514"]
    assert Machine.given(tmp_path, lambda words: None, None, names, 1).devices == names


def test_numbers_of_gpus_are_those_of_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CUDA counts the fastest first, unless one says by what; with no word of GPUs it is left as it is."""
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    Machine.given(tmp_path, lambda words: None, 1, None, 1)
    assert "CUDA_DEVICE_ORDER" not in os.environ
    Machine.given(tmp_path, lambda words: None, None, ["1"], 1)
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    Machine.given(tmp_path, lambda words: None, None, ["1"], 1)
    assert os.environ["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"


def test_a_deterministic_cell_may_come_behind_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What cuBLAS needs for it is there from the beginning, in the words of whoever has said it."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    for given, found in ((None, ":4096:8"), (":16:8", ":16:8")):
        if given:
            monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", given)
        Machine.given(tmp_path, lambda words: None, 1, None, 1)
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == found


def test_results_that_are_compressed(tmp_path: Path) -> None:
    """A file that ends with .gz is written as plain text, or its bytes depend on the hour."""
    read = Study.read(study(tmp_path, TEXT))
    file = tmp_path / "both.csv.gz"
    results.keep(read, file, [row("RFFL", "UNI", "0.1")])
    first = file.read_bytes()
    results.keep(read, file, [row("RFFL", "UNI", "0.1")])
    assert file.read_bytes() == first
    assert (first[:2], first[4:8]) == (b"\x1f\x8b", bytes(4))  # where gzip has the time, in whole seconds
    (again,) = results.read(read, file)
    assert (again["server"], again["rounds"], again["value"]) == ("RFFL", "2", "0.1")
    file.write_bytes(first[:20])
    with pytest.raises(UserError, match="cannot be read"):
        results.read(read, file)


def test_results_that_are_no_file_or_empty(tmp_path: Path) -> None:
    """A folder is said to be none, and not that there is nothing; an empty file is filled, and nobody's to mend."""
    read = Study.read(study(tmp_path, TEXT))
    file = tmp_path / "results.csv"
    with pytest.raises(UserError, match="but there are none; run the study first"):
        results.read(read, file)
    file.touch()
    assert results.read(read, file) == []
    assert results.keep(read, file, [row("RFFL", "UNI", "0.1")]) == 1
    file.unlink()
    file.mkdir()
    with pytest.raises(UserError, match=r"cannot be read: .*Is a directory"):
        results.keep(read, file, [])


def test_rows_of_other_programs(tmp_path: Path) -> None:
    """Empty lines, missing cells at the end of a row or 2.0 rounds are read as they were meant, or a cut is."""
    read = Study.read(study(tmp_path, TEXT))
    file = tmp_path / "results.csv"
    results.keep(read, file, [row("RFFL", "UNI", "0.1")])
    header, line = file.read_text().splitlines()
    whole = results.read(read, file)
    file.write_text(f"{header}\n\n{line.replace(',2,', ',2.0,').rstrip(',')}\n\n")
    assert results.read(read, file) == whole
    file.write_text(f"{header}\n{line[: line.index('0.1')]}\n")
    with pytest.raises(UserError, match=r"in every row's column value, but got ''"):
        results.read(read, file)
    file.write_text(f'{header}\n"{line * 3000}\n')  # a quotation mark that nothing closes
    with pytest.raises(UserError, match="cannot be read: field larger than field limit"):
        results.read(read, file)


def test_what_the_study_no_longer_names_stays_in_its_results(tmp_path: Path) -> None:
    """A label that is renamed or a place that is left out takes finished rows with it, of runs or of their rounds."""
    wide = Study.read(study(tmp_path, TEXT))
    narrow = Study.read(study(tmp_path, TEXT.replace("{server: FedAvg, split: UNI}", "{server: RFFL, split: POW}")))
    narrow = replace(narrow, axes={axis: dict(list(labels.items())[:1]) for axis, labels in narrow.axes.items()})
    file = tmp_path / "results.csv"
    old = [row("FedAvg", "POW", "0.3"), row("RFFL", "POW", "0.2"), row("RFFL", "UNI", "0.1")]
    results.keep(wide, file, old)
    results.keep_curves(wide, file, [one | {"round": "1"} for one in old])
    assert results.keep(narrow, file, [row("RFFL", "UNI", "0.9")]) == 3
    results.keep_curves(narrow, file, [])
    assert [one["value"] for one in rows(file)] == ["0.9", "0.2", "0.3"]  # those that fit come first
    assert [one["value"] for one in rows(results.curves_beside(file))] == ["0.1", "0.2", "0.3"]
    assert [one["value"] for one in results.read(narrow, file)] == ["0.9"]
    assert [one["value"] for one in results.read(wide, file)] == ["0.9", "0.2", "0.3"]


def test_a_label_that_means_another_cell_now(tmp_path: Path) -> None:
    """What it meant stays under it, and the runs are compared as what that label says today."""
    read = Study.read(study(tmp_path, TEXT))
    file = tmp_path / "results.csv"
    before = [row("RFFL", "UNI", "0.1") | {"cell": "a"}, row("RFFL", "POW", "0.2") | {"cell": "b"}]
    results.keep(read, file, before)
    results.keep_curves(read, file, [one | {"round": "1"} for one in before])
    moved = [row("FedAvg", "POW", "0.1") | {"cell": "a"}]
    results.keep(read, file, moved)
    results.keep_curves(read, file, [one | {"round": "1"} for one in moved])
    for kept in (file, results.curves_beside(file)):
        assert [(one["server"], one["split"], one["cell"]) for one in rows(kept)] == [
            ("RFFL", "POW", "b"),
            ("FedAvg", "POW", "a"),
        ]


def test_who_lies_where_a_cell_moves_to(tmp_path: Path) -> None:
    """Results that no run replaced are deleted: those of the place that a label's new name had, which keep theirs."""
    read = Study.read(study(tmp_path, TEXT))
    file = tmp_path / "results.csv"
    before = [row("RFFL", "UNI", "0.1"), row("RFFL", "POW", "0.2"), row("FedAvg", "POW", "0.3")]
    results.keep(read, file, [one | {"cell": cell} for one, cell in zip(before, "abc", strict=True)])
    results.keep(read, file, [row("RFFL", "POW", "0.1") | {"cell": "a"}])  # and b lay there
    assert [(one["split"], one["cell"]) for one in rows(file)] == [("UNI", "b"), ("POW", "a"), ("POW", "c")]
    moved = [row("FedAvg", "POW", "0.1") | {"cell": "a"}, row("RFFL", "POW", "0.2") | {"cell": "b"}]
    results.keep(read, file, moved)  # and c takes the place that is left in the end
    assert [(one["server"], one["split"], one["cell"]) for one in rows(file)] == [
        ("RFFL", "UNI", "c"),
        ("RFFL", "POW", "b"),
        ("FedAvg", "POW", "a"),
    ]
    results.keep(read, file, [row("RFFL", "UNI", "0.4") | {"cell": "d"}])  # of a run
    assert [one["cell"] for one in rows(file)] == ["d", "b", "a"]


@pytest.mark.parametrize("any_code", [False, True])
@pytest.mark.parametrize("only", [{}, {"server": {"mine"}}])
def test_results_of_words_that_have_another_label(tmp_path: Path, any_code: bool, only: dict[str, set[str]]) -> None:
    """A label that is given to other words takes the results of its old ones with it when these are run."""
    when_run = []

    def run(words: list[str]) -> None:
        when_run.append([one["server"] for one in rows(file)])
        raise UserError("no need to train")

    servers = "FedAvg: --server FedAvg, mine: --server Median"
    text = f"name: own\nbase: {DIGITS} --trainer.max_epochs 2\naxes: {{server: {{{servers}}}}}\ncurves: [accuracy]\n"
    before = Study.read(study(tmp_path, text))
    file, machine = tmp_path / "results.csv", Machine.given(tmp_path, run, 1, None, 1)
    cells = Session.of(before, {}, None, machine, file).cells
    old = [
        {"server": cell.place["server"], "seed": "1", "rounds": "2", "measure": "accuracy_mean", "value": "0.5"}
        | {"settings": cell.settings, "cell": cell.digest[:: -1 if any_code else 1], "seconds": "3"}
        for cell in cells
    ]
    for one in old:
        results.keep(before, file, [one])
        results.keep_curves(before, file, [one | {"round": "1"}])
    now = servers.replace("mine: ", "mine: --server TrimmedMean, mine v1: ")
    after = Study.read(study(tmp_path, text.replace(servers, now)))
    Session.of(after, only, None, machine, file, any_code).play()
    assert when_run == [["FedAvg", "mine v1"]]
    swapped = Study.read(study(tmp_path, text.replace(servers, "FedAvg: --server Median, mine: --server FedAvg")))
    Session.of(swapped, only, None, machine, file, any_code).play()
    for kept in (file, results.curves_beside(file)):
        assert {one["server"]: one["settings"] for one in rows(kept)} == {
            label: settings_digest(swapped, {"server": label}) for label in ("FedAvg", "mine")
        }


def test_results_without_a_folder_lie_where_their_cell_does_now(tmp_path: Path) -> None:
    """What a renamed label has is told at the old one, or with the words that this had; or what never moved is told."""
    read = Study.read(study(tmp_path, TEXT))
    file = tmp_path / "results.csv"
    before = [
        row("RFFL", "UNI", "0.1") | {"cell": "a"},
        row("RFFL", "POW", "0.2") | {"cell": "b", "settings": "today"},
        row("FedAvg", "UNI", "0.3") | {"cell": "c"},
        row("Mean", "UNI", "0.4") | {"cell": "d"},  # of a label that the study no longer has
    ]
    results.keep(read, file, before)
    now = {"a": ("FedAvg", "POW"), "b": ("RFFL", "POW"), "c": ("FedAvg", "UNI"), "d": ("RFFL", "UNI")}
    cells = [
        Cell(place={"server": server, "split": split}, seed=1, rounds=2, words=[], settings="today", digest=digest)
        for digest, (server, split) in now.items()
    ]
    found = results.moved(read, file, cells)
    assert [[one[name] for name in ("server", "split", "settings", "cell", "value")] for one in found] == [
        ["FedAvg", "POW", "today", "a", "0.1"],
        ["FedAvg", "UNI", "today", "c", "0.3"],  # whose words alone are others
        ["RFFL", "UNI", "today", "d", "0.4"],
    ]


def test_labels_of_the_same_words_keep_their_results(tmp_path: Path) -> None:
    """Who has not yet written what tells places apart finds the results of all at one of them."""
    read = Study.read(study(tmp_path, TEXT.replace("--server FedAvg", '""')))
    before = [row(server, "POW", "0.1") | {"settings": "today", "cell": server} for server in ("RFFL", "FedAvg")]
    results.keep(read, tmp_path / "results.csv", before[:1])
    places = {"today": [("FedAvg", "POW"), ("RFFL", "POW")]}
    assert results.move(read, tmp_path / "results.csv", [], places) == 0
    assert results.move(read, tmp_path / "results.csv", [], {"today": places["today"][:1]}) == 1
    assert [one["server"] for one in rows(tmp_path / "results.csv")] == ["FedAvg"]


def test_a_dry_run_tells_of_others_where_a_cell_cannot_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that has failed is measured again and again, or one that fails has the rest not counted."""

    def run(words: list[str]) -> None:
        if "Median" in words:
            raise RuntimeError("no median.")

    servers = "{a: --server FedAvg, b: --server Median, c: --server TrimmedMean}"
    read = Study.read(study(tmp_path, f"base: {DIGITS} --trainer.max_epochs 2\naxes: {{server: {servers}}}\n"))
    machine = Machine.given(tmp_path / "cells", run, 1, None, 1)
    session = Session.of(read, {}, None, machine, tmp_path / "results.csv")
    assert session.list() == 0
    *listed, last = capsys.readouterr().out.splitlines()
    assert len(listed) == 3
    assert last == (
        "3 cells, 3 to run; how long is not known: Expected server=b seed=1 to run, so as to measure it, but: "
        "RuntimeError: no median."
    )
    CellFolder(machine.root, session.cells[1].digest).path.mkdir(parents=True)
    CellFolder(machine.root, session.cells[1].digest).fail("no median.")
    assert session.list() == 0
    told = capsys.readouterr().out
    assert "server=b seed=1: 2 rounds, to run; failed the last time: no median.\n" in told
    assert "Expected server=c seed=1 to run, so as to measure it" in told  # which this stand-in does not


def test_rows_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Seed 10 comes before seed 2, and a file that is kept under version control changes everywhere."""
    read = Study.read(study(tmp_path, TEXT))
    told = [(seed, rounds) for seed in ("2", "10") for rounds in ("5", "30")]
    some = [row("RFFL", "UNI", "0.1") | {"seed": seed, "rounds": rounds} for seed, rounds in reversed(told)]
    results.keep(read, tmp_path / "results.csv", some)
    assert [(one["seed"], one["rounds"]) for one in rows(tmp_path / "results.csv")] == told


def test_results_that_know_the_words_alone(tmp_path: Path) -> None:
    """Those of earlier releases fit, which kept no digest of a user's own files; those of other words do not."""
    (tmp_path / "mine.csv").write_text("age,label\n1,0\n")
    own = Study(name="own", base=["--data.train_file", str(tmp_path / "mine.csv")], axes={"a": {"b": []}}, seeds=[1])
    settings = [digest_of(own.words({"a": "b"}))[:12], settings_digest(own, {"a": "b"}), "others"]
    assert len({*settings}) == 3
    told = [{"a": "b", "seed": "1", "rounds": "2", "settings": one} for one in settings]
    assert of_today(own, told) == (told[:2], 1)


def test_a_file_that_is_not_found_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running the study again would not find it either; a data set's name on a hub, or nothing, is no file."""
    (tmp_path / "there" / "d").mkdir(parents=True)
    (tmp_path / "there" / "d" / "plain.csv").write_text("age,label\n1,0\n")
    words = ["--data.train_file", "d/plain.csv", "--data.test_file", "null", "--data.path", "some/texts"]
    own = Study(name="own", base=words, axes={"a": {"b": []}}, seeds=[1])
    monkeypatch.chdir(tmp_path / "there")
    assert left_out(own, 1).endswith("; run the study again.")
    monkeypatch.chdir(tmp_path)
    assert left_out(own, 1) == (
        "Left out: 1 run that was run with other words, or files of yours, than own has now; it names d/plain.csv, "
        "which is not found from here, so start in the folder that has it."
    )


def test_results_of_an_axis_that_is_gone(tmp_path: Path) -> None:
    """They are written anew without its column: nobody could tell the rows of its labels apart."""
    read = Study.read(study(tmp_path, TEXT))
    file = tmp_path / "results.csv"
    results.keep(read, file, [row("RFFL", "UNI", "0.1"), row("RFFL", "POW", "0.2")])
    before = file.read_text()
    fewer = replace(read, axes={"server": read.axes["server"]}, exclude=[])
    with pytest.raises(UserError, match="its column split is no axis of the study"):
        results.keep(fewer, file, [])
    assert file.read_text() == before


def row(server: str, split: str, value: str) -> dict[str, str]:
    about = {"study": "both", "server": server, "split": split, "seed": "1", "rounds": "2"}
    return about | {"role": "all", "measure": "accuracy_mean", "value": value}
