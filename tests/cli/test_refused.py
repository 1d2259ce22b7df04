"""A run that is not gone on with: every byte of its folder stays, until nothing is refused any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rffl_pl.cli import compare, dashboard, paper, study
from rffl_pl.runs import RunFolder
from tests.cli.folders import DIGITS, Run, rows
from tests.conftest import ROOT, only_run


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "interrupted"])
def test_a_refusal_leaves_the_run_as_it_was(rffl: Run, tmp_path: Path, finished: bool) -> None:
    """Whoever is refused for the server, the network, the participants or the rounds has changed nothing."""
    args = (*DIGITS, "--run.name", "run", "--trainer.max_epochs")
    if finished:
        assert rffl(*args, 2).code == 0
    else:
        with pytest.raises(RuntimeError, match="power cut"):
            rffl(*args, 4, "--trainer.callbacks+=tests.interruption.PowerCut")
    run = only_run(tmp_path / "runs")
    before = contents(run)
    for others in (
        (4, "--server", "FedAvg"),
        (4, "--model.network.init_args.hidden", 32),
        (4, "--federation.participants", 4),
        (1,),
    ):
        ended = rffl(*args, *others, "--ckpt_path", "last")
        assert ended.code == 2, ended.err
        assert ended.err.startswith("Error: Expected"), ended.err
        assert contents(run) == before, others
    assert [entry.number for entry in RunFolder(run).rounds()] == [1, 2]
    assert rffl(*args, 3, "--ckpt_path", "last").code == 0
    assert [row["round"] for row in rows(run / "metrics.csv")] == ["1", "2", "3"]
    assert len(RunFolder(run).launches()) == 2


def test_a_run_that_fails_in_its_first_round_can_be_found(
    rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its configuration and its launch's name are there: a restart begins again in its folder."""
    monkeypatch.setenv("SLURM_JOB_ID", "mine")
    with pytest.raises(RuntimeError, match="power cut"):
        rffl(*DIGITS, "--trainer.callbacks+=tests.interruption.PowerCut", "--trainer.callbacks.after", 0)
    run = RunFolder.open(only_run(tmp_path / "runs"))
    assert run.launch() == "mine"
    assert run.config()["trainer"]["max_epochs"] == 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "said"),
    [
        (("--trainer.max_epochs", 3, "--model.local_epochs", 1), "rounds, but got another --model.local_epochs"),
        pytest.param(
            ("--trainer.max_epochs", 2),
            "Expected --trainer.max_epochs of at least 3, the rounds that",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["other options", "fewer rounds"],
)
def test_a_run_that_another_process_has_finished_meanwhile(
    rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: tuple[object, ...], said: str
) -> None:
    """It is looked at again once it is nobody else's, or its rounds would pass for trained with these options."""
    words = (*DIGITS, "--ckpt_path", "last")
    assert rffl(*words, "--trainer.max_epochs", 1).code == 0
    take = RunFolder.take

    def finished_first(folder: RunFolder) -> RunFolder:
        command = [sys.executable, "-m", "rffl_pl", *map(str, words), "--trainer.max_epochs", "3"]
        subprocess.run([*command, "--run.root", tmp_path / "runs"], check=True, timeout=120, cwd=ROOT)
        return take(folder)

    monkeypatch.setattr(RunFolder, "take", finished_first)
    ended = rffl(*words, *other)
    assert (ended.code, said in ended.err) == (2, True), ended.err
    config = RunFolder(only_run(tmp_path / "runs")).config()
    assert (config["model"]["local_epochs"], config["trainer"]["max_epochs"]) == (3, 3)


def test_a_root_at_home(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell replaces what stands behind an equals sign; half of the run would lie in a folder of that name."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for rounds in (1, 2):
        ended = rffl(*DIGITS, "--run.root=~/runs", "--ckpt_path", "last", "--trainer.max_epochs", rounds)
        assert ended.code == 0, ended.err
    run = RunFolder(only_run(tmp_path / "home" / "runs"))
    assert (run.summary().rounds, len(run.rounds())) == (2, 2)
    assert [start["rounds"] for start in run.starts()] == [0, 1]
    assert rffl("test", "--config", run.config_file, f"--ckpt_path=~/runs/digits/{run.path.name}/checkpoints").code == 0
    assert not (ROOT / "~").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (compare, ["--out=~/x"]),
        (dashboard, ["--entity=me", "--out=~/x"]),
        (paper, ["all", "--out=~/x"]),
        (paper, ["all", "--results=~/x"]),
        (paper, ["all", "--root=~/x"]),
        (study, ["digits", "--out=~/x"]),
        (study, ["digits", "--root=~/x"]),
    ],
)
def test_a_file_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: ModuleType, words: list[str]) -> None:
    """Likewise of the commands that train nothing themselves."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / "x" in vars(command.parser().read(words)).values()
