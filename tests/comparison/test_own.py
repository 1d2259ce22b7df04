"""A user's own code and files behind options: whoever edits them between two seeds has two settings."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from rffl_pl.comparison import chosen, own, table
from rffl_pl.comparison.own import own_of
from rffl_pl.comparison.page import content
from rffl_pl.comparison.rounds import played
from rffl_pl.runs import RunFolder
from rffl_pl.studies.own import files_in
from tests.cli.folders import QUICK
from tests.comparison.runs import copy
from tests.conftest import Ended, only_run

Run = Callable[..., Ended]


class Net(nn.Sequential):
    """A network that no option of the package names."""


def seeds_apart(words: list[str]) -> dict[str, set[str]]:
    """The seeds of every network as a comparison of runs calls it."""
    found: dict[str, set[str]] = {}
    for result in chosen(words)[0]:
        found.setdefault(result.settings["--model.network"], set()).add(result.settings["--seed_everything"])
    return found


def test_a_network_that_was_edited(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In what its file imports: the runs before and after are no seeds of one setting, and the table shows two."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(
        "from torch import nn\nimport widths\n\n\nclass Small(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(64, widths.WIDTH), nn.ReLU(), nn.Linear(widths.WIDTH, 10))\n"
    )
    for seed, width in ((1, 8), (2, 8), (3, 16)):
        (tmp_path / "widths.py").write_text(f"WIDTH = {width}\n")
        for module in ("nets", "widths"):
            sys.modules.pop(module, None)
        words = ("--config", "digits.yaml", *QUICK, "--model.network", "nets.Small", "--trainer.max_epochs", 1)
        ended = rffl("fit", *words, "--seed_everything", seed, "--run.name", seed)
        assert ended.code == 0, ended.err
        if seed == 2:
            assert seeds_apart(["runs"]) == {"nets.Small": {"1", "2"}}
    (first, both), (second, last) = seeds_apart(["runs"]).items()
    assert (both, last) == ({"1", "2"}, {"3"})
    digests = [
        RunFolder(only_run(tmp_path / "runs", str(seed))).starts()[0]["own"]["--model.network"] for seed in (1, 2, 3)
    ]
    assert digests[0] == digests[1]
    assert [first, second] == [f"nets.Small ({digest[:6]})" for digest in digests[1:]]
    ended = rffl("compare")
    assert first in ended.out
    assert second in ended.out
    assert "over seeds" in ended.out


def test_runs_that_do_not_tell(folders: list[Path], tmp_path: Path) -> None:
    """Those of earlier releases are what they were; the page says that they do not tell."""
    copies = [copy(folder, tmp_path / str(number) / folder.name) for number, folder in enumerate(folders[:2])]
    assert not content(played(chosen([str(tmp_path)])[0])[0])["untold"]
    start = RunFolder(copies[0]).starts()[0]
    told = {"--model.network": "3f2a91d4e5c6"}
    for own_there, untold in ((told, False), (None, True)):
        line = {**start, "own": own_there} if own_there else {name: start[name] for name in start if name != "own"}
        (copies[0] / "starts.jsonl").write_text(json.dumps(line) + "\n")
        results = chosen([str(tmp_path)])[0]
        assert content(played(results)[0])["untold"] == untold
        assert "3f2a91" not in table(results)  # one version is no version


def test_a_run_that_went_on_with_other_code(folders: list[Path], tmp_path: Path) -> None:
    """It is neither of the two."""
    copies = [copy(folder, tmp_path / str(number) / folder.name) for number, folder in enumerate(folders[:2])]
    for run, digests in zip(copies, (["3f2a91d4e5c6"], ["3f2a91d4e5c6", "3f2a91d4e5c6", "77ae10b2c3d4"]), strict=True):
        start = RunFolder(run).starts()[0]
        lines = [json.dumps(start | {"own": {"--model.network": digest}}) for digest in digests]
        (run / "starts.jsonl").write_text("\n".join(lines) + "\n")
    assert [*seeds_apart([str(tmp_path)])] == ["Perceptron (3f2a91)", "Perceptron (3f2a91, then 77ae10)"]


def test_what_options_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Own classes and functions with what lies in own files; nothing of what is the package's or is installed."""
    monkeypatch.chdir(tmp_path)
    table_file = tmp_path / "patients.csv"
    table_file.write_text("age,label\n1,0\n2,1\n")
    config = {
        "server": {"class_path": "rffl_pl.servers.RFFL", "init_args": {"gamma": 0.5}},
        "model": {
            "network": {"class_path": f"{__name__}.Net", "init_args": {"act": "tests.comparison.test_own.Net"}},
            "loss": "torch.nn.CrossEntropyLoss",
            "optimizer": {"class_path": "yaml.YAMLObject"},
        },
        "data": {
            "class_path": "rffl_pl.datamodules.TableFile",
            "init_args": {"train_file": ["patients.csv", "none.csv"], "label": "label"},
        },
        "run": {"root": "patients.csv"},
    }  # fmt: skip
    before = own_of(config)
    assert sorted(before) == ["--data.train_file", "--model.network", "--model.network.act"]
    table_file.write_text("age,label\n1,1\n2,1\n")
    after = own_of(config)
    assert [option for option in before if before[option] != after[option]] == ["--data.train_file"]


def test_a_folder_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy is the same; one byte of one file is not, unless the folder is too large to be read."""
    room = tmp_path / "images" / "cat"
    room.mkdir(parents=True)
    (room / "1.png").write_bytes(b"one")
    (room / ".hidden").write_bytes(b"hidden")

    def digest(folder: str = "images") -> str:
        data = {"class_path": "rffl_pl.datamodules.ImageFolder", "init_args": {"folder": str(tmp_path / folder)}}
        return own_of({"data": data})["--data.folder"]

    first = digest()
    shutil.copytree(tmp_path / "images", tmp_path / "copied")
    os.utime(tmp_path / "copied" / "cat" / "1.png", (1, 1))
    (tmp_path / "copied" / "cat" / ".hidden").unlink()
    assert digest("copied") == first
    shutil.copy(room / "1.png", room / "2.png")
    two = digest()
    with monkeypatch.context() as listed:  # in the order that the disk has
        listed.setattr(own, "files_in", lambda path: reversed([*files_in(path)]))
        assert digest() == two
    (room / "2.png").unlink()
    (room / "1.png").write_bytes(b"two")
    assert digest() != first
    monkeypatch.setattr(own, "_MOST", 2)
    large = digest()
    (room / "1.png").write_bytes(b"six")
    assert digest() == large
    (room / "1.png").write_bytes(b"seven")
    assert digest() != large
