"""CLA where the data does not suffice for disjoint shards, and the released code's draw."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.datamodules import CLA, Digits, Pool
from rffl_pl.datamodules.splits.by_class import overlap, suffices, wanted
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

LABELS = torch.arange(10).repeat(100)[torch.randperm(1000, generator=torch.Generator().manual_seed(0))]


def pool(participants: int, each: int, labels: Tensor = LABELS, seed: int = 0, classes: int = 10) -> Pool:
    generator = torch.Generator().manual_seed(seed)
    return Pool(labels=labels, num_classes=classes, participants=participants, each=each, generator=generator)


def counts(shards: list[Tensor], labels: Tensor = LABELS, classes: int = 10) -> list[list[int]]:
    return [torch.bincount(labels[shard], minlength=classes).tolist() for shard in shards]


def test_auto_is_disjoint_where_the_data_suffices() -> None:
    """The very shards of `disjoint`, and no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        auto, disjoint = (CLA(draw=draw).cut(pool(5, 50)) for draw in ("auto", "disjoint"))
    assert all(torch.equal(a, b) for a, b in zip(auto, disjoint, strict=True))
    assert len(torch.cat(auto).unique()) == 250


@pytest.mark.parametrize(("participants", "each"), [(5, 100), (10, 60), (20, 33)])
def test_auto_shares_where_it_does_not(participants: int, each: int) -> None:
    """Counts per class are those of disjoint shards, nobody repeats an example, and the shared share is told."""
    with pytest.raises(UserError, match=r"--data\.split\.draw at auto"):
        CLA(draw="disjoint").cut(pool(participants, each))
    with pytest.warns(UserWarning, match="on its own") as told:
        shards = CLA().cut(pool(participants, each))
    assert counts(shards) == wanted(10, participants, each).tolist()
    assert all(len(shard.unique()) == len(shard) == each for shard in shards)
    holders = Counter(i for shard in shards for i in set(shard.tolist()))
    share = sum(n > 1 for n in holders.values()) / len(holders)
    assert share > 0.1
    assert len(told) == 1
    assert f"{share:.1%} of the examples that they hold are held by several" in str(told[0].message)
    assert "repeat" not in str(told[0].message)


def test_a_class_smaller_than_a_shard_comes_around_again() -> None:
    """A shard that needs 70 examples of a class of 30 holds each twice and 10 of them a third time; this is told."""
    labels = torch.tensor([0] * 30 + [1] * 500)
    with pytest.warns(UserWarning, match="repeat") as told:
        shards = CLA().cut(pool(2, 70, labels, classes=2))
    assert counts(shards, labels, 2) == [[70, 0], [35, 35]]
    assert sorted(Counter(shards[0].tolist()).values()) == [2] * 20 + [3] * 10
    assert sorted(Counter(shards[1][:35].tolist()).values()) == [1] * 25 + [2] * 5
    assert "100.0% of the examples" not in str(told[0].message)
    assert f"{(40 + 5) / 140:.1%} of their places repeat" in str(told[0].message)


def test_the_released_draw() -> None:
    """Every shard with replacement from all examples of a class: about 1 - 1/e of them for as many draws."""
    labels = torch.arange(2).repeat(3000)
    with pytest.warns(UserWarning, match="of their places repeat"):
        shards = CLA(draw="released").cut(pool(5, 3000, labels, classes=2))
    assert counts(shards, labels, 2) == wanted(2, 5, 3000).tolist()
    for shard in shards[:4]:
        assert len(shard.unique()) / 3000 == pytest.approx(1 - 1 / torch.e, abs=0.03)
    a, b = set(shards[0].tolist()), set(shards[1].tolist())
    assert len(a & b) / 3000 == pytest.approx((1 - 1 / torch.e) ** 2, abs=0.03)


def test_the_released_draw_also_where_the_data_suffices() -> None:
    """It is by name alone, not by need, and the seed decides."""
    with pytest.warns(UserWarning, match="on its own"):
        one, again, other = (CLA(draw="released").cut(pool(5, 50, seed=seed)) for seed in (1, 1, 2))
    assert counts(one) == wanted(10, 5, 50).tolist()
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not torch.equal(torch.cat(one), torch.cat(other))


@pytest.mark.parametrize("draw", ["auto", "released"])
def test_a_class_without_examples(draw: str) -> None:
    """Nothing can be drawn of it, however often; who has a file can set no number of classes, and was told to."""
    with pytest.raises(UserError) as caught:
        CLA(draw=draw).cut(pool(2, 10, torch.ones(100, dtype=torch.int64), classes=2))  # type: ignore[arg-type]
    assert str(caught.value) == (
        "Expected training examples of class 0 for split CLA, but there are none that are not held out; lower "
        "--data.validation or take another --data.split, or correct num_classes of data of your own."
    )


def test_classes_by_their_names() -> None:
    """Who has a folder of images knows no numbers of classes, and there is none to correct."""
    few = replace(pool(2, 10, torch.tensor([1] * 100 + [2] * 3), classes=3), class_names=("cat", "dog", "emu"))
    with pytest.raises(UserError) as caught:
        CLA().cut(few)
    assert str(caught.value) == (
        "Expected training examples of class cat for split CLA, but there are none that are not held out; lower "
        "--data.validation or take another --data.split."
    )
    with pytest.raises(UserError, match="examples of class cat for split CLA with 2 participants"):
        CLA(draw="disjoint").cut(few)


@pytest.mark.parametrize("draw", ["auto", "released"])
def test_a_shard_of_more_than_there_is(draw: Any) -> None:
    """It is refused at once, as by other splits: drawing it again and again takes minutes and all memory."""
    with pytest.raises(UserError, match=r"at least 100000000 .* there are 1000; .*--data\.examples_per_participant"):
        CLA(draw=draw).cut(pool(5, 10**8))


def test_an_unknown_draw() -> None:
    with pytest.raises(UserError, match=r"--data\.split\.draw to be one of auto, disjoint, released, but got own"):
        CLA(draw="own")  # type: ignore[arg-type]


def test_overlap_counts_examples_and_places() -> None:
    """By hand: of 1 to 4 two have several holders; of seven places one repeats."""
    shards = [torch.tensor([1, 2, 2]), torch.tensor([2, 3]), torch.tensor([3, 4])]
    assert overlap(shards) == (2 / 4, 1 / 7)


def test_adversaries_beside_shards_that_overlap() -> None:
    """An adversary still holds none of the honest participants' examples where enough are left."""
    federation = Federation(participants=10, adversaries=1)
    data = Digits(federation, split="CLA", examples_per_participant=80, adversary_examples=100)
    with pytest.warns(UserWarning, match="on its own"):
        data.setup("fit")
    assert data.shard_sizes == [80] * 10 + [100]
    assert not torch.isin(data.shards[10], torch.cat([*data.shards[:10], data.held_out])).any()


def test_classes_that_just_suffice() -> None:
    """Shards overlap where every example is needed once."""
    labels = torch.arange(2).repeat(3)
    assert suffices(labels, torch.tensor([[1, 2], [2, 1]]))
    assert not suffices(labels, torch.tensor([[1, 2], [2, 2]]))
