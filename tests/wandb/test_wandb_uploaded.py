"""What W&B's own `wandb sync` reads from offline runs and uploads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from rffl_pl.runs.checkpoint import header
from tests.conftest import ROOT, Ended
from tests.wandb.wandb_server import Uploaded, wandb_server

ATTACKS = ("--federation.adversaries", 2, "--adversaries+=LabelFlip", "--server.removal_from", 0)
STUDY = ("--run.study", "attacks", "--run.place", '{"attack": "both"}', "--seed_everything", 3)
QUIET = ("--trainer.enable_progress_bar", "false")


@pytest.fixture(scope="module")
def command() -> str:
    """W&B's command line, as it is installed beside Python."""
    found = shutil.which("wandb", path=str(Path(sys.executable).parent))
    assert found is not None
    return found


def uploaded(command: str, folders: Iterable[Path]) -> dict[str, Uploaded]:
    """Every run, once W&B's command has uploaded some folders one after the other."""
    with wandb_server() as server:
        known = {**os.environ, "WANDB_BASE_URL": server.url, "WANDB_API_KEY": "a" * 40, "WANDB_MODE": "online"}
        for folder in folders:
            words = [command, "sync", str(folder)]
            subprocess.run(words, env=known, cwd=folder, check=True, capture_output=True, timeout=120)
        return dict(server.runs)


@pytest.mark.slow
def test_both_parts_of_a_run_arrive_as_one(rffl: Callable[..., Ended], tmp_path: Path, command: str) -> None:
    """Configuration, tags, group, a row per round in its place, result, pictures: W&B reads all that was left."""
    args = ("--config", "configs/digits.yaml", *ATTACKS, *STUDY, *QUIET)
    assert rffl("fit", *args, "--trainer.max_epochs", 2).code == 0
    (checkpoint,) = (tmp_path / "runs").glob("*/*/checkpoints/last.ckpt")
    ended = rffl("fit", *args, "--trainer.max_epochs", 3, "--ckpt_path", "last")
    assert ended.code == 0, ended.err
    parts = sorted((tmp_path / "runs").glob("*/*/wandb/offline-run-*"))
    assert f"wandb sync {parts[1]}" in ended.out
    ((identity, run),) = uploaded(command, parts).items()
    assert header(checkpoint)["wandb"] == identity
    assert f"it goes on with W&B run {identity}: upload the earlier part first" in ended.out
    assert run.about["groupName"] == "attacks attack=both"
    assert run.about["displayName"] == "attacks attack=both seed=3"
    assert run.about["jobType"] == "fit"
    assert run.about["tags"] == [
        "Digits", "POW", "RFFL", "released", "FreeRider", "LabelFlip", "seed 3", "study attacks",
    ]  # fmt: skip
    flat = {"dataset": "Digits", "split": "POW", "server_name": "RFFL", "attack": "FreeRider + LabelFlip", "seed": 3}
    flat |= {"participants": 5, "adversaries": 2, "rounds": 3, "study": "attacks", "place": "attack=both"}
    assert flat.items() <= {key: value for key, value in run.config.items() if key in flat}.items()
    rows = list(run.history.values())
    assert [row["round"] for row in rows if "accuracy/mean" in row] == [1, 2, 3]
    steps = [row["_step"] for row in rows]
    assert steps == sorted(set(steps))
    assert {"mean", "fairness", "recall", "attack_success"} <= run.summary.keys()
    assert run.summary["rounds"] == 3
    pictures = {key.removeprefix("pictures/") for key in rows[-1] if key.startswith("pictures/")}
    assert pictures == {"reputation", "accuracy", "fairness"}
    for picture in pictures:
        path = run.summary[f"pictures/{picture}"]["path"]
        assert run.files[path] == (parts[1].parent.parent / f"{picture}.png").read_bytes()
    pytest.importorskip("wandb_workspaces", reason="what a dashboard shows needs the extra dashboard")
    check_dashboard(run)


def check_dashboard(run: Uploaded) -> None:
    """Every key that a chart, a column or a grouping of the dashboard names is one of a run's."""
    from rffl_pl.dashboard.specification import COLUMNS, GROUPS, specified

    logged = {key for row in run.history.values() for key in row}
    results = run.summary.keys()
    known = logged | results
    found = specified("me", "digits")
    panels = [panel for section in found.workspace.sections for panel in section.panels]
    kinds = set()
    for panel in panels:
        kinds.add(type(panel).__name__)
        for where, key in keys_of(panel):
            assert key in {"history": logged, "summary": results, "config": run.config.keys()}[where], (panel, key)
        if regex := getattr(panel, "metric_regex", None):
            matching = [key for key in logged if re.fullmatch(regex, key)]
            assert len(matching) == 7
    assert kinds == {"BarPlot", "LinePlot", "ScatterPlot", "MediaBrowser", "RunComparer"}
    assert run.config.keys() >= set(GROUPS) - {"coalition"}  # of those who play alone
    for column in COLUMNS:
        where, _, key = column.partition(":")
        assert key.removesuffix(".value") in ({*run.config, "coalition"} if where == "config" else known)


def keys_of(panel: Any) -> list[tuple[str, str]]:
    """Keys that a chart names, and where they must be: lines are of the history, bars and dots of the summary."""
    found = [("summary", key) for key in getattr(panel, "metrics", [])]
    found += [("history", key) for key in getattr(panel, "media_keys", [])]
    kind = type(panel).__name__
    if kind == "LinePlot":
        found += [("history", key) for key in (panel.x, *panel.y)]
    if kind == "ScatterPlot":
        found += [("summary", key.name) for key in (panel.x, panel.y)]
    group = getattr(panel, "groupby", None)
    return [*found, *([("config", group.name)] if group is not None else [])]


@pytest.mark.slow
def test_a_run_that_goes_on_sends_what_had_not_arrived(tmp_path: Path) -> None:
    """As of a process that was killed; and says what W&B has of rounds that are played again."""
    quick = ("--config", "digits.yaml", "--standalone.enabled", "false", "--run.figures", "false", "--run.name", "own")
    with wandb_server() as server:
        online = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "a" * 40, "WANDB_MODE": "online"}

        def fit(rounds: int, *words: str) -> str:
            args = [sys.executable, "-m", "rffl_pl", "fit", *quick, "--trainer.max_epochs", str(rounds), *words]
            known = {**os.environ, **online, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            ended = subprocess.run(args, env=known, cwd=tmp_path, capture_output=True, text=True, timeout=120)
            assert ended.returncode == 0, ended.stderr
            return ended.stderr

        def rounds() -> list[int]:
            return [row["round"] for _, row in sorted(run.history.items()) if "accuracy/mean" in row]

        fit(4)
        ((_, run),) = server.runs.items()
        assert rounds() == [1, 2, 3, 4]
        for line in sorted(run.history)[2:]:
            del run.history[line]
        run.summary |= {"_step": 1, "round": 2}
        said = fit(6, "--ckpt_path", "last")
        assert rounds() == [1, 2, 3, 4, 5, 6]
        assert "W&B has rounds" not in said
        line = max(run.history) + 1
        run.history |= {line: {"_step": 8, "round": 7, "accuracy/mean": 0.5}}
        run.summary |= {"_step": 8, "round": 7}
        said = fit(8, "--ckpt_path", "last")
        assert "W&B has rounds 7 to 7 of this run already and keeps them" in said
        assert rounds() == [1, 2, 3, 4, 5, 6, 7, 8]
