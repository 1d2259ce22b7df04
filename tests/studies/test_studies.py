"""Studies through the real command: runs found again, shared, resumed, and their results."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from rffl_pl.cli import session
from rffl_pl.runs import facts
from rffl_pl.studies import play
from tests.cli.folders import Run, assert_same_bits
from tests.conftest import QUICK, ROOT, only_run
from tests.processes import group_lives
from tests.studies.files import DIGITS, rows, study


def test_a_study_runs_every_cell_once_and_keeps_its_results(rffl: Run, tmp_path: Path) -> None:
    """A cell is the run that `fit` would be; the results say what it reached; a second call finds it again."""
    file, root = study(tmp_path), tmp_path / "studies"
    before = dict(os.environ)
    ended = rffl("study", file, "--root", root)
    assert ended.code == 0, ended.err
    left = set(os.environ) - set(before)
    assert not [name for name in left if name.startswith(("WANDB", "MASTER", "PL_GLOBAL", "RANK", "WORLD"))], left
    assert "small: 6 cells, 0 of them finished" in ended.out
    assert "[6/6] server=FedAvg split=UNI seed=2: " in ended.out
    results = rows(root / "small" / "results.csv")
    cells = {(row["server"], row["split"], row["seed"]): row["cell"] for row in results}
    assert sorted(cells) == sorted(
        (server, split, seed)
        for server, split in (("RFFL", "UNI"), ("RFFL", "POW"), ("FedAvg", "UNI"))
        for seed in "12"
    )
    assert rffl("fit", "--config", "digits.yaml", *QUICK, "--server", "FedAvg", "--data.split", "UNI",
                "--seed_everything", 2, "--trainer.max_epochs", 2).code == 0  # fmt: skip
    (cell,) = (root / "cells" / cells["FedAvg", "UNI", "2"]).glob("*/")
    assert_same_bits(cell, only_run(tmp_path / "runs"))
    summary = json.loads((cell / "summary.json").read_text())
    here = [row for row in results if row["cell"] == cells["FedAvg", "UNI", "2"]]
    values = {(row["measure"], row["participant"]): float(row["value"]) for row in here}
    assert values["accuracy_mean", ""] == pytest.approx(summary["mean"], rel=1e-8)
    assert values["honest_removed", ""] == summary["honest_removed"] == 0
    assert [values["accuracy", str(i)] for i in range(6)] == pytest.approx(summary["final"], rel=1e-8)
    assert [row["role"] for row in here if row["measure"] == "accuracy"] == ["honest"] * 5 + ["adversary"]
    assert all(row["rounds"] == "2" and float(row["seconds"]) > 0 and row["torch"] for row in here)

    (cell / "summary.json").write_text("{")  # a run that ended while it wrote its result
    (cell / "checkpoints" / "last.ckpt" / "server.pt").write_bytes(b"")  # and its disk has lost the last checkpoint
    again = rffl("study", file, "--root", root, "--only", "split=UNI", "--seeds", 2, 3)
    assert "small: 4 cells, 1 of them finished" in again.out
    assert len(list((root / "cells").glob("*/*/"))) == 9
    assert "null" not in json.loads((cell.parent / "cell.json").read_text())["words"]  # it went on
    (mended,) = (path for path in cell.parent.glob("*/") if path != cell)
    assert json.loads((mended / "summary.json").read_text()) == summary
    assert {row["seed"] for row in rows(root / "small" / "results.csv")} == {"1", "2", "3"}

    shutil.rmtree(root / "cells")  # disk is dear; what the results have is not run again
    once_more = rffl("study", file, "--root", root, "--only", "split=UNI", "--seeds", 2, 3)
    assert "small: 4 cells, 4 of them finished" in once_more.out
    assert not (root / "cells").exists()


def test_no_other_run_becomes_a_cells_result(rffl: Run, tmp_path: Path) -> None:
    """Whoever tries a variation of a cell's configuration had its numbers in the study's table, under the cell's label.

    A study whose labels have changed places, and whose folders are gone, has its results at their new places.
    """
    text = (
        f"name: one\nbase: {DIGITS} --trainer.max_epochs 1\n"
        "axes: {server: {A: --server FedAvg, B: --server SignSGD}}\nseeds: [1]\ncurves: [accuracy]\n"
    )
    words = ("study", study(tmp_path, text), "--root", tmp_path / "studies")
    assert rffl(*words).code == 0
    table = rffl(*words, "--table", "server").out
    config = next((tmp_path / "studies" / "cells").glob("*/*/config.yaml"))
    for more in (("--model.optimizer.lr", 1e-4), ("--ckpt_path", config.parent / "checkpoints/last.ckpt")):
        given = ("fit", "--config", config, "--run.root", tmp_path / "studies" / "cells")
        ended = rffl(*given, "--trainer.max_epochs", 2, *more)
        assert ended.code == 2
        assert ended.err.count("Error: Expected a folder of this run's own, but ") == 1
        assert "is that of a study's cell, which takes its newest result; give --run.root runs --run.name" in ended.err
    assert rffl(*words).code == 0
    assert rffl(*words, "--table", "server").out == table
    varied = rffl(
        "fit", "--config", config, "--run.root", tmp_path / "mine", "--run.name", "varied", "--model.optimizer.lr", 0.2
    )
    assert varied.code == 0, varied.err
    kept = yaml.safe_load((only_run(tmp_path / "mine") / "config.yaml").read_text())
    assert (kept["run"]["study"], facts.cell(kept)) == (None, None)
    assert facts.cell(yaml.safe_load(config.read_text())) is not None
    ended = rffl("test", "--config", config, "--ckpt_path", config.parent / "checkpoints")
    assert ended.code == 0, ended.err

    shutil.rmtree(tmp_path / "studies" / "cells")
    study(tmp_path, text.replace("FedAvg", "X").replace("SignSGD", "FedAvg").replace("X", "SignSGD"))
    assert rffl(*words, "--table", "server").code == 2
    assert "2 cells, 2 of them finished" in rffl(*words).out
    (one, other), (second, first) = (
        [line.split("|")[2] for line in said.splitlines() if line.startswith(("| A", "| B"))]
        for said in (table, rffl(*words, "--table", "server").out)
    )
    assert (one, other) == (first, second)
    assert one != other
    assert rffl(*words, "--table", "round", "server").err == ""

    renamed = text.replace("A: --server FedAvg", "Mean: --server SignSGD").replace(
        "B: --server SignSGD", "B: --server FedAvg"
    )
    study(tmp_path, renamed)
    assert "2 cells, 2 of them finished" in rffl(*words).out
    assert f"| Mean |{other}|" in rffl(*words, "--table", "server").out
    study(tmp_path, renamed.replace("--trainer.max_epochs 1", "--trainer.max_epochs 1 --run.figures false"))
    assert rffl(*words, "--table", "server").code == 2  # run with other words, which mean the same
    assert rffl(*words).code == 0
    assert f"| Mean |{other}|" in rffl(*words, "--table", "server").out


@pytest.mark.slow
def test_a_dry_run_measures_and_leaves_nothing(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell is listed; the time is that of rounds that were played; of many it is said what is done first."""
    monkeypatch.setattr(session, "_MANY", 2)
    ended = rffl("study", study(tmp_path), "--root", tmp_path / "studies", "--dry-run", "--rounds", 9)
    assert ended.code == 0, ended.err
    assert "server=RFFL split=POW seed=2: 9 rounds, to run\n" in ended.out
    assert "measured on 3 rounds of server=RFFL split=POW seed=2" in ended.out
    assert ended.out.startswith("small: reads the options of 3 combinations first, ")
    about = ended.out.partition("6 cells, 6 to run, about ")[2].split()
    assert float(about[0]) > 0
    stopping = "--trainer.callbacks+=EarlyStopping --trainer.callbacks.monitor accuracy/mean"
    rare = f"--trainer.max_epochs 9 --trainer.check_val_every_n_epoch 5 {stopping}"
    text = f"base: {DIGITS} {rare}\naxes: {{n: {{a: ''}}}}\n"
    ended = rffl("study", study(tmp_path, text, "rare.yaml"), "--root", tmp_path / "studies", "--dry-run")
    assert ended.code == 0, ended.err  # what a run of 3 rounds measures, nobody can watch
    monkeypatch.setattr(session.Session, "_estimate", lambda *_: (60.0, ""))
    ended = rffl("study", study(tmp_path), "--root", tmp_path / "studies", "--dry-run", "--jobs", 4)
    assert "6 cells, 6 to run, about 2 min with --jobs 4\n" in ended.out  # two one after another, not one and a half
    assert not (tmp_path / "studies").exists()


