"""What is read of a run: its options, also over its rounds, and how long it took."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rffl_pl.comparison.options import options_of
from rffl_pl.comparison.reading import read, seconds
from rffl_pl.comparison.settings import differing
from tests.comparison.runs import copy


def test_data_of_ones_own_goes_by_where_it_lies() -> None:
    """Published data is the same wherever it lies; a class of one's own may tell clean from noisy data by that."""
    for kind, counts in (("rffl_pl.datamodules.MNIST", False), ("my_data.Mine", True)):
        config = {"data": {"class_path": kind, "init_args": {"data_dir": "noisy", "num_workers": 2}}}
        assert ("--data.data_dir" in options_of(config)) == counts
        assert "--data.num_workers" not in options_of(config)


@pytest.mark.parametrize(
    ("limit", "told"),
    [(None, "None"), (1.0, "1.0"), (0, "0"), (0.5, "0.5 in batches of 8"), (3, "3 in batches of 8")],
)
def test_the_size_of_evaluated_batches(limit: float | None, told: str) -> None:
    """It changes no result unless so many batches, or a share of them, are measured: then that is what differs."""
    for part in ("val", "test"):
        config = {"data": {"eval_batch_size": 8}, "trainer": {f"limit_{part}_batches": limit}}
        assert options_of(config) == {f"--trainer.limit_{part}_batches": told}
    few, every = ({"data": {"eval_batch_size": 8}, "trainer": {"limit_val_batches": n}} for n in (limit, None))
    differ = [] if limit is None else ["--trainer.limit_val_batches"]
    assert differing([options_of(few), options_of(every)]) == differ


def test_options_over_the_rounds(folders: list[Path], tmp_path: Path) -> None:
    """A run that went on with others passes for one that had them from the start, and is averaged with such."""

    def gamma(run: Path) -> str:
        return read(run).options["--server.gamma"]

    first = copy(folders[0], tmp_path / "first" / folders[0].name, server__init_args__gamma=0.5)
    there = copy(folders[0], tmp_path / "there" / folders[0].name, server__init_args__gamma=0.2)
    for number, before in ((10, 0.3), (2, 0.5), (3, 0.5)):
        earlier = copy(folders[0], tmp_path / f"{number}" / folders[0].name, server__init_args__gamma=before)
        shutil.copy(earlier / "config.yaml", there / f"config.{number}.yaml")
    assert gamma(first) == "0.5"
    assert gamma(there) == "0.5 until 3, 0.3 until 10, then 0.2"
    assert read(there).options["--trainer.max_epochs"] == "4"
    for checkpoint in (first / "checkpoints", first / "checkpoints" / "last.ckpt"):
        shutil.rmtree(tmp_path / "on", ignore_errors=True)
        on = copy(
            folders[0], tmp_path / "on" / folders[0].name,
            server__init_args__gamma=0.1, ckpt_path=str(checkpoint), trainer__max_epochs=9,
        )  # fmt: skip
        assert gamma(on) == "0.5 at first, then 0.1"
        assert read(on).options["--trainer.max_epochs"] == "9"
    source = str(first / "checkpoints")
    more: dict[str, Any] = {"server__init_args__gamma": 0.5, "ckpt_path": source}
    steps = copy(folders[0], tmp_path / "steps" / "x", **more, trainer__max_steps=9)
    assert read(steps).options["--trainer.max_steps"] == "9"  # a round each: more of them are the same run too
    again = copy(folders[0], tmp_path / "again" / "x", **more)
    assert read(again).options == read(first).options
    lost = copy(folders[0], tmp_path / "lost" / "x", ckpt_path="/nowhere/checkpoints")
    assert read(lost).options["--ckpt_path"] == "/nowhere/checkpoints"
    ring = [tmp_path / one / "x" for one in ("ring", "back")]
    for run, other in zip(ring, reversed(ring), strict=True):
        copy(folders[0], run, ckpt_path=str(other / "checkpoints"))
    assert str(ring[0]) in read(ring[0]).options["--ckpt_path"]  # which asked for its own, and so on


