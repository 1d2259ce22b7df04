"""What models are measured on: the same examples for all, or each its own; all of them, or as many as are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from rffl_pl.datamodules.reading import Batches, Joint, Reader
from rffl_pl.federation import Federation


@dataclass(frozen=True)
class Measuring:
    """Draws the examples that participants are measured on, the same in every pass and on any number of ranks.

    Attributes:
        federation: Who takes part.
        most: At most so many pairs of a participant and an example, if not None.
        batch_size: Examples per batch.
    """

    federation: Federation
    most: int | None
    batch_size: int

    def room(self, pairs: int, part: int) -> int:
        """The number of examples beyond which no participant is measured.

        Args:
            pairs: How many pairs of a participant and an example there are.
            part: Where not all fit, the share of those that do is one over this.
        """
        if self.most is None or pairs <= self.most:
            return pairs
        return max(1, self.most // (part * self.federation.total))

    def sample(self, sizes: Sequence[int], part: int = 1) -> tuple[int, int]:
        """On how many everybody is measured of examples of which each has so many, and how many who has most has.

        Args:
            sizes: How many everybody has, ``[P]``.
            part: See `room`.
        """
        return min(max(sizes), self.room(sum(sizes), part)), max(sizes)

    def common(self, reader: Reader, indices: Tensor, which: str, part: int = 1) -> Batches:
        """Batches of the common examples that everybody is measured on: all, or as many as there is room for.

        Args:
            reader: Reads them.
            indices: Their numbers.
            which: What they are called: names the random stream.
            part: See `room`.
        """
        some = self._drawn(indices, self.room(self.federation.total * len(indices), part), which)
        return reader.batches(reader.bucketed(some), self.batch_size, self._seed(which))

    def apart(self, readers: Mapping[int, Reader], sizes: Sequence[int], which: str, part: int = 1) -> Joint:
        """Batches of their own examples that the hosted participants are measured on.

        Args:
            readers: Read those of the hosted.
            sizes: How many everybody has, ``[P]``.
            which: As above.
            part: See `room`.
        """
        room, _ = self.sample(sizes, part)
        batches = {}
        for i, reader in readers.items():
            some = self._drawn(torch.arange(sizes[i]), room, which, i)
            batches[i] = reader.batches(reader.bucketed(some), self.batch_size)
        return Joint(batches, ceil(room / self.batch_size), self._seed(which))

    def all_apart(self, readers: Mapping[int, Reader], sizes: Sequence[int]) -> Joint:
        """All that the hosted participants have, in their order."""
        batches = {i: reader.batches(torch.arange(sizes[i]), self.batch_size) for i, reader in readers.items()}
        return Joint(batches, ceil(max(sizes) / self.batch_size), self._seed("test"))

    def all_common(self, reader: Reader, count: int) -> Batches:
        """All ``count`` test examples that are everybody's, in their order."""
        return reader.batches(torch.arange(count), self.batch_size, self._seed("test"))

    def _seed(self, which: str) -> int:
        """Of what is drawn where examples are read, a transformation's: the same for all models, whenever measured."""
        return self.federation.seed_for("reading", which)

    def _drawn(self, indices: Tensor, count: int, *names: str | int) -> Tensor:
        """``count`` of the indices, drawn at random, in their order; all where there are no more."""
        if len(indices) <= count:
            return indices
        generator = torch.Generator().manual_seed(self.federation.seed_for("measured", *names))
        return indices[torch.randperm(len(indices), generator=generator)[:count].sort().values]
