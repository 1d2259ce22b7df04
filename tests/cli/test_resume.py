"""Going on from a checkpoint, and which checkpoints are refused."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch import Callback

from rffl_pl.callbacks import loggers
from rffl_pl.comparison.reading import read
from rffl_pl.models import Perceptron
from rffl_pl.runs import RunFolder
from tests.cli.folders import DIGITS, Run, assert_same_bits
from tests.conftest import QUICK, only_run
from tests.runs import kept_in


def test_resume_continues_to_the_same_bits(rffl: Run, tmp_path: Path) -> None:
    """Three rounds, then on to 6, equal 6 at once: weights, reputations, optimizer state and removal."""
    options = ("--model.optimizer", "Adam", "--model.optimizer.lr", 0.003, "--server.removal_from", 4)
    assert rffl(*DIGITS, *options, "--trainer.max_epochs", 6, "--run.name", "whole").code == 0
    assert rffl(*DIGITS, *options, "--trainer.max_epochs", 3, "--run.name", "half").code == 0
    first = next((tmp_path / "runs" / "half").iterdir())
    again = rffl(
        "fit", "--config", first / "config.yaml", "--ckpt_path", first / "checkpoints" / "last.ckpt",
        "--trainer.max_epochs", 6, "--run.name", "resumed",
    )  # fmt: skip
    assert again.code == 0, again.err
    whole, resumed = (next((tmp_path / "runs" / name).iterdir()) for name in ("whole", "resumed"))
    assert_same_bits(whole, resumed)
    a, b = (json.loads((folder / "summary.json").read_text()) for folder in (whole, resumed))
    assert a == b
    assert a["removed_in_round"][-1] is not None


def test_other_options_do_not_replace_those_of_the_rounds_before(rffl: Run, tmp_path: Path) -> None:
    """Nobody could tell any more what the first rounds ran with, or the same options are kept twice."""
    words = (*DIGITS, *QUICK, "--ckpt_path", "last")
    assert rffl(*words, "--trainer.max_epochs", 1).code == 0
    folder = next((tmp_path / "runs").glob("*/*"))
    first = yaml.safe_load((folder / "config.yaml").read_text())
    assert rffl(*words, "--trainer.max_epochs", 9, "--trainer.max_steps", 2).code == 0
    assert not [*folder.glob("config.*.yaml")]
    assert rffl(*words, "--trainer.max_epochs", 3, "--model.optimizer.lr", 0.01).code == 0
    (kept,) = folder.glob("config.*.yaml")
    assert kept.name == "config.2.yaml"
    first["trainer"] |= {"max_epochs": 9, "max_steps": 2}
    assert yaml.safe_load(kept.read_text()) == first
    assert "lr: 0.01" in (folder / "config.yaml").read_text()
    told = f"{folder / 'config.yaml'} has the options of its run after round 2; the rounds before went by config.2.yaml"
    for more, tells in ((("--run.name", "again"), True), (("--ckpt_path", "last", "--trainer.max_epochs", 4), False)):
        ended = rffl("fit", "--config", folder / "config.yaml", *more)
        assert (ended.code, told in ended.err) == (0, tells), ended.err


def test_other_options_after_a_damaged_checkpoint(rffl: Run, trained: Path) -> None:
    """The one before is gone on from, and a round that these options played would be told as of the earlier ones."""
    part = trained / "checkpoints" / "last.ckpt" / "participant_0.pt"
    part.write_bytes(part.read_bytes()[:-100])
    changed = ("--trainer.max_epochs", 3, "--model.optimizer.lr", 0.01)
    ended = rffl("fit", "--config", trained / "config.yaml", "--ckpt_path", "last", *changed)
    assert (ended.code, "Going on from the one before." in ended.err) == (0, True), ended.err
    assert [number for number, _ in RunFolder(trained).earlier_configs()] == [1]
    assert [start["rounds"] for start in RunFolder(trained).starts()] == [0, 1]


@pytest.mark.parametrize("restarted", [False, True], ids=["last", "restarted"])
def test_what_a_run_began_from_stays_known(
    rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """Once it had gone on, it passed for one that had its options from the first round, and was averaged with such."""
    runs, args = tmp_path / "runs", (*DIGITS, "--trainer.max_epochs")
    assert rffl(*args, 1, "--run.name", "first", "--server.gamma", 0.2).code == 0
    source = only_run(runs, "first") / "checkpoints"
    monkeypatch.setenv("SLURM_JOB_ID", "mine")
    begin = (*args, 3, "--run.name", "second", "--ckpt_path", source)
    with pytest.raises(RuntimeError, match="power cut"):
        rffl(*begin, "--trainer.callbacks+=tests.interruption.PowerCut")
    second = only_run(runs, "second")
    monkeypatch.setattr("tests.interruption.PowerCut.on_train_batch_start", Callback.on_train_batch_start)
    if restarted:
        monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
        ended = rffl(*begin, "--trainer.callbacks+=tests.interruption.PowerCut")
    else:
        ended = rffl("fit", "--config", second / "config.yaml", "--ckpt_path", "last", "--model.optimizer.lr", 0.01)
    assert ended.code == 0, ended.err
    assert [entry.number for entry in RunFolder(second).rounds()] == [1, 2, 3]
    assert RunFolder(second).config()["ckpt_path"] == str(source)
    assert read(second).options["--server.gamma"] == "0.2 at first, then 0.5"
    if not restarted:
        again = rffl("fit", "--config", second / "config.yaml", "--run.name", "again")
        assert (again.code, "the rounds before went by config.2.yaml" in again.err) == (0, True), again.err


def test_an_interrupted_run_goes_on_to_the_same_bits(rffl: Run, tmp_path: Path) -> None:
    """Every round leaves a checkpoint, and the one before stays: a power cut in the third round costs that one."""
    assert rffl(*DIGITS, *QUICK, "--trainer.max_epochs", 4, "--run.name", "whole").code == 0
    with pytest.raises(RuntimeError, match="power cut"):
        rffl(*DIGITS, *QUICK, "--trainer.callbacks+=tests.interruption.PowerCut", "--run.name", "cut")
    (cut,) = (tmp_path / "runs" / "cut").iterdir()
    assert sorted(path.name for path in (cut / "checkpoints").iterdir()) == ["last.ckpt", "last.previous.ckpt"]
    checkpoint = cut / "checkpoints" / "last.ckpt"
    assert kept_in(checkpoint)["federation"]["round"] == 2
    resume = ("--ckpt_path", checkpoint, "--trainer.max_epochs", 4, "--run.name", "resumed")
    assert rffl(*DIGITS, *QUICK, *resume).code == 0
    assert checkpoint.is_dir()
    whole, resumed = (next((tmp_path / "runs" / name).iterdir()) for name in ("whole", "resumed"))
    assert_same_bits(whole, resumed)


@pytest.mark.slow
def test_interruptions_shift_no_round(rffl: Run, tmp_path: Path) -> None:
    """Also where Lightning is given steps: as many rounds are played, and the same ones are measured."""
    signalled = ("--trainer.callbacks+=tests.interruption.Signalled", "--trainer.callbacks.after")
    args = (*DIGITS, "--trainer.max_epochs", 5, "--trainer.max_steps", 5, "--trainer.check_val_every_n_epoch", 2)
    for name, codes in {"whole": [0], "cut": [143, 143, 0]}.items():
        for number, code in enumerate(codes, 1):
            cut = () if code == 0 else (*signalled, number)  # after one more round
            ended = rffl(*args, *cut, "--run.name", name, "--ckpt_path", "last")
            assert ended.code == code, ended.err
    whole, cut_off = (next((tmp_path / "runs" / name).iterdir()) for name in ("whole", "cut"))
    assert (cut_off / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    assert json.loads((cut_off / "summary.json").read_text())["rounds"] == 5
    assert_same_bits(whole, cut_off)


def test_an_interrupted_run_is_asked_to_end(rffl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a rank that has ended sooner; it says how to go on all the same."""
    monkeypatch.setattr(loggers, "close", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGINT)
    try:
        ended = rffl(*DIGITS, *QUICK, "--trainer.callbacks+=tests.interruption.ControlC")
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it from the first one on
    assert ended.code == 130
    assert "Interrupted after round 2; go on with: " in ended.err


