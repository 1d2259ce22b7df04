"""What a run comes to, of rounds and final scores made up."""

import numpy as np
import pytest
import torch

from rffl_pl.runs import Round
from rffl_pl.runs.summarise import summarise


def entry(number: int, *removed: int) -> Round:
    return Round(number=number, honest=2, members=[True] * 4, removed=list(removed), measures={})


def test_honest_and_adversaries_apart() -> None:
    """What adversaries have counts among the honest, or the first removal is the last."""
    final = {"accuracy": torch.tensor([0.5, 0.7, 0.9, 0.1]), "attack_success": torch.tensor([0.2, 0.4, 1.0, 1.0])}
    alone, initial = torch.tensor([0.4, 0.6, 0.3, 0.1]), torch.tensor([0.1, 0.1, 0.2, 0.2])
    found = summarise([entry(1), entry(2, 2), entry(3, 1, 3)], [5, 6, 7, 8], final, alone=alone, initial=initial)
    assert found.mean == pytest.approx(0.6)
    assert found.maximum == pytest.approx(0.7)
    assert found.attack_success == pytest.approx(0.3)
    assert found.adversary_standalone == pytest.approx(0.2)
    assert found.initial == pytest.approx(0.15)  # where everybody is measured on examples of its own
    assert (found.first_removal, found.last_removal, found.honest_removed) == (2, 3, 1)


@pytest.mark.parametrize("honest", [1, 7, 10, 25])
def test_how_alike_the_honest_end(honest: int) -> None:
    """The lowest and the highest tenth, rounded up, and the deviation over all of them, as numpy has it."""
    accuracy = np.random.default_rng(honest).random(honest)
    final = {"accuracy": torch.tensor([*accuracy, 0.0, 1.0])}
    last = Round(number=1, honest=honest, members=[True] * (honest + 2), removed=[], measures={})
    found = summarise([last], [1] * (honest + 2), final)
    ascending, tenth = np.sort(accuracy), -(-honest // 10)
    assert found.minimum == pytest.approx(accuracy.min())
    assert found.worst_tenth == pytest.approx(ascending[:tenth].mean())
    assert found.best_tenth == pytest.approx(ascending[::-1][:tenth].mean())
    assert found.spread == pytest.approx(np.sqrt(accuracy.var()))


@pytest.mark.parametrize(
    ("watched", "accuracy", "expected"),
    [
        ("validation", [0.4, 0.6, 0.9], 0.5),
        ("test", [0.4, 0.6, 0.9], None),
        (None, [0.4, 0.6, 0.9], None),
        ("validation", [], None),
    ],
)
def test_what_may_be_chosen_by(watched: str | None, accuracy: list[float], expected: float | None) -> None:
    """The honest's mean after the last round on validation examples alone: the test set is no choice's business."""
    measures = {"accuracy": accuracy} if accuracy else {}
    history = [Round(number=r, honest=2, members=[True] * 3, measures=measures) for r in (1, 2)]
    history[0].measures = {"accuracy": [0.1, 0.1, 0.1]}
    found = summarise(history, [1] * 3, {"accuracy": torch.tensor([0.7, 0.7, 0.7])}, watched=watched)
    assert found.validation == (None if expected is None else pytest.approx(expected))


def test_how_alike_is_not_known_of_all() -> None:
    """Of who has no test examples of its own there is no accuracy, which could be the lowest."""
    final = {"accuracy": torch.tensor([0.5, float("nan"), 0.9, 0.1])}
    found = summarise([entry(1)], [5, 6, 7, 8], final)
    assert (found.minimum, found.worst_tenth, found.best_tenth, found.spread) == (None, None, None, None)
