"""Every mistake in a study's file or command is one sentence, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.folders import Run
from tests.studies.files import SMALL, study

FILES = {
    "no YAML": ("axes: [", "to be the YAML file of a study"),
    "no mapping": ("- 1", "to have the key axes at least"),
    "unknown key": (SMALL.replace("axes:", "axis:"), "but got axis; did you mean axes?"),
    "no axes": (
        "base: --config digits.yaml",
        "to have names with labels, as {server: {RFFL: --server RFFL}}",
    ),
    "an axis without labels": ("axes: {split: }", "axes.split to have labels with the words of each"),
    "words that are none": ("axes: {split: {UNI: {data: 1}}}", "axes.split.UNI to be words of a command line"),
    "an open quote": ("axes: {split: {UNI: --data.split 'UNI}}", "No closing quotation"),
    "an axis called as a column": (SMALL.replace("split:", "seed:"), "another name for the axis seed"),
    "an axis called as a table's column": (SMALL.replace("split:", "mean:"), "another name for the axis mean"),
    "a label of two lines": (SMALL.replace("UNI:", '"U\\nI":'), "to be words of one line, but got 'U\\nI'; name it so"),
    "a folder as name": (SMALL.replace("name: small", "name: ../small"), "name to be letters"),
    "the study's own words": (SMALL.replace("base:", "base: --seed_everything 3"), "base to leave --seed_everything"),
    "words of a place without words": (SMALL + "also: [{server: RFFL, words: [1]}]\n", "also.words to be words"),
    "words of an unknown place": (SMALL + "also: [{server: RFL, words: --x}]\n", "but got RFL; did you mean RFFL"),
    "a place without words": (SMALL + "also: [{server: RFFL}]\n", "every entry of also to have the key words"),
    "no label of an axis": (SMALL.replace("[POW]", "[]"), "exclude to name a label of the axis split, but got none"),
    "an axis that --only cannot name": (SMALL.replace("split:", "a=b:"), "axes to have names, without ="),
    "a label without a name": (SMALL.replace("UNI:", "'':"), "every label of the axis split to have a name"),
    "no name": (SMALL.replace("name: small", "name:"), "name to be letters, digits, dots and dashes"),
    "a name that no folder has": (SMALL.replace("name: small", f"name: {300 * 'n'}"), "dashes, at most 200"),
    "curves that are no list": (SMALL + "curves: reputation\n", "curves to be a list, but got 'reputation'"),
    "seeds twice": (SMALL.replace("[1, 2]", "[1, 1]"), "seeds to be different whole numbers"),
    "a seed that is none": (SMALL.replace("[1, 2]", "[a]"), "seeds to be different whole numbers"),
    "seeds that are no list": (SMALL.replace("[1, 2]", "3"), "seeds to be a list, but got '3'"),
    "a label twice": (SMALL.replace("POW: --data.split POW}", "UNI: --data.split POW}"), "but got UNI twice"),
    "a key twice": (SMALL + "seeds: [3]\n", "but got seeds twice, again in line 11"),
    "a label of a place twice": (SMALL.replace("{server: FedAvg, s", "{split: UNI, s"), "but got split twice"),
    "the command itself": (SMALL.replace("base:", "base: fit"), "base to be the words behind rffl fit, but got fit at"),
    "one dash": (SMALL.replace("--config", "-config"), "two dashes before config, but got one; give --config."),
    "ranks": (SMALL.replace("base:", "base: --ranks 2"), "base without --ranks, since every cell has one; for several"),
    "help of fit": (SMALL.replace("base:", "base: --help"), "base to be words of a run, but --help prints a text"),
    "the start of help": (SMALL.replace("base:", "base: --hel"), "base to be words of a run, but --hel prints"),
    "help of a class": (SMALL.replace("--server", "--server.help"), "but --server.help prints a text instead"),
    "a printed configuration": (SMALL.replace("UNI: ", "UNI: --print_config=skip_null "), "UNI to be words of a run"),
    "unknown axis left out": (SMALL.replace("{server: FedAvg", "{sever: FedAvg"), "but got sever; did you mean server"),
    "unknown label left out": (SMALL.replace("[POW]", "[POV]"), "but got POV; did you mean POW"),
    "nothing left": (SMALL + "  - {split: [UNI, POW]}\n", "exclude to leave a cell"),
    "unknown option": (SMALL.replace("--data.split POW", "--data.spilt POW"), "server=RFFL split=POW of small, but:"),
    "runs without a result": (
        SMALL.replace("base:", "base: --trainer.fast_dev_run true"),
        "small to have results, but",
    ),
    "unknown class": (SMALL.replace("--server FedAvg", "--server FedAwg"), "but got FedAwg; did you mean FedAvg"),
    "unknown configuration": (SMALL.replace("digits.yaml", "digit.yaml"), "did you mean digits.yaml"),
    "cells that clash": (SMALL.replace('RFFL: ""', "RFFL: --config servers/fedavg.yaml"), "have the same settings"),
}
WORDS = {
    "no study": ((), "the following arguments are required: STUDY.yaml"),
    "unknown option": (("--job", 2), "but got --job; did you mean --jobs?"),
    "unknown axis": (("--only", "sever=RFFL"), "but got sever; did you mean server?"),
    "unknown label": (("--only", "server=RFL"), "but got RFL; did you mean RFFL?"),
    "no label": (("--only", "server"), "--only to be AXIS=LABEL, but got server"),
    "an excluded cell": (("--only", "server=FedAvg", "--only", "split=POW"), "--only to leave a cell of small"),
    "jobs below zero": (("--jobs", -1), "--jobs to be at least 1, but got -1"),
    "a pack below zero": (("--pack", -1), "--pack to be at least 1, but got -1"),
    "rounds below zero": (("--rounds", -1), "--rounds to be at least 1, but got -1"),
    "a seed below zero": (("--seeds", -1), "different whole numbers in 0 .. 4294967295, but got [-1]"),
    "a GPU below zero": (("--devices", -1), "--devices to be GPUs by number or by UUID"),
    "a label below zero that there is not": (
        ("--table", "split", "server", "--between", "-0.5", "-1"),
        "but there are none; run the study first",
    ),
    "no jobs": (("--jobs", 0), "--jobs to be at least 1, but got 0"),
    "packs of no cells": (("--pack", 0), "--pack to be at least 1, but got 0"),
    "fewer jobs than GPUs": (("--jobs", 1, "--devices", 0, 1), "--jobs to be at least 2, one for each of --devices"),
    "no small version": (("--reduced",), "small to have the key reduced for --reduced"),
    "a difference of no table": (("--between", "RFFL", "FedAvg"), "--between to go with --table"),
    "a measure of no table": (("--measure", "fairness"), "--measure to go with --table"),
    "a format of no table": (("--format", "tex"), "--format to go with --table"),
    "a table that is to run nothing": (("--table", "server", "--dry-run"), "--table or --dry-run, but got both"),
    "jobs for a table": (("--table", "server", "--jobs", 2), "--jobs without --table, which runs nothing"),
    "any code for a table": (("--table", "server", "--any-code"), "--any-code without --table, which runs nothing"),
    "a column less itself": (
        ("--table", "split", "server", "--between", "RFFL", "RFFL"),
        "two columns, but got RFFL twice",
    ),
    "a GPU by another name": (("--dry-run", "--devices", 0, "cuda:1"), "--devices to be GPUs by number or by UUID"),
    "no rounds": (("--rounds", 0), "--rounds to be at least 1, but got 0"),
    "no seed": (("--seeds", "x"), "--seeds to be a whole number, but got x."),
    "a table of nothing": (("--table", "server", "split"), "but there are none; run the study first"),
    "unknown format": (("--table", "server", "--format", "xls"), "--format to be one of md, csv, tex, but got xls."),
}


@pytest.mark.parametrize("mistake", FILES)
def test_a_mistake_in_the_file_is_one_sentence(rffl: Run, tmp_path: Path, mistake: str) -> None:
    """Exit code 2, and no folder of the study."""
    text, expected = FILES[mistake]
    ended = rffl("study", study(tmp_path, text), "--root", tmp_path / "runs")
    assert_one_sentence(ended.code, ended.err, expected)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("mistake", WORDS)
def test_a_mistake_in_the_words_is_one_sentence(rffl: Run, tmp_path: Path, mistake: str) -> None:
    """Likewise."""
    words, expected = WORDS[mistake]
    file = [study(tmp_path)] if words else []
    ended = rffl("study", *file, "--root", tmp_path / "runs", *words)
    assert_one_sentence(ended.code, ended.err, expected)
    assert not (tmp_path / "runs").exists()


def test_no_such_study(rffl: Run) -> None:
    """The nearest of the package's is named."""
    ended = rffl("study", "studies/digit.yaml")
    assert_one_sentence(ended.code, ended.err, "there is no studies/digit.yaml; did you mean studies/digits.yaml?")


