"""What the guards of RFFL remember of participants, by hand: who confirms whom, and what a short memory pays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rffl_pl.servers.switches import Switches
from rffl_pl.servers.trust import Confirmations, Contributions, Trust

EVERYBODY = torch.ones(2, dtype=torch.bool)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def trust(participants: int, **switches: object) -> Trust:
    """What a server with these switches remembers of so many."""
    return Trust(Switches.of("released", **switches), participants)


def test_clones_are_one_vote() -> None:
    """Two that repeat each other confirm a free-rider as two of five others, where they are one of four."""
    same, agree = torch.eye(6, dtype=torch.bool), torch.zeros(6, 6, dtype=torch.float64)
    same[4, 5] = same[5, 4] = True
    agree[0, 4:] = 9.0
    found = Confirmations(6, 0.999)
    found.add(torch.arange(6), agree, same)
    assert not found.confirmed[0]


def test_clones_alone_confirm_nobody() -> None:
    """Without anybody else, none of no votes is enough."""
    found = Confirmations(2, 0.999)
    found.add(torch.arange(2), torch.full((2, 2), 9.0, dtype=torch.float64), torch.ones(2, 2, dtype=torch.bool))
    assert not found.confirmed.any()


def test_clones_of_one_round_do_not_confirm_each_other_in_the_next() -> None:
    """What they agreed in while they were the same counts once they are not."""
    found = Confirmations(3, 0.999)
    agree = torch.full((3, 3), 60.0, dtype=torch.float64)
    same = torch.eye(3, dtype=torch.bool)
    same[0, 1] = same[1, 0] = True
    found.add(torch.arange(3), agree * same, same)
    found.add(torch.arange(3), torch.zeros_like(agree), torch.eye(3, dtype=torch.bool))
    assert not found.confirmed.any()
    found.add(torch.arange(3), agree, torch.eye(3, dtype=torch.bool))
    assert found.confirmed.all()


def test_probation_counts_uploads() -> None:
    """Whoever sends nothing for as many rounds serves its probation by that."""
    memory = trust(3, probation=2)
    assert memory.confirmations is not None
    agree, same = torch.full((3, 3), 9.0, dtype=torch.float64), torch.eye(3, dtype=torch.bool)
    for senders in ([0, 1, 2], [0, 1]):
        at = torch.tensor(senders)
        memory.confirmations.add(at, agree[at][:, at], same[at][:, at])
    quotas = memory.capped(numbers(1, 1, 1), torch.ones(3, dtype=torch.bool), torch.full((3,), 5))
    assert quotas.tolist() == [1, 1, 0]


def test_who_is_not_scored_keeps_what_is_remembered() -> None:
    """Whoever was not asked in a round loses its quota by it."""
    memory = trust(2, short_memory=0.5)
    memory.add(numbers(0.4, 0.4), EVERYBODY)
    memory.add(numbers(0.4, torch.nan), torch.tensor([True, False]))
    assert memory.recent.tolist() == pytest.approx([0.3, 0.2])


def test_a_short_memory_of_different_lengths() -> None:
    """Similarities of 0.4, once and in every round of sixty, are paid unlike."""
    memory = trust(2, short_memory=0.5)
    memory.recent = numbers(0.2, 0.4)
    assert memory.capped(numbers(1, 1), EVERYBODY, torch.tensor([1, 60])).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("switches", "name", "values"),
    [({"short_memory": 0.5}, "recent", (0.1, 0.2, 0.8)), ({"earned": True}, "earned", (1.0, 2.0, 8.0))],
)
def test_who_is_removed_caps_nobody(switches: dict[str, object], name: str, values: tuple[float, ...]) -> None:
    """Quotas are shares of what somebody has that is no member any more."""
    memory = trust(3, **switches)
    setattr(memory, name, numbers(*values))
    quotas = memory.capped(numbers(1, 1, 1), torch.tensor([True, True, False]), torch.full((3,), 5))
    assert quotas[:2].tolist() == [0.5, 1.0]


def test_silence_is_remembered() -> None:
    """A run that goes on pays the silent anew."""
    memory, again = (Trust(Switches.of("guarded"), 2) for _ in range(2))
    memory.rest(torch.tensor([1]))
    again.load_state_dict(memory.state_dict())
    assert again.rested.tolist() == [0, 1]


def test_a_round_of_opposites_tells_nothing() -> None:
    """Whoever is compared with those who are each other's opposites contributes more, or less, than it did."""
    memory = Contributions(2, 0.999)
    for _ in range(3):
        memory.add(numbers(0.4, 0.2), EVERYBODY)
    before = memory.bound()
    memory.add(numbers(-0.4, 0.1), EVERYBODY)
    for values, earlier in zip(memory.bound(), before, strict=True):
        assert torch.equal(values, earlier)
