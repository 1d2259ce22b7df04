"""Loaders: one item per communication round for training, plain batches for evaluation.

A Lightning training batch is a communication round. Ranks host shards of unequal length, and Lightning's own
collectives before every training batch would pair up wrongly if ranks saw different numbers of batches; so every rank
sees exactly one per epoch, and the mini-batches are drawn inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset

from rffl_pl.datamodules.sentences import Sentences


def batch_loader(dataset: Dataset[Any], indices: Tensor, batch_size: int, num_workers: int = 0) -> DataLoader[Any]:
    """Mini-batches of ``dataset`` in exactly this order; the last one may be smaller.

    What lies in memory is indexed a whole batch at a time, which is many times faster than collating single examples.
    """
    return _loader(dataset, indices.split(batch_size), num_workers)


def bucketed(dataset: Dataset[Any], indices: Tensor) -> Tensor:
    """The examples ``indices`` in an order in which sentences of like length come together; others as they are."""
    return dataset.by_length(indices) if isinstance(dataset, Sentences) else indices


def _loader(dataset: Dataset[Any], batches: Sequence[Tensor], num_workers: int) -> DataLoader[Any]:
    if isinstance(dataset, TensorDataset | Sentences):
        return DataLoader(dataset, sampler=batches, batch_size=None)
    return DataLoader(dataset, batch_sampler=_Batches(batches), num_workers=num_workers)


class _Batches(Sampler[list[int]]):
    """Batches that are known beforehand."""

    def __init__(self, batches: Sequence[Tensor]) -> None:
        self.batches = [batch.tolist() for batch in batches]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)


class Shard:
    """One participant's private examples.

    Args:
        dataset: A map-style dataset of (x, y).
        indices: The participant's examples in it.
        batch_size: Examples per mini-batch.
        num_workers: Worker processes for datasets that are not tensors in memory.
    """

    def __init__(self, dataset: Dataset[Any], indices: Tensor, batch_size: int, num_workers: int = 0) -> None:
        self.dataset, self.indices, self.batch_size, self.num_workers = dataset, indices, batch_size, num_workers

    def __len__(self) -> int:
        return len(self.indices)

    def epoch(self) -> DataLoader[Any]:
        """One pass in an order drawn from the surrounding random stream.

        Sentences are shuffled, put into batches of like length, and the batches shuffled.
        """
        order = self.indices[torch.randperm(len(self.indices))]
        batches = bucketed(self.dataset, order).split(self.batch_size)
        if isinstance(self.dataset, Sentences):
            batches = tuple(batches[i] for i in torch.randperm(len(batches)).tolist())
        return _loader(self.dataset, batches, self.num_workers)

    def in_order(self) -> DataLoader[Any]:
        """One pass in a fixed order: as the examples were dealt, sentences by length."""
        return batch_loader(self.dataset, bucketed(self.dataset, self.indices), self.batch_size, self.num_workers)

    def relabelled(self, labels: Callable[[Tensor], Tensor]) -> Relabelled:
        """The same examples with other labels."""
        return Relabelled(self, labels)


class Relabelled:
    """A shard as its holder pretends it is.

    Args:
        shard: The examples.
        labels: From the true classes of a batch, ``[B]``, to those given, ``[B]``.
    """

    def __init__(self, shard: Shard, labels: Callable[[Tensor], Tensor]) -> None:
        self.shard, self.labels = shard, labels

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """As the shard's, batch for batch."""
        return ((x, self.labels(y)) for x, y in self.shard.epoch())

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        """As the shard's, batch for batch."""
        return ((x, self.labels(y)) for x, y in self.shard.in_order())


class RoundLoader:
    """Yields exactly one item: the shards of the participants that this rank hosts, by participant."""

    def __init__(self, shards: dict[int, Shard]) -> None:
        self.shards = shards

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[dict[int, Shard]]:
        yield self.shards
