"""Words of data and splits that no run can do with: each is one sentence, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_input.refusal import FIT, Row, assert_refused, below
from tests.cli.folders import Run

pytestmark = pytest.mark.timeout(180)

HUGE = 10**9

OPTIONS: dict[str, Row] = {
    "batch size in words": (("--data.batch_size", "x"), "--data.batch_size to be a whole number, but got x."),
    "examples in words": (("--data.examples_per_participant", "x"), "--data.examples_per_participant to be a whole"),
    "a misspelt augmentation": (("--data.augment", "Cropflip"), "be a class, but got Cropflip; did you mean CropFlip?"),
    "an option of no augmentation": (("--data.augment.padding", 2), "--data.augment to be a class that can be made, b"),
    "unknown key of an augmentation": (
        ("--data.augment", "CropFlip", "--data.augment.pading", 2),
        "but got --data.augment.pading; did you mean --data.augment.padding?",
    ),
    "an augmentation too wide": (
        ("--data.augment", "CropFlip", "--data.augment.padding", HUGE),
        "--data.augment.padding to be at most 4096, but got 1e+09; try 4.",
    ),
    "an augmentation of nothing": (
        ("--data.augment", "CropFlip", "--data.augment.padding", 0, "--data.augment.flip", "false"),
        "move images or to mirror them, but got padding 0 and flip false; leave --data.augment out",
    ),
    "a transform of torchvision": (
        ("--data.augment", "torchvision.transforms.v2.RandomRotation"),
        "to be a class derived from Augmentation, but got torchvision.transforms.v2.RandomRotation, which is none",
    ),
    "alpha of a split in words": (
        ("--data.split", "DIR", "--data.split.alpha", "x"),
        "--data.split.alpha to be a number, but got x.",
    ),
    "none of the choices": (("--data.watch", "tests"), "to be one of validation, test, but got tests; did you mean te"),
    "unknown data": (("--data", "digits"), "--data to be a class, but got digits; did you mean Digits?"),
    "a base of data": (("--data", "TextDataModule"), "but TextDataModule is abstract"),
    "what data needs": (("--data", "TextFile"), "Expected --data.train_file, which TextFile needs, but got none; see"),
    "batch size": (("--data.batch_size", 0), "--data.batch_size to be at least 1, but got 0"),
    "batch size null": (("--data.batch_size", "null"), "--data.batch_size to have a value, but got null"),
    "workers": (("--data.num_workers", HUGE), "--data.num_workers to be at most 4096, but got 1e+09."),
    "validation": (("--data.validation", 1.5), "--data.validation to lie between 0 and 1, but got 1.5"),
    "a split that is not there": (("--data.split", "tests.extensions.Nix"), "and tests.extensions has no Nix"),
    "a split with its option": (
        ("--data.split", "DIR(alpha=0.5)"),
        "but got DIR(alpha=0.5); give options behind it, as in --data.split DIR --data.split.alpha 0.5.",
    ),
    "a split of a module with a dash": (("--data.split", "my-data.A"), "got my-data.A, whose module has a dash in its"),
    "a split without cut": (("--data.split", "tests.bad_input.own.NoCut"), "tests.bad_input.own.NoCut has no cut;"),
    "a split that is none": (("--data.split", "tests.extensions.Echo"), "from Split, but got tests.extensions.Echo"),
    "a split without its option": (
        ("--data.split", "tests.bad_input.own.Cutting"),
        "which Cutting needs, but got none; see `rffl fit --data Digits --data.split.help tests.bad_input.own.Cutting`",
    ),
    "an option that a split lacks": (
        ("--data.split", "tests.bad_input.own.Cutting", "--data.split.pieces", 3),
        "got --data.split.pieces; did you mean --data.split.piece?",
    ),
    "unknown split": (("--data.split", "XYZ"), "--data.split to be one of UNI, POW, CLA, DIR, SHARDS, MIX, GROUPS"),
    "no least shard": (("--data.split", "DIR", "--data.split.least", 0), "--data.split.least to be at least 1, but"),
    "a least shard above the mean": (
        ("--data.split", "DIR", "--data.split.least", 101),
        "--data.split.least to be at most the 100 examples that a participant holds on average, but got 101; lower it.",
    ),
    "a least shard of another split": (("--data.split.least", 3), "but got --data.split.least; see `rffl fit --data"),
    "a least shard that nobody draws": (
        ("--federation.participants", 12, "--data.split", "DIR", "--data.split.alpha", 1e-9, "--data.split.least", 3),
        "one of 1000 draws of split DIR to give each of 12 participants 3 examples, but the best gives somebody 0;",
    ),
    "no pieces": (("--data.split", "SHARDS", "--data.split.shards", 0), "--data.split.shards to be at least 1, but"),
    "more pieces than examples": (
        ("--data.split", "SHARDS", "--data.split.shards", 101),
        "--data.split.shards to be at most the 100 examples that a participant holds, but got 101; lower it.",
    ),
    "more alike than all": (("--data.split", "MIX", "--data.split.alike", 2), "--data.split.alike to lie in [0, 1]"),
    "one data set is nobody's": (("--data.split", "OWN"), "its own part for --data.split OWN, but got one data set"),
    "nobody's data": (
        ("--config", "mnist.yaml", "--data.data_dir=~nobodys/x"),
        "--data.data_dir or RFFL_DATA_DIR to be a folder, but got ~nobodys/x, which is nobody's home; give its path.",
    ),
    "more participants than examples": (
        ("--federation.participants", 5000, "--data.examples_per_participant", "null"),
        "at least one training example for each of 5001 participants, but there are 1294",
    ),
    "too little data": (("--data.examples_per_participant", 1000), "at least 5000 training examples"),
    "examples beyond": (("--data.examples_per_participant", HUGE), "at least 5000000000 training examples"),
    "nothing left": (
        ("--data.examples_per_participant", 1, "--federation.participants", 9),
        "leaves participant 7 of 9 without any",
    ),
    "CLA with too many": (
        ("--data.split", "CLA", "--data.split.draw", "disjoint", "--federation.participants", 40),
        "examples of class 0 for split CLA",
    ),
    "nothing held out": (("--data.validation", 1e-9), "--data.validation to hold out at least one of 1438 training"),
    "no test": (("--trainer.limit_test_batches", 0), "--trainer.limit_test_batches to leave at least one of 6 test"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", OPTIONS)
def test_an_option_that_cannot_be(rffl: Run, here: Path, mistake: str) -> None:
    """A user would meet a traceback, a wrong sentence, a hang, or a folder of a run that never was."""
    words, expected = OPTIONS[mistake]
    assert_refused(rffl(*FIT, *words), expected)
    assert below(here) == set()
