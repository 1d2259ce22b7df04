"""A job that is put back and has several runs of one name: each goes on with its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rffl_pl.runs import RunFolder
from tests.cli.folders import DIGITS, Run, assert_same_bits
from tests.conftest import only_run
from tests.runs import kept_in


def test_a_restarted_job_goes_on_with_the_run_of_its_options(
    rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another learning rate or seed is another run, which may not have begun; where data lie and results go is none."""
    args = (*DIGITS, "--run.name", "run", "--trainer.max_epochs", 1)
    monkeypatch.setenv("SLURM_JOB_ID", "mine")
    assert rffl(*args).code == 0
    (first,) = (tmp_path / "runs" / "run").iterdir()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    done = "has its 1 rounds and its result: nothing is left to do"
    assert f"The run in {first} {done}" in rffl(*args, "--run.patience", 50, "--data.num_workers", 0).out
    for others in (("--model.optimizer.lr", 0.5), ("--seed_everything", 9)):
        begun = rffl(*args, *others)
        assert (begun.code, done in begun.out) == (0, False), begun.err
        assert done in rffl(*args, *others).out
    runs = [RunFolder(folder) for folder in (tmp_path / "runs" / "run").iterdir()]
    assert sorted(run.config()["seed_everything"] for run in runs) == [1, 1, 9]


def test_a_finished_run_of_which_less_was_measured(rffl: Run) -> None:
    """Measuring all is nothing that it was trained with; the size of a batch says which part of them was measured."""
    args = (*DIGITS, "--run.name", "less", "--trainer.max_epochs", 1)
    assert rffl(*args, "--trainer.limit_val_batches", 2).code == 0
    again = rffl(*args, "--ckpt_path", "last")
    assert (again.code, "nothing is left to do" in again.out) == (0, True), again.err


def test_a_launch_that_ended_before_it_wrote_begins_where_it_began(
    rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it read its data, say: no folder has its name, but there is what it was told to go on with."""
    args = (*DIGITS, "--run.name", "run", "--ckpt_path", "last", "--trainer.max_epochs")
    assert rffl(*args, 1).code == 0
    monkeypatch.setenv("SLURM_JOB_ID", "mine")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert rffl(*args, 2).code == 0
    (run,) = (tmp_path / "runs" / "run").iterdir()
    assert [entry.number for entry in RunFolder(run).rounds()] == [1, 2]


@pytest.mark.parametrize("own", [True, False])
def test_a_run_that_began_from_another_and_was_killed_at_once(rffl: Run, tmp_path: Path, own: bool) -> None:
    """It goes on in its folder from where it began, by its own configuration or as the newest: no other is touched."""
    assert rffl(*DIGITS, "--run.name", "run", "--trainer.max_epochs", 1).code == 0
    (first,) = (tmp_path / "runs" / "run").iterdir()
    args = (*DIGITS, "--trainer.max_epochs", 2, "--model.optimizer.lr", 0.2)
    began = ("--ckpt_path", first / "checkpoints" / "last.ckpt")
    assert rffl(*args, *began, "--run.name", "whole").code == 0
    cut = ("--trainer.callbacks+=tests.interruption.PowerCut", "--trainer.callbacks.after", 1)
    with pytest.raises(RuntimeError, match="power cut"):
        rffl(*args, *began, "--run.name", "run", *cut)
    (second,) = {*(tmp_path / "runs" / "run").iterdir()} - {first}
    before = (first / "summary.json").read_text()
    words = ("fit", "--config", second / "config.yaml") if own else (*args, "--run.name", "run")
    again = rffl(*words, "--trainer.callbacks", "null", "--ckpt_path", "last")
    assert (again.code, "training begins" in again.err) == (0, False), again.err
    assert {*(tmp_path / "runs" / "run").iterdir()} == {first, second}
    assert (first / "summary.json").read_text() == before
    assert_same_bits(only_run(tmp_path / "runs", "whole"), second)
    assert (second / "metrics.csv").read_text() == (only_run(tmp_path / "runs", "whole") / "metrics.csv").read_text()


@pytest.mark.slow
def test_a_seed_that_is_drawn(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run has another one, also without any; who goes on, or repeats it by its configuration, has the same."""
    args = (*DIGITS, "--seed_everything", "true", "--trainer.max_epochs")

    def seed(name: str) -> int:
        (folder,) = (tmp_path / "runs" / name).iterdir()
        drawn = RunFolder(folder).config()["seed_everything"]
        identity = kept_in(folder / "checkpoints" / "last.ckpt")["federation"]["identity"]
        assert identity["federation"]["seed"] == str(drawn)
        return int(drawn)

    assert rffl(*args, 1, "--run.name", "a").code == 0
    assert rffl(*args, 1, "--run.name", "b", "--seed_everything", "false").code == 0
    assert len({seed("a"), seed("b"), 0, 1}) == 4
    first = seed("a")
    assert rffl(*args, 2, "--run.name", "a", "--ckpt_path", "last").code == 0
    (folder,) = (tmp_path / "runs" / "a").iterdir()
    assert (seed("a"), [entry.number for entry in RunFolder(folder).rounds()]) == (first, [1, 2])
    assert rffl("fit", "--config", folder / "config.yaml", "--run.name", "again").code == 0
    (again,) = (tmp_path / "runs" / "again").iterdir()
    assert_same_bits(folder, again)
    monkeypatch.setenv("SLURM_JOB_ID", "mine")
    assert rffl(*args, 1, "--run.name", "job").code == 0
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert "nothing is left to do" in rffl(*args, 1, "--run.name", "job").out
