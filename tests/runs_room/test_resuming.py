"""A run that goes on from a checkpoint has a complete record, and says what it does otherwise."""

from __future__ import annotations

import csv
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rffl_pl.runs import RunFolder
from rffl_pl.runs.checkpoint import header
from tests.conftest import QUICK, Ended
from tests.datamodules.tables import patients, write
from tests.runs import kept_in

Run = Callable[..., Ended]
DIGITS = ("fit", "--config", "configs/digits.yaml", *QUICK)


def run_of(tmp_path: Path, name: str) -> RunFolder:
    """The run of that name."""
    (folder,) = (tmp_path / "runs" / name).iterdir()
    return RunFolder.open(folder)


@pytest.fixture
def half(rffl: Run, tmp_path: Path) -> RunFolder:
    """A run of two rounds."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 2, "--run.name", "half")
    assert ended.code == 0, ended.err
    return run_of(tmp_path, "half")


def resume(half: RunFolder, *args: object) -> tuple[object, ...]:
    """The command that goes on."""
    given = ("--config", half.config_file, "--ckpt_path", half.newest_checkpoint(), "--run.name", "resumed")
    return ("fit", *given, "--trainer.max_epochs", 4, *args)


def test_a_resumed_run_has_all_rounds(rffl: Run, half: RunFolder, tmp_path: Path) -> None:
    """Its metrics and history are those of a run without a break; nothing is warned of."""
    assert rffl(*DIGITS, "--trainer.max_epochs", 4, "--run.name", "whole").code == 0
    ended = rffl(*resume(half))
    assert ended.code == 0, ended.err
    assert "Warning" not in ended.err
    whole, resumed = run_of(tmp_path, "whole"), run_of(tmp_path, "resumed")
    assert resumed.metrics_file.read_text() == whole.metrics_file.read_text()
    histories = [kept_in(run.checkpoints / "last.ckpt")["server"]["history"] for run in (whole, resumed)]
    assert repr(histories[0]) == repr(histories[1])
    assert [entry.number for entry in resumed.rounds()] == [1, 2, 3, 4]


def test_settings_that_change_are_named_in_one_sentence(rffl: Run, half: RunFolder) -> None:
    """Old and new value of each, by the options that they were typed as."""
    ended = rffl(
        *resume(half), "--model.optimizer.init_args.lr", 0.05, "--data.batch_size", 8, "--server.gamma", 0.3,
        "--model.local_epochs", 1, "--model.lr_decay", 0.9, "--trainer.precision", "bf16-mixed", "--data.watch", "test",
        "--adversaries", "[{'class_path': 'LabelFlip', 'init_args': {'source': 1, 'target': 7}}]",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    (sentence,) = (line for line in ended.err.splitlines() if "other settings" in line)
    told, _, reference = sentence.partition("the checkpoint's: ")[2].partition("; ")
    assert reference == "a standalone reference has the new ones from its first round on."
    assert set(told.split(", ")) == {
        "--model.optimizer.lr 0.1 -> 0.05", "--data.batch_size 16 -> 8", "--server.gamma 0.5 -> 0.3",
        "--model.local_epochs 3 -> 1", "--model.lr_decay 0.977 -> 0.9", "--trainer.precision 32-true -> bf16-mixed",
        "--data.watch validation -> test", "--adversaries.0 FreeRider -> LabelFlip",
    }  # fmt: skip


def test_files_that_were_moved(rffl: Run, tmp_path: Path) -> None:
    """They hold what they held, which is compared: training alone goes by no other settings."""
    (tmp_path / "old").mkdir()
    write(tmp_path / "old" / "a.csv", patients(40))
    words = ("--data", "TableFile", "--data.label", "outcome", "--data.categories", "clinic", "--model.network",
        "Perceptron", "--model.network.inputs", 10, "--model.network.classes", 2, "--model.optimizer", "SGD",
        "--model.optimizer.lr", 0.1, "--federation.participants", 2, *QUICK)  # fmt: skip
    file = tmp_path / "old" / "a.csv"
    ended = rffl("fit", *words, "--data.train_file", file, "--trainer.max_epochs", 1, "--run.name", "half")
    assert ended.code == 0, ended.err
    (tmp_path / "old").rename(tmp_path / "new")
    moved = ("--data.train_file", tmp_path / "new" / "a.csv", "--data.batch_size", 8)
    ended = rffl(*resume(run_of(tmp_path, "half"), *moved))
    assert ended.code == 0, ended.err
    assert "Going on with other settings than the checkpoint's: --data.batch_size 32 -> 8; a standalone" in ended.err


def test_another_torch_is_named(rffl: Run, half: RunFolder) -> None:
    """Whoever goes on with another release hears of it, and goes on."""
    part = half.checkpoints / "last.ckpt" / "server.pt"
    content = torch.load(part, weights_only=True)
    content["settings"]["torch"] = "2.6.0"
    torch.save(content, part)
    ended = rffl(*resume(half))
    assert ended.code == 0, ended.err
    assert f"other settings than the checkpoint's: torch 2.6.0 -> {torch.__version__};" in ended.err


@pytest.mark.parametrize("command", ["test", "validate"])
def test_evaluation_leaves_its_scores(rffl: Run, half: RunFolder, tmp_path: Path, command: str) -> None:
    """A file with the checkpoint, its round and every participant's scores; the adversary's too."""
    checkpoint = half.checkpoints / "last.ckpt"
    ended = rffl(command, "--config", half.config_file, "--ckpt_path", checkpoint, "--run.name", "scored")
    assert ended.code == 0, ended.err
    scores = run_of(tmp_path, "scored").scores()
    assert scores["command"] == command
    assert Path(scores["checkpoint"]) == checkpoint.resolve()
    assert scores["round"] == 2
    assert {name: len(values) for name, values in scores["scores"].items()} == {"accuracy": 6, "loss": 6}
    if command == "test":
        assert scores["scores"]["accuracy"] == pytest.approx(half.summary().final)


def test_a_measure_that_appears_late(rffl: Run, tmp_path: Path) -> None:
    """A server's own diagnostic has its columns from the first round on; a resumed run has them too."""
    args = (*DIGITS, "--server", "tests.diagnostics.Diagnosed", "--run.name", "own")
    ended = rffl(*args, "--trainer.max_epochs", 3)
    assert ended.code == 0, ended.err
    own = run_of(tmp_path, "own")
    with own.metrics_file.open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["length/participant_3"] == ""
    assert all(float(row["length/participant_3"]) > 0 for row in rows[1:])
    history = kept_in(own.checkpoints / "last.ckpt")["server"]["history"]
    assert [entry["measures"]["length"][3] for entry in history[1:]] == pytest.approx(
        [float(row["length/participant_3"]) for row in rows[1:]]
    )
    assert float(rows[2]["length/mean"]) == pytest.approx(sum(history[2]["measures"]["length"][:5]) / 5)
    assert rffl(*args, "--ckpt_path", own.checkpoints / "last.ckpt", "--trainer.max_epochs", 4).code == 0
    (resumed,) = (RunFolder(path) for path in own.path.parent.iterdir() if path != own.path)
    assert [entry.measures["length"][3] for entry in resumed.rounds()][1:3] == pytest.approx(
        [float(row["length/participant_3"]) for row in rows[1:]]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "kept"), [(4, 3), (5, 3)])
