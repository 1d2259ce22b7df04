"""What a run comes to, of rounds and final scores made up."""

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
    assert (found.first_removal, found.last_removal, found.honest_removed) == (2, 3, 1)
