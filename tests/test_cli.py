"""The command line in one process: what a run leaves, resuming, prediction, and every mistake of a user."""

from __future__ import annotations

import csv
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from rffl_pl.models import Perceptron
from rffl_pl.runs.checkpoint import read
from tests.conftest import QUICK, Ended, only_run

Run = Callable[..., Ended]
DIGITS = ("fit", "--config", "configs/digits.yaml", *QUICK)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def weights(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {path.name: torch.load(path, weights_only=True) for path in sorted((folder / "weights").iterdir())}


def assert_same_bits(a: Path, b: Path) -> None:
    assert weights(a).keys() == weights(b).keys()
    for name, state in weights(a).items():
        for key, value in state.items():
            assert torch.equal(value, weights(b)[name][key]), (name, key)


def test_a_run_leaves_a_complete_folder(rffl: Run, tmp_path: Path) -> None:
    """The demo's folder has everything README names, and its numbers agree with each other."""
    ended = rffl("fit", "--config", "configs/digits.yaml", "--trainer.max_epochs", 13)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    names = {"config.yaml", "metrics.csv", "summary.json", "reputation.png", "accuracy.png", "fairness.png"}
    assert names <= {path.name for path in folder.iterdir()}
    assert (folder / "checkpoints" / "last.ckpt" / "run.pt").is_file()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["removed_in_round"] == [None] * 5 + [11]
    assert summary["fairness"] > 0.9
    assert summary["mean"] == pytest.approx(sum(summary["final"][:5]) / 5)
    assert f"fairness {summary['fairness']:.3f}" in ended.out
    assert "wandb sync" in ended.out
    metrics = rows(folder / "metrics.csv")
    assert [int(float(row["round"])) for row in metrics] == list(range(1, 14))
    assert [row["step"] for row in metrics] == [str(i) for i in range(1, 14)]
    for row in metrics:
        down = [float(row[f"bytes_down/participant_{i}"]) for i in range(6)]
        assert sum(down) == float(row["bytes_down/total"])
        removed = int(row["step"]) >= 11
        assert (down[5] == 0) == removed
        assert [float(row[f"member/participant_{i}"]) for i in range(6)] == [1] * 5 + [not removed]
        if int(row["step"]) > 11:
            assert float(row["bytes_up/participant_5"]) == 0
            assert float(row["reputation/participant_5"]) == 0
    assert yaml.safe_load((folder / "config.yaml").read_text())["federation"]["participants"] == 5


def test_exported_weights_load_into_the_bare_network(rffl: Run, tmp_path: Path) -> None:
    """A finished run's weights are plain state_dicts that give the reported accuracy without this package."""
    assert rffl(*DIGITS, "--trainer.max_epochs", 3).code == 0
    folder = only_run(tmp_path / "runs")
    from sklearn.datasets import load_digits

    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x, test = x.float(), torch.arange(len(y)) % 5 == 4
    x = (x - x[~test].mean()) / x[~test].std()
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
    final = json.loads((folder / "summary.json").read_text())["final"]
    for i, accuracy in enumerate(final):
        network.load_state_dict(torch.load(folder / "weights" / f"participant_{i}.pt", weights_only=True))
        assert (network(x[test]).argmax(1) == y[test]).float().mean().item() == pytest.approx(accuracy)


def test_resume_continues_to_the_same_bits(rffl: Run, tmp_path: Path) -> None:
    """Seven rounds, then on to 13, equal 13 at once: weights, reputations, optimizer state and removal."""
    adam = ("--model.optimizer", "Adam", "--model.optimizer.lr", 0.003)
    assert rffl(*DIGITS, *adam, "--trainer.max_epochs", 13, "--run.name", "whole").code == 0
    assert rffl(*DIGITS, *adam, "--trainer.max_epochs", 7, "--run.name", "half").code == 0
    first = next((tmp_path / "runs" / "half").iterdir())
    again = rffl(
        "fit", "--config", first / "config.yaml", "--ckpt_path", first / "checkpoints" / "last.ckpt",
        "--trainer.max_epochs", 13, "--run.name", "resumed",
    )  # fmt: skip
    assert again.code == 0, again.err
    whole, resumed = (next((tmp_path / "runs" / name).iterdir()) for name in ("whole", "resumed"))
    assert_same_bits(whole, resumed)
    a, b = (json.loads((folder / "summary.json").read_text()) for folder in (whole, resumed))
    assert a == b


def test_an_interrupted_run_goes_on_to_the_same_bits(rffl: Run, tmp_path: Path) -> None:
    """Every round leaves a checkpoint: after a power cut in the third, two are not lost, and there is one file."""
    assert rffl(*DIGITS, *QUICK, "--trainer.max_epochs", 4, "--run.name", "whole").code == 0
    with pytest.raises(RuntimeError, match="power cut"):
        rffl(*DIGITS, *QUICK, "--trainer.callbacks+=tests.interruption.PowerCut", "--run.name", "cut")
    (cut,) = (tmp_path / "runs" / "cut").iterdir()
    assert [path.name for path in (cut / "checkpoints").iterdir()] == ["last.ckpt"]
    checkpoint = cut / "checkpoints" / "last.ckpt"
    assert read(checkpoint)["federation"]["round"] == 2
    resume = ("--ckpt_path", checkpoint, "--trainer.max_epochs", 4, "--run.name", "resumed")
    assert rffl(*DIGITS, *QUICK, *resume).code == 0
    assert checkpoint.is_dir()
    whole, resumed = (next((tmp_path / "runs" / name).iterdir()) for name in ("whole", "resumed"))
    assert_same_bits(whole, resumed)


@pytest.mark.parametrize("checkpointing", [True, False])
def test_an_interrupted_run_says_how_to_go_on(rffl: Run, tmp_path: Path, checkpointing: bool) -> None:
    """After Ctrl-C the options it names go on from the last whole round; without a checkpoint it says so."""
    kept = () if checkpointing else ("--trainer.enable_checkpointing", "false")
    before = signal.getsignal(signal.SIGINT)
    try:
        ended = rffl(*DIGITS, *QUICK, *kept, "--trainer.callbacks+=tests.interruption.ControlC", "--run.name", "cut")
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it from the first one on
    assert ended.code == 1
    assert "Traceback" not in ended.err
    (sentence,) = (line for line in ended.err.splitlines() if line.startswith("Interrupted"))
    if not checkpointing:
        assert sentence == "Interrupted after round 2; there is no checkpoint to go on from"
        return
    start, _, options = sentence.partition("; go on with: ")
    assert start == "Interrupted after round 2"
    try:  # resumed and interrupted before a checkpoint of its own, it names the one that it came from
        ended = rffl("fit", *options.split(), "--run.name", "twice")
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.err.count(f"Interrupted after round 2; go on with: --config {tmp_path / 'runs' / 'twice'}") == 1
    assert options.split()[-1] in ended.err
    again = rffl("fit", *options.split(), "--trainer.callbacks", "[]", "--trainer.max_epochs", 3, "--run.name", "more")
    assert again.code == 0, again.err
    assert "Warning" not in again.err
    assert len(rows(next((tmp_path / "runs" / "more").glob("*/metrics.csv")))) == 3


def test_callbacks_watch_the_mean_accuracy(rffl: Run, tmp_path: Path) -> None:
    """Lightning's own callbacks keep the best round and stop without progress, by the accuracy that is logged."""
    watching = ("--trainer.callbacks.monitor", "accuracy/mean", "--trainer.callbacks.mode", "max")
    ended = rffl(
        *DIGITS, *QUICK, "--trainer.max_epochs", 30, "--trainer.callbacks+=ModelCheckpoint", *watching,
        "--trainer.callbacks+=EarlyStopping", *watching, "--trainer.callbacks.patience", 2,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    (kept,) = (folder / "checkpoints").iterdir()
    rows = csv.DictReader((folder / "metrics.csv").open())
    accuracies = [float(row["accuracy/mean"]) for row in rows]
    best = accuracies.index(max(accuracies)) + 1
    assert read(kept)["federation"]["round"] == best
    assert len(accuracies) == best + 2 < 30


@pytest.mark.parametrize("callback", ["EarlyStopping", "ModelCheckpoint"])
def test_a_metric_that_nobody_logs_is_one_sentence(rffl: Run, callback: str) -> None:
    """With its name, and the one that there is."""
    watching = (f"--trainer.callbacks+={callback}", "--trainer.callbacks.monitor", "val_acc")
    ended = rffl(*DIGITS, *QUICK, *watching, "--trainer.max_epochs", 2)
    assert ended.code == 2
    (sentence,) = (line for line in ended.err.splitlines() if line.startswith("Error: "))
    assert "val_acc" in sentence
    assert "accuracy/mean" in sentence


def test_a_server_with_history_resumes_to_the_same_bits(rffl: Run, tmp_path: Path) -> None:
    """FoolsGold remembers every participant's past uploads over an interruption."""
    args = (*DIGITS, "--config", "configs/servers/foolsgold.yaml")
    assert rffl(*args, "--trainer.max_epochs", 4, "--run.name", "whole").code == 0
    assert rffl(*args, "--trainer.max_epochs", 2, "--run.name", "half").code == 0
    (half,) = (tmp_path / "runs" / "half").iterdir()
    resume = ("--ckpt_path", half / "checkpoints" / "last.ckpt", "--trainer.max_epochs", 4, "--run.name", "resumed")
    assert rffl(*args, *resume).code == 0
    whole, resumed = (next((tmp_path / "runs" / name).iterdir()) for name in ("whole", "resumed"))
    assert_same_bits(whole, resumed)


def test_identical_runs_share_one_standalone_reference(rffl: Run, tmp_path: Path) -> None:
    """The reference is trained once and read afterwards; another seed trains its own."""
    cache = tmp_path / "standalone"
    args = ("fit", "--config", "configs/digits.yaml", *QUICK, "--standalone.enabled", "true", "--trainer.max_epochs", 2)
    for seed, files in ((1, 1), (1, 1), (2, 2)):
        assert rffl(*args, "--standalone.cache_dir", cache, "--seed_everything", seed).code == 0
        assert len(list(cache.iterdir())) == files


def test_the_standalone_reference_is_the_standalone_server(rffl: Run, tmp_path: Path) -> None:
    """The cached reference and a run of `Standalone` reach the same accuracies."""
    assert rffl(*DIGITS, "--standalone.enabled", "true", "--server", "Standalone", "--trainer.max_epochs", 3).code == 0
    summary = json.loads((only_run(tmp_path / "runs") / "summary.json").read_text())
    assert summary["standalone"][:5] == pytest.approx(summary["final"][:5])
    assert summary["reputation"] == [None] * 6


def test_validate_test_and_predict_from_a_checkpoint(rffl: Run, tmp_path: Path) -> None:
    """Every participant's own model answers: accuracies as reported, probabilities that sum to one."""
    assert rffl(*DIGITS, "--trainer.max_epochs", 3).code == 0
    folder = only_run(tmp_path / "runs")
    given = ("--config", folder / "config.yaml", "--ckpt_path", folder / "checkpoints" / "last.ckpt")
    final = json.loads((folder / "summary.json").read_text())["final"]
    tested = rffl("test", *given)
    assert tested.code == 0, tested.err
    for i in range(5):
        assert f"{i}  {final[i]:>8.1%}" in tested.out
    assert "mean" in rffl("validate", *given).out
    assert rffl("predict", *given).code == 0
    (predictions,) = (tmp_path / "runs").glob("*/*-predict/predictions")
    assert len(list(predictions.iterdir())) == 6
    table = rows(predictions / "participant_4.csv")
    assert len(table) == 359
    for row in table:
        p = [float(row[f"p_{c}"]) for c in range(10)]
        assert sum(p) == pytest.approx(1, abs=1e-4)
        assert p.index(max(p)) == int(row["class"])


def test_a_loss_that_is_not_finite_is_named_and_the_run_goes_on(rffl: Run, tmp_path: Path) -> None:
    """Diverged participants are named with their round; their uploads count for nothing."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 2, "--model.optimizer.init_args.lr", 1e38)
    assert ended.code == 0
    assert "Round 1: participant 0's training loss is not finite" in ended.err
    metrics = rows(only_run(tmp_path / "runs") / "metrics.csv")
    assert float(metrics[0]["weight/participant_0"]) == 0
    assert all(float(row["accuracy/mean"]) > 0 for row in metrics)


def test_standalone_names_a_loss_that_is_not_finite(rffl: Run) -> None:
    """Also where nobody communicates."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 1, "--model.optimizer.init_args.lr", 1e38, "--server", "Standalone")
    assert "Round 1: participant 3's training loss is not finite" in ended.err


MISTAKES = {
    "unknown option": (("--federation.participantz", 3), "--federation.participantz"),
    "unknown key of a server": (("--server.presett", "paper"), "presett"),
    "unknown server": (("--server", "Nope"), "Nope"),
    "unknown attack": (("--adversaries", '[{"class_path": "Nope"}]'), "Nope"),
    "unknown network": (("--model.network", "Nope"), "Nope"),
    "wrong network for the data": (("--model.network", "MNISTCNN"), "--model.network MNISTCNN to take inputs"),
    "unknown split": (("--data.split", "XYZ"), "--data.split to be one of UNI, POW, CLA, DIR"),
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


@pytest.fixture
def trained(rffl: Run, tmp_path: Path) -> Path:
    """The folder of a finished run of two rounds."""
    assert rffl(*DIGITS, "--trainer.max_epochs", 2).code == 0
    return only_run(tmp_path / "runs")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--model.network.init_args.hidden", 32), "model: 1.weight is 64x64 there and 32x64 here"),
        (("--federation.participants", 4), "federation: participants is 5 there and 4 here"),
        (("--data.split", "UNI"), "data: split is POW there and UNI here"),
        (("--seed_everything", 9), "federation: seed is 1 there and 9 here"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    rffl: Run, trained: Path, args: tuple[object, ...], expected: str
) -> None:
    """The sentence says what differs."""
    given = ("--config", trained / "config.yaml", "--ckpt_path", trained / "checkpoints" / "last.ckpt")
    for command in ("fit", "test"):
        ended = rffl(command, *given, *args)
        assert ended.code == 2
        assert expected in ended.err


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--server", "Standalone"), "--server to be the checkpoint's, RFFL, but got Standalone"),
        (("--model.optimizer", "Adam"), "training: optimizer is SGD there and Adam here"),
        (("--model.optimizer.init_args.momentum", 0.9), "training: momentum is 0.0 there and 0.9 here"),
    ],
)
def test_training_goes_on_only_as_it_began(rffl: Run, trained: Path, args: tuple[object, ...], expected: str) -> None:
    """Another server or optimizer cannot take over; for evaluation neither matters."""
    given = ("--config", trained / "config.yaml", "--ckpt_path", trained / "checkpoints" / "last.ckpt", *args)
    ended = rffl("fit", *given)
    assert ended.code == 2
    assert expected in ended.err
    assert rffl("test", *given).code == 0


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_evaluation_needs_a_checkpoint(rffl: Run, command: str) -> None:
    """Nobody wants the accuracy of untrained weights."""
    ended = rffl(command, "--config", "configs/digits.yaml")
    assert ended.code == 2
    assert "--ckpt_path" in ended.err


def test_a_run_that_lost_its_end_gets_it_when_resumed(rffl: Run, trained: Path, tmp_path: Path) -> None:
    """Interrupted after the last round: resuming trains no round and leaves weights, table and figures."""
    given = ("--config", trained / "config.yaml", "--ckpt_path", trained / "checkpoints" / "last.ckpt")
    ended = rffl("fit", *given, "--run.name", "again", "--standalone.enabled", "true", "--run.figures", "true")
    assert ended.code == 0, ended.err
    assert "fairness" in ended.out
    (again,) = (tmp_path / "runs" / "again").iterdir()
    assert (again / "fairness.png").is_file()
    assert_same_bits(trained, again)


def test_predictions_of_a_dataset_that_is_not_in_memory(rffl: Run, tmp_path: Path) -> None:
    """Any map-style dataset trains, is tested and predicted, by worker processes too."""
    args = ("--data", "tests.own_data.OneByOne", "--model.network", "Perceptron", "--model.network.inputs", 2)
    args += ("--model.network.classes", 2, "--federation.participants", 2, "--data.num_workers", 1)
    assert rffl("fit", *args, *QUICK, "--trainer.max_epochs", 1).code == 0
    folder = only_run(tmp_path / "runs")
    given = ("--config", folder / "config.yaml", "--ckpt_path", folder / "checkpoints" / "last.ckpt")
    assert rffl("predict", *given).code == 0
    (predictions,) = (tmp_path / "runs").glob("*/*-predict/predictions")
    assert len(rows(predictions / "participant_1.csv")) == 20


def test_a_damaged_checkpoint_is_refused(rffl: Run, trained: Path, tmp_path: Path) -> None:
    """Truncated, no checkpoint at all, or one of something else: each says so."""
    whole = (trained / "checkpoints" / "last.ckpt" / "run.pt").read_bytes()
    damaged = tmp_path / "damaged.ckpt"
    for content in (whole[: len(whole) // 2], b"", b"not a checkpoint"):
        damaged.write_bytes(content)
        ended = rffl("test", "--config", trained / "config.yaml", "--ckpt_path", damaged)
        assert ended.code == 2
        assert "truncated, damaged or no checkpoint" in ended.err
    torch.save(Perceptron().state_dict(), damaged)
    ended = rffl("test", "--config", trained / "config.yaml", "--ckpt_path", damaged)
    assert ended.code == 2
    assert "checkpoint of rffl_pl" in ended.err


def test_checkpoints_hold_nothing_but_tensors_and_plain_values(trained: Path) -> None:
    """`torch.load` with ``weights_only=True`` reads every checkpoint."""
    files = {
        path.name: torch.load(path, weights_only=True) for path in (trained / "checkpoints" / "last.ckpt").iterdir()
    }
    assert sorted(files) == [*(f"participant_{i}.pt" for i in range(6)), "run.pt", "server.pt"]
    checkpoint = read(trained / "checkpoints" / "last.ckpt")
    assert checkpoint["federation"]["round"] == checkpoint["global_step"] == 2
    assert sorted(checkpoint["federation"]["participants"]) == list(range(6))
