"""Cells in packs against the same cells alone, over signals and killed workers too; and which cells make up a pack."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rffl_pl.cli.resolve import Resolver
from rffl_pl.studies import Study
from rffl_pl.studies.cells import Cell, cells_of, packed
from tests.cli.folders import Run, weights
from tests.conftest import ROOT
from tests.processes import group_lives
from tests.studies.files import DIGITS, rows, study

pytestmark = pytest.mark.usefixtures("hears_control_c")
STACKED = f"{DIGITS} --model.engine stacked"


def cells_in(root: Path) -> dict[str, Path]:
    """The folder of the run of every finished cell, by digest."""
    return {path.parent.parent.name: path.parent for path in (root / "cells").glob("*/*/summary.json")}


def assert_same_results(root: Path, other: Path, cut: float = 0.0) -> None:
    """The same cells with the same models, removals and measures.

    Args:
        root: Where some are.
        other: Where the others are.
        cut: The share of entries that may differ more under RFFL, which sends an entry whole or not at all: where
            rounding moves one over the border, it is another.
    """
    ones, others = cells_in(root), cells_in(other)
    assert ones.keys() == others.keys()
    for digest, one in ones.items():
        words = json.loads((root / "cells" / digest / "cell.json").read_text())["words"]
        borders = cut > 0 and '{"server": "RFFL"}' in words
        for name, state in weights(one).items():
            for key, value in state.items():
                found = weights(others[digest])[name][key]
                apart = (found - value).abs() > 1e-5 + 1e-5 * value.abs()
                assert apart.double().mean() <= (cut if borders else 0), (digest, name, key, int(apart.sum()))
                torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-2 if borders else 1e-5)
        here, there = (
            [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
            for run in (one, others[digest])
        )
        assert [(a["number"], a["members"], a["removed"]) for a in here] == [
            (b["number"], b["members"], b["removed"]) for b in there
        ]
        for measured in ("accuracy", "loss"):
            for a, b in zip(here, there, strict=True):
                assert b["measures"][measured] == pytest.approx(
                    a["measures"][measured], rel=1e-4, abs=1e-5, nan_ok=True
                )


@pytest.mark.slow
def test_packed_cells_are_those_run_alone(
    rffl: Run, tmp_path: Path, unions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers, attacks, seeds, unequal shards and batches; whoever is removed, ends earlier or fails is so alone.

    Those that another network, optimizer or engine keeps out run alone, and the study says so.
    """
    text = f"""\
base: {STACKED} --trainer.max_epochs 5
axes:
  server: {{RFFL: --server.preset guarded, FedAvg: --server FedAvg}}
  kind:
    pow: --standalone.enabled true
    uni: --data.split UNI --data.batch_size 8
    flip: --config adversaries/label_flip.yaml --federation.adversaries 2
    sign: --adversaries+=SignRandom --federation.adversaries 2
    short: --trainer.max_epochs 2
    broken: --trainer.callbacks+=tests.interruption.PowerCut
    hungry: --data.examples_per_participant 1000
    wide: --model.network.hidden 32
    loop: --model.engine loop
seeds: [3]
exclude:
  - {{server: FedAvg, kind: [sign, broken, hungry, wide, loop]}}
"""
    file = study(tmp_path, text, "kinds.yaml")
    ended = {}
    for most in (1, 99):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache {most}"))  # each trains references of its own
        ended[most] = rffl("study", file, "--root", tmp_path / str(most), "--pack", most)
    assert "11 cells train in 1 pack, 2 alone: cells train together that share network" in ended[99].out
    assert "train in" not in ended[1].out
    for each in ended.values():
        assert each.code == 1
        failed = sorted(line.split(": ")[1:] for line in each.err.splitlines() if line.startswith("Failed: "))
        assert [line[0] for line in failed] == ["server=RFFL kind=broken seed=3", "server=RFFL kind=hungry seed=3"]
        assert failed[0][1] == "RuntimeError"
        assert failed[1][1].startswith("Expected at least 5000 training examples")
    assert len(cells_in(tmp_path / "99")) == 11
    assert max(unions) > 21  # in the pack: alone a cell has seven at most
    assert_same_results(tmp_path / "1", tmp_path / "99")
    removed = [entry for run in cells_in(tmp_path / "99").values() for entry in (run / "rounds.jsonl").open()]
    assert any(json.loads(entry)["removed"] for entry in removed)
    one, other = (
        {
            (row["cell"], row["measure"], row["participant"]): float(row["value"])
            for row in rows(tmp_path / most / "kinds" / "results.csv")
        }
        for most in ("1", "99")
    )
    assert "fairness" in {measure for _, measure, _ in one}
    assert other == pytest.approx(one, abs=0.01)
    assert len(list((tmp_path / "cache 99").rglob("*.json"))) == 1  # two servers have a reference in common
    for run in cells_in(tmp_path / "99").values():  # each cell's words are in its own log
        assert (run.parent / "log.txt").read_text().count("run folder: ") == 1


