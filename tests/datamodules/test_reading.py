"""Mini-batches: in order, in epochs of a shard, and from worker processes."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from rffl_pl.adversaries.cast import Poisoned
from rffl_pl.datamodules import FederatedDataModule, Sources
from rffl_pl.datamodules.reading import Batches, Reader
from rffl_pl.datamodules.rounds import RoundLoader, Shard
from rffl_pl.federation import Federation
from tests.datamodules.small import CLASSES, InMemory, Plain, contents, ready, tensors


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
    shard = Shard(Reader(tensors(100)), torch.arange(10, 60), batch_size=16)
    assert len(shard) == 50
    torch.manual_seed(3)
    first, second = contents(shard.epoch()), contents(shard.epoch())
    torch.manual_seed(3)
    assert contents(shard.epoch()) == first != second
    assert sorted(first) == sorted(second) == list(range(10, 60))


def test_round_loader_can_be_walked_again() -> None:
    """Every epoch of Lightning gets the same one item."""
    loader = RoundLoader({4: Shard(Reader(tensors(10)), torch.arange(3), 2)})
    assert [list(item) for item in loader] == [list(item) for item in loader] == [[4]]


@pytest.mark.parametrize("dataset", [tensors(100), Plain(100)], ids=["tensors", "plain"])
def test_poisoned_shards(dataset: Dataset[Any]) -> None:
    """The same batches in the same order from the same stream, which ends where the shard's does; other labels."""
    shard = Shard(Reader(dataset), torch.arange(10, 60).flip(0), batch_size=16)
    pretended = Poisoned(shard, lambda x, y: (x, torch.where(y == 1, 3, y)))
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
    shard = Shard(Reader(tensors(30)), order, batch_size=2)
    assert contents(shard.in_order()) == contents(shard.in_order()) == order.tolist()
    assert [len(y) for _, y in shard.in_order()] == [2, 2, 1]


class Noisy(Plain):
    """Examples with an augmentation at random, and which process made them."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.tensor([float(index), float(torch.rand(())), float(os.getpid())]), index % CLASSES


def passes(shard: Shard, seeds: list[int]) -> tuple[list[Tensor], set[int]]:
    """Examples and noise of an epoch after each seed, and the processes they were made in."""
    found, processes = [], set()
    for seed in seeds:
        torch.manual_seed(seed)
        x = torch.cat([x for x, _ in shard.epoch()])
        found += [x[:, :2], torch.rand(1)]  # the stream ends where it ended before
        processes |= set(x[:, 2].int().tolist())
    return found, processes


@pytest.mark.parametrize("num_workers", [0, 2])
def test_passes_are_those_of_new_loaders_of_torch(num_workers: int) -> None:
    """Order, what a dataset draws at random, and the stream's end: all as with a DataLoader started for each pass."""
    indices = torch.arange(10, 60)
    shard = Shard(Reader(Noisy(100), num_workers), indices, 8)
    mine, _ = passes(shard, [3, 4, 3])
    theirs = []
    for seed in (3, 4, 3):
        torch.manual_seed(seed)
        order = indices[torch.randperm(50)].split(8)
        loader = DataLoader(Noisy(100), batch_sampler=[b.tolist() for b in order], num_workers=num_workers)
        theirs += [torch.cat([x for x, _ in loader])[:, :2], torch.rand(1)]
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert not torch.equal(mine[0], mine[2])


def test_workers_stay_from_pass_to_pass() -> None:
    """Shards that share a reader share its processes, and no pass shows in the next one's draws."""
    reader = Reader(Noisy(100), 2)
    one, other = (Shard(reader, indices, 8) for indices in torch.arange(80).split(40))
    first, processes = passes(one, [5])
    between, also = passes(other, [9, 8])
    again, still = passes(one, [5])
    assert processes == also == still
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert len(between) == 4


class Transformed(FederatedDataModule):
    """Draws at random wherever an example is read, as with an augmentation."""

    num_classes = CLASSES

    def load(self) -> Sources:
        return Sources(train=Noisy(100), test=Noisy(40))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_is_measured_is_drawn_alike_in_every_pass(num_workers: int) -> None:
    """Accuracies would depend on how often models were measured before, and with that on an interruption."""
    data = Transformed(
        Federation(participants=2), batch_size=8, validation=0.3, num_workers=num_workers, eval_batch_size=16
    )
    ready(data)
    for loader in (data.test_dataloader(), data.val_dataloader(), data.predict_dataloader()):
        assert isinstance(loader, Batches)
        found = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            found.append(torch.cat([x[:, :2] for x, _ in loader]))
            assert torch.equal(torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(seed)))
        assert torch.equal(*found)
        assert len(found[0][:, 1].unique()) == len(found[0]) >= 20
    data.teardown("fit")


def test_passes_beside_each_other_and_left_early() -> None:
    """Each pass sees its own examples, also where another is under way or was not walked to its end."""
    reader = Reader(Plain(100), 1)
    one, other = (reader.batches(indices, 5) for indices in torch.arange(40).split(20))
    assert [(a.flatten().tolist(), b.flatten().tolist()) for (a, _), (b, _) in zip(one, other, strict=True)] == [
        (list(range(i, i + 5)), list(range(20 + i, 25 + i))) for i in (0, 5, 10, 15)
    ]
    assert next(iter(one))[0].flatten().tolist() == [0, 1, 2, 3, 4]
    assert contents(other) == list(range(20, 40))