def test_a_checkpoint_every_three_rounds(rffl: Run, tmp_path: Path, rounds: int, kept: int) -> None:
    """And after the last one; whoever interrupts is told from which round it goes on."""
    every = ("--run.checkpoint_every", 3, "--run.name", "sparse")
    with pytest.raises(RuntimeError, match="power cut"):
        rffl(*DIGITS, *every, "--trainer.callbacks+=tests.interruption.PowerCut", "--trainer.callbacks.after", rounds)
    cut = run_of(tmp_path, "sparse")
    checkpoint = cut.newest_checkpoint()
    assert checkpoint is not None
    assert header(checkpoint)["round"] == kept
    ended = rffl("fit", "--config", cut.config_file, "--ckpt_path", checkpoint, "--trainer.callbacks", "[]",
        "--trainer.max_epochs", rounds, "--run.name", "ended")  # fmt: skip
    assert ended.code == 0, ended.err
    assert header(run_of(tmp_path, "ended").checkpoints / "last.ckpt")["round"] == rounds
    assert "Warning" not in ended.err
    assert len(run_of(tmp_path, "ended").rounds()) == rounds


def test_an_interruption_between_two_checkpoints(rffl: Run) -> None:
    """Ctrl-C says which round it goes on from."""
    before = signal.getsignal(signal.SIGINT)
    try:
        ended = rffl(
            *DIGITS, "--run.checkpoint_every", 2, "--trainer.callbacks+=tests.interruption.ControlC",
            "--trainer.callbacks.after", 3,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it from the first one on
    assert "Interrupted after round 3; go on from round 2 with: rffl fit --config" in ended.err


def test_a_run_without_end_keeps_its_progress_bar(rffl: Run) -> None:
    """With ``max_epochs -1`` every round counts up, until somebody ends it."""
    ended = rffl(
        *DIGITS, "--trainer.enable_progress_bar", "true", "--trainer.max_epochs", -1,
        "--trainer.callbacks+=tests.interruption.Signalled",
    )  # fmt: skip
    assert ended.code == 143, ended.err
    assert "3round" in ended.err


def test_steps_alone_are_rounds_too(rffl: Run, tmp_path: Path) -> None:
    """Without a limit of epochs they end the run, and the bar says how many there are."""
    ended = rffl(
        *DIGITS, "--trainer.enable_progress_bar", "true", "--trainer.max_epochs", -1, "--trainer.max_steps", 3,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "3/3" in ended.err
    assert json.loads((next((tmp_path / "runs").glob("*/*")) / "summary.json").read_text())["rounds"] == 3


def test_no_checkpoint_at_all_is_another_option(rffl: Run) -> None:
    """A cadence below one round is a sentence that names it."""
    ended = rffl(*DIGITS, "--run.checkpoint_every", 0)
    assert ended.code == 2
    assert "Expected --run.checkpoint_every to be at least 1, but got 0" in ended.err
    assert "--trainer.enable_checkpointing false" in ended.err
