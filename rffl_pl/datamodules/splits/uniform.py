"""UNI: equal shards."""

from __future__ import annotations

import torch
from torch import Tensor

from rffl_pl.datamodules.splits.base import Pool, Split, consecutive, drawn


class UNI(Split):
    """Equal shards, examples at random; see `uniform`."""

    def cut(self, pool: Pool) -> list[Tensor]:
        """N disjoint shards of ``pool.each`` examples."""
        return uniform(len(pool.labels), pool.participants, pool.each, pool.generator)


def uniform(available: int, participants: int, each: int, generator: torch.Generator) -> list[Tensor]:
    """``each`` examples for everybody, at random."""
    return consecutive(drawn(available, participants * each, generator), [each] * participants)