LARGE = {
    "MNISTCNN": "--data tests.studies.small_data.Pictures --model.network MNISTCNN --model.optimizer.lr 0.05",
    "TextCNN": "--data tests.studies.small_data.Sentences --model.network TextCNN --model.network.vocabulary 1000 "
    "--model.optimizer.lr 0.5",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("network", LARGE)
def test_packs_of_larger_networks(network: str, rffl: Run, tmp_path: Path, unions: list[int]) -> None:
    """Convolutions of 24 models as groups of one, pooling, and word embeddings with dropout, as alone."""
    text = f"""\
base: >-
  {LARGE[network]} --model.network.classes 2 --model.optimizer SGD --data.split POW --data.batch_size 8
  --data.adversary_examples 16 --federation.participants 5 --federation.adversaries 1 --adversaries+=SignRandom
  --model.engine stacked --trainer.max_epochs 2 --run.wandb false --run.figures false --standalone.enabled false
axes:
  server: {{RFFL: --server.preset guarded, Median: --server Median}}
seeds: [1, 2]
"""
    file = study(tmp_path, text, "large.yaml")
    for most in (1, 4):
        ended = rffl("study", file, "--root", tmp_path / str(most), "--pack", most)
        assert ended.code == 0, ended.err
    assert "4 cells train in 1 pack" in ended.out
    assert max(unions) == 4 * 6
    assert len(cells_in(tmp_path / "4")) == 4
    assert_same_results(tmp_path / "1", tmp_path / "4", cut=0.01)


@pytest.mark.slow
def test_an_interrupted_pack_goes_on(rffl: Run, tmp_path: Path) -> None:
    """Every cell where it was; and the process answers signals as before."""
    cells = "rffl: '', fedavg: --server FedAvg, median: --server Median"
    text = f"base: {STACKED} --trainer.max_epochs 3\naxes: {{what: {{{cells}}}}}\n"
    whole = study(tmp_path, text, "whole.yaml")
    assert rffl("study", whole, "--root", tmp_path / "alone").code == 0
    for number in (signal.SIGINT, signal.SIGTERM):
        cut = f"--trainer.callbacks+=tests.interruption.Signalled --trainer.callbacks.number {int(number)}"
        broken = study(tmp_path, text.replace("rffl:", f"cut: {cut}, rffl:"), "broken.yaml")
        before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        packed = tmp_path / number.name
        ended = rffl("study", broken, "--root", packed, "--pack", 4)
        assert ended.code == 130
        assert ended.err.strip().splitlines()[-1] == "Interrupted; the same command goes on where every cell was."
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
        assert not cells_in(packed)
        logs = [path.read_text() for path in (packed / "cells").glob("*/log.txt")]
        assert len(logs) == 4
        how = "go on with it by running the study again"
        assert all(f"Stopped by {number.name} after round 2; {how}" in log for log in logs)
        assert rffl("study", whole, "--root", packed, "--pack", 3).code == 0
        for digest in cells_in(packed):
            cell = json.loads((packed / "cells" / digest / "cell.json").read_text())
            assert "null" not in cell["words"]  # each went on from a checkpoint
        assert_same_results(tmp_path / "alone", packed)


@pytest.mark.slow
@pytest.mark.distributed
def test_a_scheduler_ends_packs_in_workers(tmp_path: Path) -> None:
    """The study's processes end, and every cell after a round of which it has the checkpoint."""
    text = f"base: {STACKED} --trainer.max_epochs 10000\nseeds: [1, 2]\naxes: {{n: {{a: '', b: --server FedAvg}}}}\n"
    root = tmp_path / "studies"
    words = ["study", str(study(tmp_path, text, "long.yaml")), "--root", str(root), "--jobs", "2", "--pack", "2"]
    command = [sys.executable, "-m", "rffl_pl", *words]
    started = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        until = time.monotonic() + 120
        while len(list(root.glob("cells/*/*/checkpoints/last.ckpt/run.pt"))) < 4:
            assert time.monotonic() < until
            time.sleep(0.05)
        started.terminate()
        _, err = started.communicate(timeout=90)
        assert started.returncode == 130, err
        assert "Interrupted; the same command goes on where every cell was." in err
        until = time.monotonic() + 30
        while group_lives(started.pid):
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        if group_lives(started.pid):
            os.killpg(started.pid, signal.SIGKILL)
    logs = [path.read_text() for path in root.glob("cells/*/log.txt")]
    assert sum("Stopped by SIGTERM after round" in log for log in logs) >= 2


@pytest.mark.slow
@pytest.mark.distributed
def test_a_pack_whose_worker_is_killed_goes_on_alone(rffl: Run, tmp_path: Path) -> None:
    """And whoever kills its worker then fails."""
    text = f"""\
base: {STACKED} --trainer.max_epochs 2
axes:
  what:
    killed: --trainer.callbacks+=tests.interruption.Killed
    fine: ""
    good: --server FedAvg
    well: --server Median
"""
    ended = rffl("study", study(tmp_path, text, "four.yaml"), "--root", tmp_path, "--jobs", 2, "--pack", 2)
    assert ended.code == 1
    (failed,) = (line for line in ended.err.splitlines() if line.startswith("Failed: "))
    assert failed.startswith("Failed: what=killed seed=1: Its worker ended by SIGKILL")
    assert {row["what"] for row in rows(tmp_path / "four" / "results.csv")} == {"fine", "good", "well"}


def cell(mates: str, number: int) -> Cell:
    return Cell(place={}, seed=number, rounds=1, words=[], settings="", digest=str(number), mates=mates)


@pytest.mark.slow
def test_a_pack_opens_more_files_than_a_shell_allows_at_first(rffl: Run, tmp_path: Path) -> None:
    """A cell has seven, and the usual limit of 1,024 ended a pack of 150 without a word."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"base: {STACKED} --trainer.max_epochs 1\naxes: {{n: {{one: ''}}}}\nseeds: [1, 2, 3, 4, 5, 6]\n"
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 25, hard))
    try:
        ended = rffl("study", study(tmp_path, text, "six.yaml"), "--root", tmp_path / "studies", "--pack", 6)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert ended.code == 0, ended.err
    assert "6 cells train in 1 pack" in ended.out


def test_packs_are_full_and_even() -> None:
    """Nobody waits for a worker while another has a whole pack before it; one at a time in the order that it was."""
    cells = [cell("abba"[k % 4], k) for k in range(12)] + [cell("", 12), cell("", 13)]
    sizes = [[len(pack) for pack in packed(cells, most, jobs)] for most, jobs in ((4, 1), (99, 1), (99, 2), (99, 5))]
    assert sizes == [[4, 2, 4, 2, 1, 1], [6, 6, 1, 1], [3, 3, 3, 3, 1, 1], [2, 2, 2, 2, 2, 2, 1, 1]]
    assert packed(cells, 1, 2) == [[each] for each in cells]
    for pack in packed(cells, 99):
        assert len({each.mates for each in pack}) == 1


def test_who_can_be_in_a_pack() -> None:
    """What rows of a stack have of their own may differ; what they share may not; loggers of one's own stand alone."""
    base, resolve = "--config digits.yaml --run.wandb false --model.engine stacked", Resolver()

    def mates(words: str) -> str:
        one = Study(name="one", base=[*base.split(), *words.split()], axes={"n": {"a": []}}, seeds=[1])
        return cells_of(one, [1], None, resolve)[0].mates

    same = [
        "",
        "--server Median --data.split UNI --data.batch_size 9 --federation.adversaries 2 --trainer.max_epochs 3",
        "--config adversaries/sybil.yaml --standalone.enabled false --federation.participation 0.5",
    ]
    others = [
        "--model.network.hidden 9",
        "--model.optimizer.lr 0.2",
        "--model.optimizer.momentum 0.9",
        "--model.local_epochs 2",
        "--model.lr_decay 1",
        "--trainer.precision bf16-mixed",
        "--data tests.callbacks.own.Turned --data.after 1",
        "--data tests.callbacks.own.Turned --data.after 2",
    ]
    alone = ["--run.wandb true", "--model.engine loop", "--trainer.logger CSVLogger --trainer.logger.save_dir x"]
    alone += [] if torch.cuda.is_available() else ["--model.engine auto"]
    assert len(set(map(mates, same))) == 1
    assert len(set(map(mates, ["", *others]))) == 1 + len(others)
    assert all(map(mates, others))
    assert not any(map(mates, alone))