def test_options_of_a_run_until_it_was_left(folders: list[Path], tmp_path: Path) -> None:
    """Where it went on later with others, a run that had begun from it was said to have begun with those."""

    def gamma(name: str, left: int | None) -> str:
        source = {"ckpt_path": str(tmp_path / "first" / "x" / "checkpoints")}
        on = copy(folders[0], tmp_path / name / "x", **source, server__init_args__gamma=0.1)
        lines = [] if left is None else [json.dumps({"rounds": rounds}) for rounds in (left, 9)]
        (on / "starts.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return read(on).options["--server.gamma"]

    first = copy(folders[0], tmp_path / "first" / "x", server__init_args__gamma=0.4)
    for number, before in ((3, 0.2), (5, 0.3)):
        earlier = copy(folders[0], tmp_path / f"{number}" / "x", server__init_args__gamma=before)
        shutil.copy(earlier / "config.yaml", first / f"config.{number}.yaml")
    assert gamma("two", 2) == gamma("three", 3) == "0.2 at first, then 0.1"
    assert gamma("four", 4) == gamma("five", 5) == "0.2 until 3, then 0.3 at first, then 0.1"
    assert gamma("six", 6) == gamma("older", None) == "0.2 until 3, 0.3 until 5, then 0.4 at first, then 0.1"


def test_a_run_that_began_from_a_relative_path(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From anywhere else than where that was typed nobody knew its first rounds' options any more."""
    copy(folders[0], tmp_path / "runs" / "first" / "x", server__init_args__gamma=0.5)
    typed = "runs/first/x/checkpoints/last.ckpt"
    on = copy(folders[0], tmp_path / "runs" / "on" / "x", server__init_args__gamma=0.1, ckpt_path=typed)
    below = "first/x/checkpoints"
    elsewhere = copy(folders[0], tmp_path / "other" / "x", server__init_args__gamma=0.1, ckpt_path=below)
    for place in (tmp_path, tmp_path / "runs", tmp_path / "other"):
        monkeypatch.chdir(place)
        assert read(on).options["--server.gamma"] == "0.5 at first, then 0.1"
        known = read(elsewhere).options["--server.gamma"] == "0.5 at first, then 0.1"
        assert known == (place == tmp_path / "runs")


def test_seconds_are_known_or_not(folders: list[Path], tmp_path: Path) -> None:
    """From the first file to the result, unless the files are copies made later."""
    found = seconds(folders[0])
    assert found is not None
    assert 0 < found < 60
    assert seconds(copy(folders[0], tmp_path / "2020-01-01_00-00-00")) is None
    assert seconds(Path(shutil.copytree(folders[0], tmp_path / "2020-01-01_00-00-01"))) is None
    mended = Path(shutil.copytree(folders[0], tmp_path / folders[0].name))
    began = (mended / "config.yaml").stat().st_mtime
    os.utime(mended / "summary.json", (began - 1, began - 1))
    assert seconds(mended) is None


def test_seconds_of_a_run_that_went_on(folders: list[Path], tmp_path: Path) -> None:
    """They are not known: its configuration is written again, and what was before lies elsewhere or is gone."""
    twice, moved = (Path(shutil.copytree(folders[0], tmp_path / name / folders[0].name)) for name in ("twice", "moved"))
    assert seconds(twice) == seconds(moved) == seconds(folders[0])
    with (twice / "launch").open("a") as launches:
        launches.write("\n")
    assert seconds(twice) is None
    config, began = (moved / "config.yaml").read_text(), (moved / "config.yaml").stat().st_mtime
    (moved / "config.yaml").write_text(config.replace("ckpt_path: null", "ckpt_path: before/checkpoints/last.ckpt"))
    os.utime(moved / "config.yaml", (began, began))
    assert seconds(moved) is None


def test_a_precision_by_any_of_its_names() -> None:
    """Who says what is the default trains nothing else."""
    told = [options_of({"trainer": {"precision": name}})["--trainer.precision"] for name in (None, 32, "32", "32-true")]
    assert set(told) == {"32-true"}
    assert options_of({"trainer": {"precision": "bf16"}}) == options_of({"trainer": {"precision": "bf16-mixed"}})
