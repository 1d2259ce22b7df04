"""The training loader: one item per communication round.

A Lightning training batch is a communication round. Ranks host shards of unequal length, and Lightning's own
collectives before every training batch would pair up wrongly if ranks saw different numbers of batches; so every rank
sees exactly one per epoch, and the mini-batches are drawn inside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rffl_pl.datamodules.augmenting import Augmentation, Augmented
from rffl_pl.datamodules.reading import Batches, Reader
from rffl_pl.datamodules.sentences import Sentences


class Shard:
    """One participant's private examples.

    Args:
        reader: Reads what shards share.
        indices: The participant's examples in it.
        batch_size: Examples per mini-batch.
        augment: Changes them whenever they are trained on.
    """

    def __init__(
        self,
        reader: Reader,
        indices: Tensor,
        batch_size: int,
        augment: Augmentation | None = None,
    ) -> None:
        self.reader, self.indices, self.batch_size, self.augment = reader, indices, batch_size, augment

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def batches(self) -> int:
        """How many mini-batches a pass has."""
        return -(-len(self.indices) // self.batch_size)

    def epoch(self) -> Batches:
        """One pass in an order drawn from the surrounding random stream.

        Sentences are shuffled, put into batches of like length, and the batches shuffled.
        """
        return self._trained_on(self._order())

    def steps(self, count: int) -> Batches:
        """So many mini-batches, of passes as `epoch` draws them, one after another; the last one is cut off."""
        order: list[Tensor] = []
        while len(order) < count:
            order += self._order()
        return self._trained_on(order[:count])

    def in_order(self) -> Batches:
        """One pass in a fixed order: as the examples were dealt, sentences by length; as they are."""
        return self.reader.batches(self.reader.bucketed(self.indices), self.batch_size)

    def _order(self) -> list[Tensor]:
        """The examples of every mini-batch of one pass."""
        order = self.indices[torch.randperm(len(self.indices))]
        batches = list(self.reader.bucketed(order).split(self.batch_size))
        if isinstance(self.reader.dataset, Sentences):
            batches = [batches[i] for i in torch.randperm(len(batches)).tolist()]
        return batches

    def _trained_on(self, order: Sequence[Tensor]) -> Batches:
        return Batches(self.reader, order) if self.augment is None else Augmented(self.reader, order, self.augment)


class RoundLoader:
    """Yields exactly one item: the shards of the participants that this rank hosts, by participant."""

    def __init__(self, shards: dict[int, Shard]) -> None:
        self.shards = shards

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[dict[int, Shard]]:
        yield self.shards
