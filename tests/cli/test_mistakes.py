"""Every mistake of a user is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.folders import DIGITS, Run
from tests.conftest import QUICK

MISTAKES = {
    "unknown option": (
        ("--federation.participantz", 3),
        "--federation.participantz 3; did you mean --federation.participants",
    ),
    "unknown key of a server": (("--server.presett", "paper"), "Option 'presett' is not accepted; did you mean preset"),
    "unknown server": (("--server", "Nope"), "Nope"),
    "unknown attack": (("--adversaries", '[{"class_path": "Nope"}]'), "Nope"),
    "unknown network": (("--model.network", "Nope"), "Nope"),
    "wrong network for the data": (("--model.network", "MNISTCNN"), "--model.network MNISTCNN to take inputs"),
    "unknown split": (("--data.split", "XYZ"), "--data.split to be one of UNI, POW, CLA, DIR"),
    "none of the choices": (
        ("--data.watch", "tests"),
        "Expected --data.watch to be one of validation, test, but got tests; did you mean test?",
    ),
    "an option that a class needs": (
        ("--data", "TextFile"),
        "Expected --data.train_file, which TextFile needs, but got none; see `rffl fit --data.help TextFile`.",
    ),
    "no participants": (("--federation.participants", 0), "--federation.participants to be at least 1, but got 0"),
    "negative adversaries": (("--federation.adversaries", -1), "--federation.adversaries to be 0 or more, but got -1"),
    "adversaries without attack": (("--adversaries", "[]"), "--adversaries to say what the 1 adversaries do"),
    "gamma": (("--server.gamma", -1), "--server.gamma to be positive, but got -1"),
    "removal_from": (("--server.removal_from", -2), "--server.removal_from to be a round from 0 on or never"),
    "batch size": (("--data.batch_size", 0), "--data.batch_size to be at least 1, but got 0"),
    "local epochs": (("--model.local_epochs", 0), "--model.local_epochs to be at least 1, but got 0"),
    "learning rate": (("--model.optimizer.init_args.lr", -1), "Invalid learning rate: -1"),
    "network does not take the inputs": (("--model.network.init_args.inputs", 63), "inputs of shape [64, 1, 8, 8]"),
    "network has too few outputs": (("--model.network.init_args.classes", 7), "logits of shape [64, 10]"),
    "CLA with too many": (
        ("--data.split", "CLA", "--data.split.draw", "disjoint", "--federation.participants", 40),
        "examples of class 0 for split CLA",
    ),
    "nothing left": (
        ("--data.examples_per_participant", 1, "--federation.participants", 9),
        "leaves participant 7 of 9 without any",
    ),
    "too little data": (("--data.examples_per_participant", 1000), "at least 5000 training examples"),
    "what Lightning refuses": (("--trainer.gradient_clip_val", 1), "gradient clipping is not supported"),
    "precision": (
        ("--trainer.precision", "64-true"),
        "--trainer.precision to be 32-true or bf16-mixed, but got 64-true",
    ),
    "options that exclude each other": (("--trainer.barebones", "true"), "options that Lightning's Trainer takes"),
    "optimizer with closure": (("--model.optimizer", "LBFGS"), "step without a closure, but got LBFGS"),
    "devices": (("--trainer.devices", 2), "ranks come from torchrun"),
    "no such checkpoint": (("--ckpt_path", "nowhere.ckpt"), "nowhere.ckpt, but there is no such file"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(rffl: Run, mistake: str, tmp_path: Path) -> None:
    """Exit code 2 and one line that names the option or class; no traceback, no run folder."""
    args, expected = MISTAKES[mistake]
    ended = rffl(*DIGITS, "--trainer.max_epochs", 1, *args)
    assert ended.code == 2
    errors = [line for line in ended.err.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert expected in errors[0]
    assert "Traceback" not in ended.err
    assert not list((tmp_path / "runs").glob("*/*/weights"))


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), "subcommand"),
        (("fit",), "required"),
        (("fit", "--config", "configs/nowhere.yaml"), "configs/nowhere.yaml"),
        (("fit", "--data.split", "CLA", "--config", "configs/digits.yaml"), "--config before"),
    ],
)
def test_a_command_that_says_too_little_is_one_sentence(rffl: Run, args: tuple[str, ...], expected: str) -> None:
    """Also before anything is configured."""
    ended = rffl(*args)
    assert ended.code == 2
    assert expected in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("callback", ["EarlyStopping", "ModelCheckpoint"])
def test_a_metric_that_nobody_logs_is_one_sentence(rffl: Run, callback: str) -> None:
    """With its name, and the one that there is."""
    watching = (f"--trainer.callbacks+={callback}", "--trainer.callbacks.monitor", "val_acc")
    ended = rffl(*DIGITS, *QUICK, *watching, "--trainer.max_epochs", 2)
    assert ended.code == 2
    (sentence,) = (line for line in ended.err.splitlines() if line.startswith("Error: "))
    assert "val_acc" in sentence
    assert "accuracy/mean" in sentence


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_evaluation_needs_a_checkpoint(rffl: Run, command: str) -> None:
    """Nobody wants the accuracy of untrained weights."""
    ended = rffl(command, "--config", "configs/digits.yaml")
    assert ended.code == 2
    assert "--ckpt_path" in ended.err