@pytest.mark.parametrize("checkpointing", [True, False])
def test_an_interrupted_run_says_how_to_go_on(rffl: Run, tmp_path: Path, checkpointing: bool) -> None:
    """After Ctrl-C the options it names go on from the last whole round; without a checkpoint it says so."""
    kept = () if checkpointing else ("--trainer.enable_checkpointing", "false")
    before = signal.getsignal(signal.SIGINT)
    try:
        ended = rffl(*DIGITS, *QUICK, *kept, "--trainer.callbacks+=tests.interruption.ControlC", "--run.name", "cut")
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it from the first one on
    assert ended.code == 130
    assert "Traceback" not in ended.err
    (sentence,) = (line for line in ended.err.splitlines() if line.startswith("Interrupted"))
    if not checkpointing:
        assert sentence == "Interrupted after round 2; there is no checkpoint to go on from"
        return
    start, _, sentence = sentence.partition("; go on with: ")
    assert start == "Interrupted after round 2"
    program, *options = sentence.split()
    assert (program, options[0], options[-2:]) == ("rffl", "fit", ["--ckpt_path", "last"])
    (cut,) = (tmp_path / "runs" / "cut").iterdir()
    there = str(cut / "checkpoints" / "last.ckpt")
    try:  # resumed and interrupted before a checkpoint of its own: that goes on from where it began
        ended = rffl(*options[:-1], there, "--run.name", "twice")
    finally:
        signal.signal(signal.SIGINT, before)
    config = only_run(tmp_path / "runs", "twice") / "config.yaml"
    assert ended.err.count(f"Interrupted after round 2; go on with: rffl fit --config {config} --ckpt_path last\n") == 1
    again = rffl(*options, "--trainer.callbacks", "[]", "--trainer.max_epochs", 3)
    assert again.code == 0, again.err
    assert "Warning" not in again.err
    assert list((tmp_path / "runs" / "cut").iterdir()) == [cut]
    assert len(list(csv.DictReader((cut / "metrics.csv").open()))) == 3


