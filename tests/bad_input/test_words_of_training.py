"""Words of networks, optimizers and trainers that no run can do with: each is one sentence, and nothing stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.bad_input.refusal import FIT, Row, assert_refused, below
from tests.cli.folders import Run
from tests.conftest import QUICK, TORCHTEXTS

pytestmark = pytest.mark.timeout(180)

HUGE = 10**9

OPTIONS: dict[str, Row] = {
    "what nobody logs": (
        ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "accuracy"),
        "--trainer.callbacks.monitor to be accuracy/mean, but EarlyStopping got accuracy, which is not logged; give",
    ),
    "learning rate in words": (("--model.optimizer.lr", "fast"), "--model.optimizer.lr to be a number, but got fast."),
    "learning rate nan": (("--model.optimizer.lr", "nan"), "--model.optimizer.lr to be a number, but got nan."),
    "a learning rate of several": (("--model.optimizer.lr", "[0.1,0.2]"), "Expected --model.optimizer to fit, but "),
    "no learning rate": (("--model.optimizer.lr", ""), "--model.optimizer.lr to be a number, but got nothing."),
    "betas in words": (
        ("--model.optimizer", "Adam", "--model.optimizer.betas", "x"),
        "--model.optimizer.betas to be a list, but got x.",
    ),
    "one of two betas": (
        ("--model.optimizer", "Adam", "--model.optimizer.betas", "[0.9]"),
        "--model.optimizer.betas to be a list of 2 values, but got [0.9].",
    ),
    "weights of classes in words": (
        ("--model.loss", "torch.nn.CrossEntropyLoss", "--model.loss.weight", "[1,x]"),
        "--model.loss.weight to be a list of numbers, but got [1, 'x'].",
    ),
    "an objective by its name": (
        ("--model.objective", "Contrast"),
        "--model.objective to be a class, but got Contrast; give your own as my_package.MyClass.",
    ),
    "an objective that is none": (
        ("--model.objective", "torch.nn.Linear"),
        "--model.objective to be a class derived from Objective, but got torch.nn.Linear, which is none.",
    ),
    "hidden in words": (("--model.network.hidden", "x"), "--model.network.hidden to be a whole number, but got x."),
    "rounds in words": (("--trainer.max_epochs", "x"), "--trainer.max_epochs to be a whole number, but got x."),
    "patience in words": (
        ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "a", "--trainer.callbacks.patience", "x"),
        "--trainer.callbacks.patience to be a whole number, but got x.",
    ),
    "unknown decay": (("--model.lr_decay_every", "step"), "--model.lr_decay_every to be one of epoch, round, but got"),
    "the base of optimizers": (("--model.optimizer", "Optimizer"), "--model.optimizer to be a class that can be made"),
    "unknown network": (("--model.network", "Nope"), "but got Nope; give one of CIFAR10CNN, MNISTCNN, Perceptron"),
    "no network": (("--model.network", "null"), "--model.network to be a class, but got null; give one of"),
    "a function as a network": (("--model.network", "torch.nn.functional.relu"), "a class derived from Module, but"),
    "unknown optimizer": (("--model.optimizer", "adam"), "but got adam; did you mean Adam"),
    "a layer as an optimizer": (("--model.optimizer", "torch.nn.Linear"), "--model.optimizer to be a class, but got"),
    "unknown metric": (("--model.measures+=Nope",), "--model.measures to be a class, but got Nope"),
    "unknown callback": (("--trainer.callbacks+=Nope",), "--trainer.callbacks to be a class, but got Nope"),
    "what a layer needs": (("--model.network", "torch.nn.Linear"), "--model.network.in_features and --model.net"),
    "local epochs": (("--model.local_epochs", 0), "--model.local_epochs to be at least 1, but got 0"),
    "local epochs without end": (("--model.local_epochs", HUGE), "--model.local_epochs to be at most 100000, but got"),
    "no local steps": (("--model.local_steps", 0), "--model.local_steps to be at least 1, but got 0"),
    "local steps without end": (("--model.local_steps", HUGE), "--model.local_steps to be at most 1000000, but got"),
    "a term that pushes away": (("--model.proximal", -1), "--model.proximal to be 0 or more and finite, but got -1.0"),
    "decay that grows": (("--model.lr_decay", 1e300), "--model.lr_decay to lie in (0, 1], but got 1e+300"),
    "no hidden": (("--model.network.hidden", 0), "--model.network.hidden to be at least 1, but got 0."),
    "negative hidden": (("--model.network.hidden", -1), "--model.network.hidden to be at least 1, but got -1."),
    "hidden null": (("--model.network.hidden", "null"), "--model.network.hidden to have a value, but got null"),
    "a layer beyond memory": (
        ("--model.network.inputs", HUGE, "--model.network.hidden", HUGE),
        "Perceptron to fit into memory",
    ),
    "classes beyond memory": (
        ("--model.network", "CIFAR10CNN", "--model.network.classes", HUGE),
        "CIFAR10CNN to fit into memory",
    ),
    "no inputs": (("--model.network.inputs", 0), "--model.network.inputs to be at least 1, but got 0."),
    "negative classes": (("--model.network.classes", -1), "--model.network.classes to be at least 1, but got -1."),
    "no vocabulary": (
        ("--model.network", "TextCNN", "--model.network.vocabulary", 0),
        "--model.network.vocabulary to be at least 1, but got 0.",
    ),
    "an embedding beyond memory": (
        ("--model.network", "TextCNN", "--model.network.vocabulary", HUGE, "--model.network.width", HUGE),
        "TextCNN to fit into memory",
    ),
    "negative size of a layer": (
        ("--model.network", "torch.nn.Linear", "--model.network.in_features", -1, "--model.network.out_features", 9),
        "RuntimeError: Trying to create tensor with negative dimension -1: [9, -1]; mend its options, or the class.",
    ),
    "mode of a callback": (
        ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "a", "--trainer.callbacks.mode", "up"),
        "`mode` can be min, max, got up",
    ),
    "no such option of a callback": (
        ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "a", "--trainer.callbacks.patienc", 3),
        "EarlyStopping, but got --trainer.callbacks.patienc; did you mean --trainer",
    ),
    "an option of no callback": (
        ("--trainer.callbacks.monitor", "a"),
        "to be a class, but got --trainer.callbacks.monitor alone; give --trainer.callbacks+=EarlyStopping before it",
    ),
    "an option of no measure": (
        ("--model.measures.num_classes", 10),
        "Expected --model.measures to be a class that can be made, but none is named; name a class first",
    ),
    "no such option of a logger": (
        ("--trainer.logger", "CSVLogger", "--trainer.logger.save_dr", "x"),
        "an option of --trainer.logger CSVLogger, but got --trainer.logger.save_dr; did you mean",
    ),
    "no such logger": (("--trainer.logger", "CSVLoger"), "but got CSVLoger; did you mean CSVLogger?"),
    "the worst accuracy": (
        ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "accuracy/mean"),
        "--trainer.callbacks.mode max for accuracy/mean, which is the better the higher, but EarlyStopping has min",
    ),
    "a callback of one model": (("--trainer.callbacks+=SpikeDetection",), "but got SpikeDetection, which is for"),
    "a callback that tunes": (("--trainer.callbacks+=LearningRateFinder",), "but got LearningRateFinder, which"),
    "no rounds": (("--trainer.max_epochs", 0), "--trainer.max_epochs to be at least 1, but got 0"),
    "rounds beyond": (("--trainer.max_epochs", HUGE), "--trainer.max_epochs to be at most 10000000, but got 1e+09"),
    "no steps": (("--trainer.max_steps", 0), "--trainer.max_steps to be at least 1, but got 0"),
    "never validated": (("--trainer.check_val_every_n_epoch", 0), "--trainer.check_val_every_n_epoch to be at least 1"),
    "no training": (("--trainer.limit_train_batches", 0), "--trainer.limit_train_batches to be left alone, but got 0"),
    "some training": (("--trainer.limit_train_batches", 2), "to be left alone, but got 2: a round is one batch; for"),
    "half the training": (("--trainer.limit_train_batches", 0.5), "--trainer.limit_train_batches to be left alone"),
    "overfitting": (("--trainer.overfit_batches", 1), "--trainer.overfit_batches to be left alone, but got 1"),
    "another root": (("--trainer.default_root_dir", "x"), "--trainer.default_root_dir to be left alone, but got x;"),
    "validated within a round": (("--trainer.val_check_interval", 5), "--trainer.val_check_interval to be left alone"),
    "validated by the clock": (
        ("--trainer.val_check_interval", "00:00:01:00"), "--trainer.val_check_interval to be left alone, but got 00:"
    ),
    "a trial of several rounds": (("--trainer.fast_dev_run", 3), "--trainer.fast_dev_run to be left alone, but got 3"),
    "checkpoints of Lightning's": (("--trainer.plugins", "AsyncCheckpointIO"), "write checkpoints, but got AsyncCheck"),
    "checkpoints for W&B": (
        ("--trainer.logger", "WandbLogger", "--trainer.logger.log_model", "all"),
        "--trainer.logger.log_model to be left alone, but got all: a checkpoint of a federation is a folder",
    ),
    "no time": (("--trainer.max_time", "00:00:00:00"), "at least one round to be played, but a callback"),
    "no such time": (("--trainer.max_time", "soon"), "`Timer(duration='soon')` is not a valid duration"),
    "no such precision": (("--trainer.precision", 17), "precision to be 32-true or bf16-mixed, but got 17: "),
    "precision": (("--trainer.precision", "64-true"), "--trainer.precision to be 32-true or bf16-mixed, but got 64"),
    "no such accelerator": (("--trainer.accelerator", "tpu"), "--trainer.accelerator to be auto, gpu, cuda or cpu"),
    "devices": (("--trainer.devices", 2), "ranks come from torchrun"),
    "nothing recorded": (("--trainer.barebones", "true"), "--trainer.barebones to be left alone, but got True: a"),
    "clipping": (("--trainer.gradient_clip_val", 1), "--trainer.gradient_clip_val to be left alone, but got 1.0: eve"),
    "larger batches": (("--trainer.accumulate_grad_batches", 4), "got 4: every participant trains with an optimizer"),
    "how it clips": (("--trainer.gradient_clip_algorithm", "value"), "--trainer.gradient_clip_algorithm to be left al"),
    "statistics in common": (("--trainer.sync_batchnorm", "true"), "--trainer.sync_batchnorm to be left alone, but"),
    "a rate of one model": (("--trainer.callbacks+=LearningRateMonitor",), "but got LearningRateMonitor, which is for"),
    "a profiler of torch": (("--trainer.profiler", "pytorch"), "--trainer.profiler to be simple or advanced, but got"),
    "weights alone": (
        ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.save_weights_only", "true"),
        "that write checkpoints a run can be resumed from, but got ModelCheckpoint with save_weights_only",
    ),
    "checkpoints elsewhere": (
        ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.dirpath", "there"),
        "--trainer.callbacks.dirpath to be left alone, but got ",
    ),
    "checkpoints in folders by metric": (
        ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.filename", "{epoch}-{accuracy/mean:.3f}"),
        "--trainer.callbacks.filename to make names without /, but got {epoch}-{accuracy/mean:.3f}; with --trainer",
    ),
    "checkpoints within a round": (
        ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_train_steps", 1),
        "save at the end of a round, with its record, but got ModelCheckpoint with every_n_train_steps; give every_n_",
    ),
    "checkpoints before a round's record": (
        ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.save_on_train_epoch_end", "false"),
        "but got ModelCheckpoint with save_on_train_epoch_end false; give every_n_epochs",
    ),
    "a cadence of one's own checkpoints": (
        ("--trainer.callbacks+=ModelCheckpoint", "--run.checkpoint_every", 3),
        "--run.checkpoint_every without a ModelCheckpoint of your own and with --trainer.enable_checkpointing, but go",
    ),
    "errors of no checkpoints": (
        ("--trainer.enable_checkpointing", "false", "--run.checkpoint_errors", "warn"),
        "--run.checkpoint_errors without a ModelCheckpoint",
    ),
    "network does not take the inputs": (("--model.network", "MNISTCNN"), "--model.network MNISTCNN to take inputs"),
    "network has other inputs": (("--model.network.inputs", 63), "inputs of shape [64, 1, 8, 8]"),
    "network has too few outputs": (("--model.network.classes", 7), "logits of shape [64, 10]"),
    "learning rate": (("--model.optimizer.lr", -1), "optimizer to fit, but ValueError: Invalid learning rate: -1"),
    "learning rate null": (("--model.optimizer.lr", "null"), "--model.optimizer.lr to have a value, but got null"),
    "learning rate beyond": (("--model.optimizer.lr", 1e300), "a first step fails: RuntimeError: value cannot be"),
    "optimizer with closure": (("--model.optimizer", "LBFGS"), "step without a closure, but got LBFGS"),
    "optimizer of sparse gradients": (("--model.optimizer", "SparseAdam"), "SparseAdam to train --model.network"),
}  # fmt: skip


IN_TORCHTEXTS = {  # whose learning rates have another type
    "a learning rate of several": "--model.optimizer.lr to be a number, but got [0.1, 0.2]",
    "learning rate null": "Expected --model.optimizer to fit, but ",
}


@pytest.mark.parametrize("mistake", OPTIONS)
def test_an_option_that_cannot_be(rffl: Run, here: Path, mistake: str) -> None:
    """A user would meet a traceback, a wrong sentence, a hang, or a folder of a run that never was."""
    words, expected = OPTIONS[mistake]
    assert_refused(rffl(*FIT, *words), IN_TORCHTEXTS.get(mistake, expected) if TORCHTEXTS else expected)
    assert below(here) == set()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has no Muon before 2.9")
def test_an_optimizer_of_matrices(rffl: Run, here: Path) -> None:
    """What it says stands in a sentence within a sentence, or nothing of its options is told to mend it."""
    ended = rffl(*FIT, "--model.optimizer", "Muon")
    assert_refused(ended, "Expected --model.optimizer to fit, but ValueError: Muon only supports 2D parameters whereas")
    assert "; mend its options, or take SGD or Adam." in ended.err
    ended = rffl(*FIT, "--server", "FedOpt", "--server.optimizer", "Muon")
    assert_refused(ended, "Expected --server.optimizer to take a vector and its options, but ValueError: Muon only")
    assert "; mend these, or take SGD or Adam." in ended.err


def test_a_vocabulary_that_is_too_small(rffl: Run, here: Path) -> None:
    """The batch that is tried first has the shortest sentences, and the largest number comes rounds later."""
    rows = "".join(f"{'good' if i % 2 else 'bad'} w{i % 50} {'and' * (i > 60)},{i % 2}\n" for i in range(120))
    (here / "reviews.csv").write_text("text,label\n" + rows)
    (here / "test.csv").write_text("text,label\ngood and good,1\nbad and good,0\n")
    words: tuple[object, ...] = ("--data", "TextFile", "--data.train_file", here / "reviews.csv")
    words += ("--data.test_file", here / "test.csv", "--model.network", "TextCNN")
    words += ("--model.network.classes", 2, "--model.optimizer", "Adam", "--model.optimizer.lr", 0.001)
    ended = rffl("fit", *words, "--model.network.vocabulary", 54, "--federation.participants", 2, *QUICK)
    assert_refused(ended, " to 54, the training set")
    assert "the training set's, but it fails: IndexError: index out of range" in ended.err