@pytest.mark.slow
def test_control_c_leaves_what_is_finished(rffl: Run, tmp_path: Path) -> None:
    """The cell that was interrupted has no result and is not called failed; the one behind it was not begun."""
    text = f"""\
base: {DIGITS} --trainer.max_epochs 1
axes:
  what:
    fine: ""
    cut: --trainer.callbacks+=tests.interruption.ControlC --trainer.callbacks.after 0
    rest: --server FedAvg
"""
    before = signal.getsignal(signal.SIGINT)
    ended = rffl("study", study(tmp_path, text, "three.yaml"), "--root", tmp_path / "studies")
    assert ended.code == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert ended.err.strip().splitlines()[-1] == "Interrupted; the same command goes on where every cell was."
    assert {row["what"] for row in rows(tmp_path / "studies" / "three" / "results.csv")} == {"fine"}
    assert len(list((tmp_path / "studies" / "cells").iterdir())) == 2


@pytest.mark.distributed
def test_a_cell_that_fails_or_is_killed_stops_no_other(rffl: Run, tmp_path: Path) -> None:
    """Two workers; the failed are listed with their sentence, and the exit code tells."""
    text = f"""\
base: {DIGITS} --trainer.max_epochs 1
axes:
  what:
    hungry: --data.examples_per_participant 1000
    killed: --trainer.callbacks+=tests.interruption.Killed
    broken: --trainer.callbacks+=tests.interruption.PowerCut --trainer.callbacks.after 0
    fine: ""
"""
    ended = rffl("study", study(tmp_path, text, "four.yaml"), "--root", tmp_path / "studies", "--jobs", 2)
    assert ended.code == 1
    failed = [line for line in ended.err.splitlines() if line.startswith("Failed: ")]
    assert len(failed) == 3
    for start in (
        "what=hungry seed=1: Expected at least 5000 training examples",
        "what=killed seed=1: Its worker ended by SIGKILL",
        "what=broken seed=1: RuntimeError: power cut",
    ):
        assert sum(line.startswith(f"Failed: {start}") for line in failed) == 1, "\n".join(failed)
    assert {row["what"] for row in rows(tmp_path / "studies" / "four" / "results.csv")} == {"fine"}


