"""SHARDS and MIX: sorted by class and dealt, against loops written from the papers."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from torch import Tensor

from rffl_pl.datamodules import MIX, SHARDS, Digits
from rffl_pl.datamodules.splits import mixed, sorted_shards, uniform
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def uneven(seed: int, count: int) -> Tensor:
    """Labels of ten classes of which some are rare, in no order; one is missing."""
    weights = torch.tensor([9.0, 1, 4, 0, 2, 2, 7, 1, 3, 5])
    return torch.multinomial(weights, count, replacement=True, generator=seeded(seed))


SIZES = [(1, 1, 1), (5, 60, 2), (5, 60, 7), (3, 10, 10), (12, 25, 1), (7, 11, 3)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("participants", "each", "shards"), SIZES)
def test_pieces_are_dealt(participants: int, each: int, shards: int, seed: int) -> None:
    """SHARDS: n examples each, in k pieces one behind the other of those sorted by class, dealt at random."""
    labels = uneven(seed, participants * each + 40)
    generator = seeded(seed)
    chosen = torch.randperm(len(labels), generator=generator).tolist()[: participants * each]
    chosen.sort(key=labels.tolist().__getitem__)
    hands: list[list[list[int]]] = [[[]] * shards for _ in range(participants)]
    for place in torch.randperm(participants * shards, generator=generator).tolist():
        who, which = divmod(place, shards)
        size = each // shards + (which < each % shards)
        hands[who][which], chosen = chosen[:size], chosen[size:]
    cut = sorted_shards(labels, participants, each, shards, seeded(seed))
    assert [shard.tolist() for shard in cut] == [[*chain(*hand)] for hand in hands]
    assert [len(shard) for shard in cut] == [each] * participants


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_everybody_holds_few_classes(shards: int) -> None:
    """SHARDS: where pieces fit into classes nobody holds more classes than pieces, and another seed deals others."""
    labels = torch.arange(10).repeat(400)
    held = {seed: sorted_shards(labels, 20, 200, shards, seeded(seed)) for seed in range(8)}
    classes = {seed: [len(labels[shard].unique()) for shard in cut] for seed, cut in held.items()}
    assert max(max(each) for each in classes.values()) == shards
    assert len({str([sorted(labels[shard].unique().tolist()) for shard in cut]) for cut in held.values()}) == 8
    for cut in held.values():
        assert torch.equal(torch.cat(cut).sort().values, torch.arange(4000))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alike", [0.0, 0.1, 0.33, 0.5, 1.0])
@pytest.mark.parametrize(("participants", "each"), [(1, 1), (5, 60), (7, 11)])
def test_a_share_is_alike(participants: int, each: int, alike: float, seed: int) -> None:
    """MIX: everybody has s n examples at random, and of the others, sorted by class, those that are its turn."""
    labels = uneven(seed, participants * each + 40)
    chosen = torch.randperm(len(labels), generator=seeded(seed)).tolist()[: participants * each]
    share = round(alike * each)
    even, rest = chosen[: share * participants], chosen[share * participants :]
    rest.sort(key=labels.tolist().__getitem__)
    turn = each - share
    expected = [even[i * share : (i + 1) * share] + rest[i * turn : (i + 1) * turn] for i in range(participants)]
    cut = mixed(labels, participants, each, alike, seeded(seed))
    assert [shard.tolist() for shard in cut] == expected
    assert [len(shard) for shard in cut] == [each] * participants


def test_from_sorted_to_alike() -> None:
    """MIX: all alike it is UNI, without anybody alike each of ten holds one of ten classes, and between it is between.

    With a share s the largest class of everybody has s / 10 + 1 - s of its examples, but for chance.
    """
    labels = torch.arange(10).repeat(4000)
    same = zip(mixed(labels, 10, 4000, 1.0, seeded(1)), uniform(40000, 10, 4000, seeded(1)), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    for alike in (0.0, 0.2, 0.6):
        cut = mixed(labels, 10, 4000, alike, seeded(1))
        largest = torch.tensor([int(torch.bincount(labels[shard]).max()) for shard in cut]) / 4000
        assert float(largest.mean()) == pytest.approx(alike / 10 + 1 - alike, abs=0.02 if alike else 0.0)


def test_in_a_federation() -> None:
    """Adversaries get what is left, and everybody honest as much as was asked for."""
    for split in (SHARDS(shards=3), MIX(alike=0.5)):
        data = Digits(Federation(participants=4, adversaries=2, seed=2), split=split, examples_per_participant=90)
        data.adversary_examples = 100
        data.setup("fit")
        assert data.shard_sizes == [90] * 4 + [100] * 2
        together = torch.cat([*data.shards, data.held_out])
        assert len(together.unique()) == len(together)


@pytest.mark.parametrize("shards", [0, -1, float("nan")])
def test_pieces_that_cannot_be(shards: int) -> None:
    """SHARDS: refused by the option; more pieces than examples when those are known."""
    with pytest.raises(UserError, match=r"Expected --data\.split\.shards to be (at least 1|a whole number), but got"):
        SHARDS(shards=shards)
    data = Digits(Federation(participants=4), split=SHARDS(shards=21), examples_per_participant=20)
    with pytest.raises(UserError, match=r"shards to be at most the 20 examples that .* holds, but got 21; lower it"):
        data.setup("fit")


@pytest.mark.parametrize("alike", [-0.1, 1.1, float("nan")])
def test_shares_that_cannot_be(alike: float) -> None:
    """MIX: refused by the option."""
    with pytest.raises(UserError, match=r"Expected --data\.split\.alike to lie in \[0, 1\], but got"):
        MIX(alike=alike)