def test_an_interruption_before_the_first_round_leaves_nothing(rffl: Run, tmp_path: Path) -> None:
    """A folder stays with nothing in it that could be compared or gone on from."""
    before = signal.getsignal(signal.SIGINT)
    first = ("--trainer.callbacks+=tests.interruption.ControlC", "--trainer.callbacks.after", 0)
    try:
        ended = rffl(*DIGITS, *QUICK, *first, "--run.name", "none")
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.code == 130
    assert "Interrupted after round 0; there is no checkpoint to go on from" in ended.err
    assert not (tmp_path / "runs" / "none").exists()


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


@pytest.mark.slow
def test_a_run_that_lost_its_end_gets_it_when_resumed(rffl: Run, trained: Path, tmp_path: Path) -> None:
    """Interrupted after the last round: resuming trains no round and leaves weights, table and figures."""
    given = ("--config", trained / "config.yaml", "--ckpt_path", trained / "checkpoints" / "last.ckpt")
    ended = rffl("fit", *given, "--run.name", "again", "--standalone.enabled", "true", "--run.figures", "true")
    assert ended.code == 0, ended.err
    assert "fairness" in ended.out
    (again,) = (tmp_path / "runs" / "again").iterdir()
    assert (again / "fairness.png").is_file()
    assert_same_bits(trained, again)


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
    """`torch.load` with ``weights_only=True`` reads every file of a checkpoint but the rounds, which are JSON."""
    files = {path.name: path for path in (trained / "checkpoints" / "last.ckpt").iterdir()}
    assert sorted(files) == [*(f"participant_{i}.pt" for i in range(6)), "rounds.jsonl", "run.pt", "server.pt"]
    assert [json.loads(line)["number"] for line in files.pop("rounds.jsonl").read_text().splitlines()] == [1, 2]
    for path in files.values():
        torch.load(path, weights_only=True)
    checkpoint = kept_in(trained / "checkpoints" / "last.ckpt")
    assert checkpoint["federation"]["round"] == checkpoint["global_step"] == 2
    assert sorted(checkpoint["federation"]["participants"]) == list(range(6))


@pytest.mark.parametrize("standalone", ["false", "true"])
def test_a_test_example_that_cannot_be_read(rffl: Run, tmp_path: Path, standalone: str) -> None:
    """It shows after the last round, and nobody was told that the rounds are kept."""
    network = ("--model.network", "Perceptron", "--model.network.inputs", 2, "--model.network.classes", 2)
    sgd = ("--model.optimizer", "SGD", "--model.optimizer.lr", 0.1, "--federation.participants", 2)
    reference = ("--standalone.enabled", standalone, "--standalone.cache_dir", tmp_path / "kept")
    rounds = ("--data.eval_batch_size", 16, "--trainer.max_epochs", 3, "--run.name", "late")
    words = ("fit", "--data", "tests.own_data.TestedLate", *network, *sgd, *QUICK, *reference, *rounds)
    ended = rffl(*words)
    assert ended.code == 2
    broken = "test example 40 is not (OSError: the file is damaged); convert them in its dataset"
    assert f"{broken}; rounds are kept up to round 3: mend it and go on with --ckpt_path last.\n" in ended.err
    ended = rffl(*words, "--ckpt_path", "last", "--data.mended", "true")
    assert ended.code == 0, ended.err
    (folder,) = (tmp_path / "runs" / "late").iterdir()
    assert json.loads((folder / "summary.json").read_text())["rounds"] == 3
    ended = rffl(*words, "--trainer.enable_checkpointing", "false")
    assert f"{broken}.\n" in ended.err