def test_a_study_of_the_package_by_its_bare_name(rffl: Run) -> None:
    """`rffl study takeover` is no study, or another mistake is told than that of its axis."""
    ended = rffl("study", "takeover", "--only", "server=guardedd", "--dry-run")
    assert_one_sentence(ended.code, ended.err, "but got guardedd; did you mean guarded?")


def test_a_folder_that_cannot_be_made(rffl: Run, tmp_path: Path) -> None:
    """Told before anything runs."""
    (tmp_path / "file").write_text("")
    ended = rffl("study", study(tmp_path), "--root", tmp_path / "file" / "runs")
    assert_one_sentence(ended.code, ended.err, "results.csv to be a file that can be written")


def test_results_of_another_study(rffl: Run, tmp_path: Path) -> None:
    """They are not written over."""
    file = tmp_path / "runs" / "small" / "results.csv"
    file.parent.mkdir(parents=True)
    file.write_text("a,b\n1,2\n")
    ended = rffl("study", study(tmp_path), "--root", tmp_path / "runs")
    assert_one_sentence(ended.code, ended.err, "to be the results of small, but it has no column")
    assert file.read_text() == "a,b\n1,2\n"


def assert_one_sentence(code: int, err: str, expected: str) -> None:
    assert code == 2, err
    (sentence,) = (line for line in err.splitlines() if line.startswith("Error: "))
    assert expected in sentence
    assert "Traceback" not in err
