"""What the guards of RFFL remember of participants, by hand: who confirms whom, and what a short memory pays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rffl_pl.functional import blocks
from rffl_pl.functional.blocks import gram_of_squares
from rffl_pl.servers import RFFL
from rffl_pl.servers.switches import Switches
from rffl_pl.servers.trust import Confirmations, Contributions, Trust
from tests.servers.tasks import task

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


def test_sums_are_kept_for_those_who_wait() -> None:
    """A thousand participants have a million sums in memory and in every checkpoint, when all are long confirmed."""
    found = Confirmations(5, 0.999)
    agree, same = torch.full((5, 5), 9.0, dtype=torch.float64), torch.eye(5, dtype=torch.bool)
    agree[3:], agree[:, 3:] = 0.0, 0.0
    found.add(torch.arange(5), agree, same)
    assert found.confirmed.tolist() == [True, True, True, False, False]
    assert (found.waiting.tolist(), list(found.totals.shape), list(found.rounds.shape)) == ([3, 4], [2, 5], [2, 5])
    found.forget(torch.tensor([False, False, False, True, False]))
    assert (found.waiting.tolist(), list(found.totals.shape)) == ([4], [1, 5])


@pytest.mark.parametrize("seed", range(5))
def test_sums_of_an_older_checkpoint(seed: int) -> None:
    """A run that goes on from one with the sums of all with all confirms others, or ends."""
    generator = torch.Generator().manual_seed(seed)
    memory, again = (trust(9, probation=1) for _ in range(2))
    totals, rounds = torch.zeros(2, 9, 9, dtype=torch.float64)
    for now in range(12):
        at = torch.randperm(9, generator=generator)[:6].sort().values
        agree = torch.randn(6, 6, generator=generator, dtype=torch.float64) + 0.9
        agree, same = agree + agree.T, torch.eye(6, dtype=torch.bool)
        if now == 4:
            assert memory.confirmations is not None
            old = {"totals": totals, "rounds": rounds, "confirmed": memory.confirmations.confirmed}
            again.load_state_dict({f"confirmations.{name}": value.clone() for name, value in old.items()})
        for one in (memory, again)[: 1 + (now >= 4)]:
            assert one.confirmations is not None
            one.confirmations.add(at, agree, same)
        totals[at.unsqueeze(1), at] += torch.where(same, 0.0, agree)
        rounds[at.unsqueeze(1), at] += 1
    assert memory.state_dict().keys() == again.state_dict().keys()
    for name, value in memory.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert memory.confirmations is not None
    waiting = memory.confirmations.waiting
    assert torch.equal(memory.confirmations.totals, totals[waiting])


def test_products_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """While all who send are confirmed, half of a round's products are of no use."""
    asked: list[int] = []

    def counted(rows: blocks.Rows, add_up: blocks.Sum) -> Tensor:
        asked.append(len(rows))
        return gram_of_squares(rows, add_up)

    monkeypatch.setattr(blocks, "gram_of_squares", counted)
    generator = torch.Generator().manual_seed(1)
    server = RFFL(preset="guarded")
    server.start(task([100] * 6, [500]))
    for _ in range(4):
        shared = torch.randn(500, generator=generator)
        server.step(shared + torch.randn(6, 500, generator=generator), range(6))
    assert server.trust.confirmations is not None
    assert server.trust.confirmations.confirmed.all()
    assert server.trust.confirmations.uploads.tolist() == [4] * 6
    assert asked == [6]
