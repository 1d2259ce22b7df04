"""Code of one's own that changes what others are given after it, or itself: numbers would be wrong in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_input.refusal import FIT, Row, assert_refused, below
from tests.cli.folders import Run
from tests.conftest import QUICK

pytestmark = pytest.mark.timeout(180)

OURS = "tests.bad_input.changing"
NEW = "but it changes them in place, and others are given them too; have it make new ones"

CHANGED: dict[str, Row] = {
    "network": (("--model.network", f"{OURS}.Shifting"), f"Shifting to leave its inputs as they are, {NEW}"),
    "network by NumPy": (("--model.network", f"{OURS}.Shrunk"), f"Shrunk to leave its inputs as they are, {NEW}"),
    "network in training": (
        ("--model.network", f"{OURS}.Shifting", "--model.network.always", False),
        f"--model.network Shifting to leave its inputs as they are in training, {NEW}",
    ),
    "network's weights": (
        ("--model.network", f"{OURS}.Shrinking", "--model.network.what", "weights"),
        "Shrinking to stay as it is in evaluation, but its 1.weight changes, and with it what is trained; change it",
    ),
    "network's mean": (
        ("--model.network", f"{OURS}.Shrinking", "--model.network.what", "mean"),
        "Shrinking to stay as it is in evaluation, but its seen changes, and with it what is trained; change it only",
    ),
    "loss": (("--model.loss", f"{OURS}.Relabelling"), f"--model.loss Relabelling to leave classes as they are, {NEW}"),
    "measure": (
        (f"--model.measures+={OURS}.Squashing",),
        f"squashing of --model.measures to leave logits and classes as they are, {NEW}",
    ),
    "probe": (
        ("--adversaries", f"[{OURS}.Painting]", "--adversaries.probing", True),
        f"--adversaries Painting to leave examples as they are in probe, {NEW}",
    ),
    "poison": (
        ("--adversaries", f"[{OURS}.Painting]", "--adversaries.probing", False),
        f"--adversaries Painting to leave examples as they are in poison or labels, {NEW}",
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_changes_what_it_is_given(rffl: Run, here: Path, what: str) -> None:
    """The next model would be measured on something else, or whoever shares a process be trained on it."""
    words, expected = CHANGED[what]
    assert_refused(rffl(*FIT, *words), expected)
    assert below(here) == set()


def test_embeddings_with_a_bound(rffl: Run, here: Path) -> None:
    """torch scales down what is read in evaluation too, and of equal models one alone is evaluated."""
    words = ("--data", f"{OURS}.Categories", "--data.where", "test", "--data.unknown", 3, "--data.split", "UNI")
    ended = rffl("fit", *QUICK, *words, "--federation.participants", 3, "--model.network", f"{OURS}.Bounded")
    assert_refused(ended, "its 0.weight changes, and with it what is trained; change it only while self.training, and")
    assert below(here) == set()


def test_a_network_that_changes_itself_in_training_alone(rffl: Run) -> None:
    """A norm that is held, as Kim 2014 has it, is part of training; and a count is nobody's weight."""
    words = ("--model.network", f"{OURS}.Shrinking", "--model.network.what", "weights in training")
    ended = rffl(*FIT, *words)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_network_that_counts(rffl: Run, engine: str) -> None:
    """It may be for nothing, and is warned of; but a stack's participants would share the counter."""
    ended = rffl(*FIT, "--model.network", f"{OURS}.Counting", "--model.engine", engine)
    assert ended.code == 0, ended.err
    assert "Warning: calls of --model.network Counting changes while it trains, and no checkpoint keeps" in ended.err
    assert ("spite of --model.engine stacked, since its calls changes" in ended.err) == (engine == "stacked")


@pytest.mark.parametrize("unknown", [25, -1])
@pytest.mark.parametrize(("where", "whose"), [("train", "training"), ("validation", "validation"), ("test", "test")])
def test_a_category_that_a_network_does_not_know(rffl: Run, here: Path, where: str, whose: str, unknown: int) -> None:
    """Wherever it stands it is told before training, of what lies in memory."""
    words = ("--data", f"{OURS}.Categories", "--data.where", where, "--data.unknown", unknown, "--data.split", "UNI")
    ended = rffl("fit", *QUICK, *words, "--federation.participants", 3, "--model.network", f"{OURS}.Looking")
    assert_refused(ended, f"Looking to take inputs of shape [2, 3] with numbers from {min(unknown, 0)} to")
    assert f"the {whose} set's, but it fails: IndexError: index out of range in self" in ended.err
    assert below(here) == set()