@pytest.mark.slow
@pytest.mark.distributed
def test_cells_wait_where_memory_is_short(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One at a time then, in one process; and one that was killed beside another is tried again alone."""
    started, at_work = [], play._Worker.__init__

    def counted(worker: play._Worker, *args: Any) -> None:
        started.append(worker)
        at_work(worker, *args)

    monkeypatch.setattr(play._Worker, "__init__", counted)
    text = f"base: {DIGITS} --trainer.max_epochs 1\naxes: {{n: {{a: '', b: --model.optimizer.lr 0.2}}}}\n"
    with monkeypatch.context() as patch:
        patch.setattr(play, "_available", lambda: 0)
        assert rffl("study", study(tmp_path, text, "two.yaml"), "--root", tmp_path / "short", "--jobs", 2).code == 0
    assert len(started) == 1
    for number, how in ((signal.SIGKILL, "ended"), (signal.SIGTERM, "was ended")):  # by the kernel, by a daemon first
        mark = tmp_path / number.name
        once = f"--trainer.callbacks+=tests.interruption.KilledOnce --trainer.callbacks.mark {mark}"
        once = f"{once} --trainer.callbacks.number {int(number)}"
        long = f"--trainer.max_epochs 20 --trainer.callbacks+=tests.interruption.Awaits --trainer.callbacks.file {mark}"
        text = f"base: {DIGITS}\naxes: {{n: {{killed: --trainer.max_epochs 2 {once}, long: {long}}}}}\n"
        words = (study(tmp_path, text, "killed.yaml"), "--root", tmp_path / f"{number.name} again")
        ended = rffl("study", *words, "--jobs", 2)
        assert ended.code == 0, ended.err
        assert mark.exists()
        told = f"n=killed seed=1: Its worker {how} by {number.name}; if memory is short, give fewer --jobs. It goes on"
        assert told in ended.err


@pytest.mark.slow
@pytest.mark.distributed
def test_two_studies_share_cells_and_one_goes_on_where_the_other_was_killed(rffl: Run, tmp_path: Path) -> None:
    """What another process runs is left to it; once the kernel has ended that, its last round is not lost."""
    text = f"""\
base: {DIGITS}
axes:
  length: {{long: --trainer.max_epochs 25, short: --trainer.max_epochs 1}}
"""
    first, second = study(tmp_path, text, "first.yaml"), study(tmp_path, text, "second.yaml")
    root = tmp_path / "studies"
    words = ["study", str(first), "--root", str(root), "--only", "length=long"]
    other = subprocess.Popen([sys.executable, "-m", "rffl_pl", *words], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        wait_for(root, "cells/*/*/checkpoints/last.ckpt/run.pt")
        other.send_signal(signal.SIGSTOP)  # it holds its cell, and cannot end before this study has come to it
        (held,) = (root / "cells").iterdir()

        def kill() -> None:  # when the other cell is finished, so that this study waits for the one that is held
            try:
                wait_for(root, "cells/*/*/summary.json")
            finally:
                other.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        ended = rffl("study", second, "--root", root)
        killer.join()
    finally:
        other.kill()
        other.wait()
    assert ended.code == 0, ended.err
    order = [line.split(":")[0] for line in ended.out.splitlines() if line.startswith("[")]
    assert order == ["[1/2] length=short seed=1", "[2/2] length=long seed=1"]
    assert ended.err.count("length=long seed=1: another process runs it; its result is waited for.\n") == 1
    assert "null" not in json.loads((held / "cell.json").read_text())["words"]  # it went on
    cut, resumed = sorted(held.glob("*/metrics.csv"))
    assert 0 < len(rows(cut)) < 25
    assert [int(float(row["round"])) for row in rows(resumed)] == list(range(1, 26))


@pytest.mark.slow
@pytest.mark.distributed
def test_ctrl_c_while_everything_is_imported(tmp_path: Path) -> None:
    """The server of the workers prints a traceback of its own."""
    command = [sys.executable, "-m", "rffl_pl", "study", "digits", "--root", str(tmp_path), "--jobs", "2"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what is ignored here would be ignored there
    started = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    signal.signal(signal.SIGINT, before)
    try:
        until = time.monotonic() + 60
        while not (server := forkservers(started.pid)):
            assert time.monotonic() < until
            time.sleep(0.01)
        while b"libtorch" not in Path(f"/proc/{server[0]}/maps").read_bytes():  # in the middle of its first import
            assert time.monotonic() < until
            time.sleep(0.01)
        os.killpg(started.pid, signal.SIGINT)
        _, err = started.communicate(timeout=90)
        assert (started.returncode, err.strip()) == (130, "Error: Interrupted.")
    finally:
        if group_lives(started.pid):
            os.killpg(started.pid, signal.SIGKILL)


def forkservers(parent: int) -> list[str]:
    """The numbers of a process's children that fork workers."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [child for child in children if b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_study_that_ends_takes_its_workers_with_it(tmp_path: Path, how: signal.Signals) -> None:
    """Workers go on without their study and hold its cells, or it does not say that it can be resumed."""
    text = f"base: {DIGITS} --trainer.max_epochs 10000\naxes:\n  server: {{RFFL: '', FedAvg: --server FedAvg}}\n"
    root = tmp_path / "studies"
    words = ["study", str(study(tmp_path, text, "long.yaml")), "--root", str(root), "--jobs", "2"]
    command = [sys.executable, "-m", "rffl_pl", *words]
    started = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_for(root, "cells/*/*/checkpoints/last.ckpt/run.pt")
        started.send_signal(how)
        if how == signal.SIGTERM:
            _, err = started.communicate(timeout=90)
            assert started.returncode == 130
            assert "Interrupted; the same command goes on where every cell was." in err
        started.wait(90)
        until = time.monotonic() + 60
        while group_lives(started.pid):
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        if group_lives(started.pid):
            os.killpg(started.pid, signal.SIGKILL)


def wait_for(folder: Path, pattern: str, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not list(folder.glob(pattern)):
        assert time.monotonic() < until, pattern
        time.sleep(0.05)
