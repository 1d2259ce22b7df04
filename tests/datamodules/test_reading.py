"""Mini-batches: in order, in epochs of a shard, and from worker processes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from rffl_pl.datamodules import FederatedDataModule, Sources
from rffl_pl.datamodules.border import labels_of
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import RoundLoader, Shard
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.datamodules.small import *

def test_a_round_is_one_item_of_all_hosted_shards() -> None:
    """The training loader yields once: for every hosted participant its shard in mini-batches."""
    data = ready(InMemory(Federation(participants=3), split="UNI", examples_per_participant=20, batch_size=8))
    data.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False)
    (item,) = list(data.train_dataloader())
    assert list(item) == [0, 1, 2]
    assert len(data.train_dataloader()) == 1
    for participant, shard in item.items():
        assert [len(y) for _, y in shard.epoch()] == [8, 8, 4]
        assert sorted(contents(shard.epoch())) == sorted(data.shards[participant].tolist())


@pytest.mark.parametrize("dataset", [tensors(30), Plain(30)], ids=["tensors", "plain"])
def test_batches_come_in_the_given_order(dataset: Dataset[Any]) -> None:
    """Batches hold exactly the given examples in the given order; the last one may be smaller."""
    order = torch.tensor([5, 3, 29, 0, 7, 7, 1])
    batches = list(Reader(dataset).batches(order, 3))
    assert [len(y) for _, y in batches] == [3, 3, 1]
    assert torch.cat([x.flatten() for x, _ in batches]).tolist() == order.tolist()
    assert torch.cat([y for _, y in batches]).tolist() == (order % CLASSES).tolist()


def test_epochs_of_a_shard_follow_the_random_stream() -> None:
    """An epoch is a permutation of the shard, new each time, and the same again from the same seed."""
    shard = Shard(tensors(100), torch.arange(10, 60), batch_size=16)
    assert len(shard) == 50
    torch.manual_seed(3)
    first, second = contents(shard.epoch()), contents(shard.epoch())
    torch.manual_seed(3)
    assert contents(shard.epoch()) == first != second
    assert sorted(first) == sorted(second) == list(range(10, 60))


def test_round_loader_can_be_walked_again() -> None:
    """Every epoch of Lightning gets the same one item."""
    loader = RoundLoader({4: Shard(tensors(10), torch.arange(3), 2)})
    assert [list(item) for item in loader] == [list(item) for item in loader] == [[4]]


@pytest.mark.parametrize("dataset", [tensors(100), Plain(100)], ids=["tensors", "plain"])
def test_relabelled_shards(dataset: Dataset[Any]) -> None:
    """The same batches in the same order from the same stream, which ends where the shard's does; other labels."""
    shard = Shard(dataset, torch.arange(10, 60).flip(0), batch_size=16)
    pretended = shard.relabelled(lambda y: torch.where(y == 1, 3, y))
    for walk in ("epoch", "epoch", "in_order"):
        torch.manual_seed(3)
        true, after = list(getattr(shard, walk)()), torch.get_rng_state()
        torch.manual_seed(3)
        false = list(getattr(pretended, walk)())
        assert torch.equal(torch.get_rng_state(), after)
        assert len(true) == len(false) == 4
        for (x, y), (same, other) in zip(true, false, strict=True):
            assert torch.equal(x, same)
            assert other.tolist() == [3 if label == 1 else label for label in y.tolist()]
            assert y.tolist() == (x.flatten() % CLASSES).tolist()


def test_a_shard_in_order() -> None:
    """Its examples as they were dealt, every time, without a draw from the random stream that training uses."""
    order = torch.tensor([5, 3, 29, 0, 1])
    shard = Shard(tensors(30), order, batch_size=2)
    assert contents(shard.in_order()) == contents(shard.in_order()) == order.tolist()
    assert [len(y) for _, y in shard.in_order()] == [2, 2, 1]
