"""Arguments that a class of one's own needs, and options of functions: what nobody gives is not None."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_input.own import Attacking, Silent
from tests.bad_input.refusal import FIT, Row, assert_refused, below
from tests.cli.folders import Run
from tests.named import named

OWN, HERE = "tests.bad_input.own", "tests.bad_input.needing"

KINDS = {
    "--model.network": "Net",
    "--model.loss": "Loss",
    "--model.objective": "Goal",
    "--model.optimizer": "Steps",
    "--model.measures+": "Measure",
    "--data": "Numerals",
    "--data.split": "Cut",
    "--data.augment": "Same",
    "--trainer.callbacks+": "Hearing",
}

FUNCTIONS: dict[str, Row] = {
    "an option of an optimizer": (
        ("--model.optimizer", f"{HERE}.steps", "--model.optimizer.lr", 0.3),
        "Expected --model.optimizer to be a class where it is given options, but got a function; give the function",
    ),
    "options of an optimizer in a file": (
        ("--config", f"{{model: {{optimizer: {{class_path: {HERE}.steps, init_args: {{lr: 0.3}}}}}}}}"),
        f"--model.optimizer to be a class where it is given options, but got {HERE}.steps, a function; give the",
    ),
    "an option of an option": (
        ("--model.network", f"{HERE}.Bent", "--model.network.bend", "torch.tanh", "--model.network.bend.by", 2),
        "Expected --model.network.bend to be a class where it is given options, but got a function; give the function",
    ),
    "an option that a network's function has not": (
        ("--model.network", f"{HERE}.net", "--model.network.k", 2),
        "an option of --model.network net, but got --model.network.k; it takes --model.network.width.",
    ),
    "what a network's function needs": (
        ("--model.network", f"{HERE}.net"),
        f"Expected --model.network.width, which {HERE}.net needs, but got none; give it, or give the argument a",
    ),
    "help of a function": (
        ("--model.network.help", f"{HERE}.net"),
        f"Expected --model.network.help of a class, but got {HERE}.net, a function, which takes --model.network.width.",
    ),
    "help of a function of another kind": (
        ("--server.help", f"{HERE}.net"),
        f"Expected --server to be a class derived from Server, but got {HERE}.net, which is none.",
    ),
    "a measure that is no list": (
        ("--model.measures", f"{HERE}.Measure"),
        f"Expected --model.measures to be a list, but got {HERE}.Measure; give --model.measures+={HERE}.Measure.",
    ),
}


@pytest.mark.parametrize("option", KINDS)
def test_what_nobody_gives(rffl: Run, here: Path, option: str) -> None:
    """The parser leaves it null, which a class would take for what was meant."""
    words = [f"{option}={HERE}.{KINDS[option]}"] if option.endswith("+") else [option, f"{HERE}.{KINDS[option]}"]
    named = f"{option.removesuffix('+')}.width"
    assert_refused(rffl(*FIT, *words), f"Expected {named}, which {HERE}.{KINDS[option]} needs, but got none; give it")
    assert below(here) == set()


@pytest.mark.parametrize("option", KINDS)
def test_what_somebody_gives(rffl: Run, option: str) -> None:
    """It is taken, whatever it is."""
    words = [f"{option}={HERE}.{KINDS[option]}"] if option.endswith("+") else [option, f"{HERE}.{KINDS[option]}"]
    ended = rffl(*FIT, *words, f"{option.removesuffix('+')}.width", 3)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("what", FUNCTIONS)
def test_a_function_for_a_class(rffl: Run, here: Path, what: str) -> None:
    """What is advised can be done."""
    words, expected = FUNCTIONS[what]
    assert_refused(rffl(*FIT, *words), expected)
    assert below(here) == set()


@pytest.mark.parametrize(
    ("option", "kind", "name"), [("--adversaries", Attacking, "FreeRider"), ("--server", Silent, "FedAvg")]
)
def test_a_class_with_the_name_of_the_packages(rffl: Run, here: Path, option: str, kind: type, name: str) -> None:
    """Which of the two is meant by its name nobody knows."""
    given = f"[{name}]" if option == "--adversaries" else name
    expected = f"to say which {name}, but there are several; give rffl_pl.{name} or {OWN}.{name}, or your class another"
    with named(kind, name):
        assert_refused(rffl(*FIT, option, given), f"Expected {option} {expected}")


def test_an_optimizer_by_a_function(rffl: Run) -> None:
    """Its learning rate is its own, and nobody is told to give it another, which it would not take."""
    ended = rffl(*FIT, "--model.optimizer", f"{HERE}.steps")
    assert ended.code == 0, ended.err
    assert "learning rate" not in ended.err
