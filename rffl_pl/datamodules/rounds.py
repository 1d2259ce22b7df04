"""Loaders: one item per communication round for training, plain batches for evaluation.

A Lightning training batch is a communication round. Ranks host shards of unequal length, and Lightning's own
collectives before every training batch would pair up wrongly if ranks saw different numbers of batches; so every rank
sees exactly one per epoch, and the mini-batches are drawn inside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset


def batch_loader(dataset: Dataset[Any], indices: Tensor, batch_size: int, num_workers: int = 0) -> DataLoader[Any]:
    """Mini-batches of ``dataset`` in exactly this order; the last one may be smaller.

    Tensors in memory are indexed a whole batch at a time, which is many times faster than collating single examples.
    """
    batches = indices.split(batch_size)
    if isinstance(dataset, TensorDataset):
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
        """One pass in an order drawn from the surrounding random stream."""
        order = self.indices[torch.randperm(len(self.indices))]
        return batch_loader(self.dataset, order, self.batch_size, self.num_workers)


class RoundLoader:
    """Yields exactly one item: the shards of the participants that this rank hosts, by participant."""

    def __init__(self, shards: dict[int, Shard]) -> None:
        self.shards = shards

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[dict[int, Shard]]:
        yield self.shards
