"""The commands beside those that train: each mistake is one sentence, and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.bad_input.refusal import Row, assert_refused, below
from tests.cli.folders import Run

pytestmark = pytest.mark.timeout(180)

LONG = "n" * 300
STUDY = "name: small\nbase: --config digits.yaml\naxes:\n  server:\n    RFFL: --server RFFL\nseeds: [1]\n"

COMMANDS: dict[str, Row] = {
    "nothing": ((), "a subcommand: fit, validate,"),
    "unknown": (("fitt",), "but got fitt; did you mean fit?"),
    "empty": (("",), "a subcommand: fit, validate,"),
    "an option alone": (("--foo",), "a command first, but got --foo; put options behind it: rffl fit --foo."),
    "an option first": (
        ("--run.root", "x", "fit", "--config", "digits.yaml"),
        "a command first, but got --run.root; put options behind it: rffl fit --config digits.yaml --run.root x.",
    ),
    "printing alone": (("--print_config",), "a command first, but got --print_config; put options behind it: rffl fit"),
    "the config alone": (("--config", "digits.yaml"), "put options behind it: rffl fit --config digits.yaml --run"),
    "help of a module with a dash": (
        ("fit", "--server.help", "my-server.A"),
        "my-server.A, whose module has a dash in",
    ),
    "ranks and an option first": (("--ranks", 2, "--run.root=a b", "fit"), "it: rffl --ranks 2 fit '--run.root=a b'."),
    "ranks alone": (("--ranks=2",), "a subcommand: fit, validate,"),
    "ranks of what has none": (
        ("--ranks", 2, "compare"),
        "--ranks with fit, validate, test or predict, but got it with compare; leave it out.",
    ),
    "help of a split of no data": (
        ("fit", "--data.split.help", "DIR"),
        "--data before --data.split.help, but got none; give --data Digits --data.split.help DIR.",
    ),
    "a name without its end": (("fit", "--config", "digits"), "but got digits; did you mean digits.yaml? `rffl list"),
    "the config first": (("--config", "digits.yaml", "fit"), "a command first, but got --config; put it behind it"),
    "fit alone": (("fit",), "--model.network and --data, which are required, but got none"),
    "fit with data alone": (("fit", "--data", "Digits"), "Expected --model.network, which is required, but got none"),
    "the config last": (("fit", "--data.split", "CLA", "--config", "digits.yaml"), "--config before the options"),
    "list nothing known": (("list", "x"), "servers, adversaries"),
    "list two": (("list", "servers", "x"), "to list, but got servers x"),
    "list no config": (("list", "configs", ".."), "one of the package's configurations, but got .."),
    "completion of another shell": (("completion", "zsh"), "nothing behind rffl completion, but got zsh"),
    "compare nowhere": (("compare", "nowhere"), "nowhere"),
    "compare an empty word": (("compare", ""), "every word behind rffl compare to be one line of a name, but got ''"),
    "compare NUL": (("compare", "a\0b"), "every word behind rffl compare"),
    "compare a long name": (("compare", LONG), "every word behind rffl compare"),
    "compare an unknown option": (("compare", "--foo"), "an option of rffl compare, but got --foo"),
    "compare no target": (("compare", "--out"), "argument --out: expected one argument"),
    "compare a file": (("compare", "s.yaml"), "s.yaml"),
    "dashboard of nobody": (("dashboard",), "the following arguments are required: --entity"),
    "dashboard of an empty name": (("dashboard", "--entity", "", "--out", "x"), "every word behind rffl dashboard"),
    "dashboard with a word": (("dashboard", "x", "--entity", "me"), "unrecognized arguments: x"),
    "dashboard with an unknown option": (("dashboard", "--entitty", "me"), "--entitty; did you mean --entity?"),
    "dashboard into nowhere": (("dashboard", "--entity", "me", "--out", "no/where.json"), "--out"),
    "paper alone": (("paper",), "the following arguments are required: verb"),
    "paper unknown verb": (("paper", "tabel"), "invalid choice: 'tabel'"),
    "paper unknown table": (("paper", "table", "acuracy"), "but got acuracy; did you mean accuracy?"),
    "paper no table": (("paper", "table"), "a table of the paper, but got none"),
    "paper unknown figure": (("paper", "figure", "x"), "a figure of the paper, but got x"),
    "paper a word too many": (("paper", "list", "x"), "nothing behind rffl paper list, but got x"),
    "paper unknown format": (
        ("paper", "table", "accuracy", "--format", "xls"),
        "--format to be one of md, csv, tex, but",
    ),
    "paper no rounds": (("paper", "table", "accuracy", "--rounds", 0), "--rounds to be at least 1, but got 0"),
    "paper rounds beyond": (("paper", "table", "accuracy", "--rounds", 10**30), "--rounds to be at most 10000000"),
    "paper one seed twice": (("paper", "table", "accuracy", "--run", "--seeds", 1, 1), "seeds to be different whole"),
    "paper no jobs": (("paper", "table", "accuracy", "--run", "--jobs", 0), "--jobs to be at least 1, but got 0"),
    "study alone": (("study",), "the following arguments are required: STUDY.yaml"),
    "study nowhere": (("study", "nowhere.yaml"), "the file of a study, but there is no nowhere.yaml"),
    "study NUL": (("study", "a\0b"), "every word behind rffl study"),
    "study in a folder without a name": (("study", "s.yaml", "--root", ""), "every word behind rffl study"),
    "study in a folder of a long name": (("study", "s.yaml", "--root", LONG), "every word behind rffl study"),
    "study jobs beyond": (("study", "s.yaml", "--jobs", 10**9), "--jobs to be at most 4096, but got 1e+09"),
    "study packs beyond": (("study", "s.yaml", "--pack", 10**9), "--pack to be at most 4096, but got 1e+09"),
    "study packs in words": (("study", "s.yaml", "--pack", "x"), "--pack to be a whole number, but got x."),
    "study jobs in words": (("study", "s.yaml", "--jobs", "x"), "--jobs to be a whole number, but got x."),
    "study no seeds": (("study", "s.yaml", "--seeds"), "argument --seeds: expected at least one argument"),
    "study unknown axis": (("study", "s.yaml", "--only", "x=y"), "but got x"),
}

STUDIES: dict[str, tuple[str | bytes, str]] = {
    "binary": (bytes(range(256)), "s.yaml to be the YAML file of a study, but"),
    "empty": ("", "s.yaml to have the key axes at least, of the keys name,"),
    "a list": ("- 1\n", "s.yaml to have the key axes at least, of the keys name,"),
    "nested without end": ("a: " + "[" * 3000 + "]" * 3000, "s.yaml to be the YAML file of a study, but"),
    "axes in a list": (STUDY.replace("    RFFL: --server RFFL", "    - RFFL"), "axes.server to have labels with the w"),
    "a list for words": (STUDY.replace("--config digits.yaml", "[3]"), "base to be words of a command line"),
    "a quotation mark": (STUDY.replace("--server RFFL", "--server 'RFFL"), "words of a command line, but got"),
    "a name outside": ("name: ../../x\n" + STUDY[12:], "name to be letters, digits, dots and dashes"),
    "a negative seed": (STUDY.replace("[1]", "[-1]"), "seeds to be different whole numbers in 0 .. 4294967295"),
    "an unknown option": (STUDY.replace("--server RFFL", "--server RFFL --foo 3"), "a known option, but got"),
}

RUNS: dict[str, tuple[dict[str, bytes], str]] = {
    "no YAML": ({"config.yaml": b"a: ["}, "runs/digits/r"),
    "binary YAML": ({"config.yaml": bytes(range(256))}, "runs/digits/r"),
    "half a summary": ({"config.yaml": b"{}", "summary.json": b"{"}, "runs/digits/r"),
    "binary metrics": ({"config.yaml": b"{}", "metrics.csv": bytes(range(256))}, "metrics.csv to be text that can be"),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_words_that_say_nothing(rffl: Run, here: Path, mistake: str) -> None:
    """A user would meet a traceback, or another command than was meant."""
    words, expected = COMMANDS[mistake]
    (here / "s.yaml").write_text(STUDY)
    assert_refused(rffl(*words), expected)
    assert below(here) == {here / "s.yaml"}


@pytest.mark.parametrize(
    "words",
    [
        ("study", "closed/s.yaml"),
        ("study", "s.yaml", "--root", "closed"),
        ("compare", "runs", "--out", "closed/page.html"),
        ("paper", "table", "accuracy", "--results", "closed/results"),
    ],
)
def test_a_folder_that_is_closed(
    rffl: Run, here: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """It ended in a traceback; who tests as root reads every folder."""
    status = Path.stat

    def refused(path: Path, **options: Any) -> os.stat_result:
        if "closed" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return status(path, **options)

    monkeypatch.setattr(Path, "stat", refused)
    (here / "s.yaml").write_text(STUDY)
    assert_refused(rffl(*words), "files that can be read and written, but Permission denied: closed/")


@pytest.mark.parametrize("mistake", STUDIES)
def test_a_study_that_is_none(rffl: Run, here: Path, mistake: str) -> None:
    """Likewise for the file of a study."""
    content, expected = STUDIES[mistake]
    (here / "s.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_refused(rffl("study", "s.yaml", "--dry-run"), expected)
    assert below(here) == {here / "s.yaml"}


@pytest.mark.parametrize("mistake", RUNS)
def test_a_run_that_is_damaged(rffl: Run, here: Path, mistake: str) -> None:
    """Likewise for the folder of a run."""
    files, expected = RUNS[mistake]
    run = here / "runs" / "digits" / "r"
    run.mkdir(parents=True)
    for name, content in files.items():
        (run / name).write_bytes(content)
    before = below(here)
    assert_refused(rffl("compare", "runs/digits/r"), expected)
    assert below(here) == before
