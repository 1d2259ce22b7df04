"""POW: sizes after a power law."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rffl_pl.datamodules.splits.base import Pool, Split, consecutive, drawn

EXPONENT = 1.65911332899


class POW(Split):
    """Shards that grow after a power law, examples at random; see `power_law`."""

    def cut(self, pool: Pool) -> list[Tensor]:
        """N disjoint shards of ``pool.each`` examples on average."""
        return power_law(len(pool.labels), pool.participants, pool.each, pool.generator)


def power_law(available: int, participants: int, each: int, generator: torch.Generator) -> list[Tensor]:
    r"""Shard sizes follow a power law; examples at random.

    With :math:`b` evenly spaced from :math:`F^{-1}(0.01)` to :math:`F^{-1}(0.99)`, :math:`F^{-1}(p) = p^{1/a}` the
    quantile function of the power-law distribution on [0, 1] and a = 1.65911332899, participant i gets
    :math:`\lceil n N b_i / \sum_j b_j \rceil` examples and the last one what is left; n = ``each``. Sizes ascend, but
    for the last few in a small pool, which the rounding up of the others leaves short.
    """
    total = participants * each
    low, high = (p ** (1 / EXPONENT) for p in (0.01, 0.99))
    b = torch.linspace(low, high, participants, dtype=torch.float64)
    # What is whole, as the middle one's of an odd number, is not rounded up for its last bit.
    sizes = [math.ceil(round(share * total, 9)) for share in (b / b.sum()).tolist()][:-1]
    return consecutive(drawn(available, total, generator), [*sizes, max(0, total - sum(sizes))])
