"""Top-k sparsification of the aggregate, for all participants from one sort.

Shapes: D = parameters; ``sizes`` are the numbers of entries of the groups that are cut separately: the layers, or
``[D]`` for a cut over the whole vector. Supports nest: whoever has the larger quota gets all that the others get.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def magnitude_ranks(aggregate: Tensor, sizes: Sequence[int]) -> Tensor:
    """Position of every entry in its group's order of descending magnitude, as ``[D]`` int64.

    Ties keep their order in the vector, so that "the k largest" is always exactly k entries and always the same.
    """
    ranks = torch.empty(aggregate.numel(), dtype=torch.int64, device=aggregate.device)
    for group, group_ranks in zip(aggregate.split(list(sizes)), ranks.split(list(sizes)), strict=True):
        order = group.abs().argsort(descending=True, stable=True)
        group_ranks[order] = torch.arange(group.numel(), device=aggregate.device)
    return ranks


def group_counts(quota: float, sizes: Sequence[int], *, round_up: bool) -> list[int]:
    r"""Entries to keep of every group of n: :math:`\lceil n q \rceil` or :math:`\lfloor n q \rfloor`; 0 if q <= 0."""
    if quota <= 0:
        return [0] * len(sizes)
    whole = math.ceil if round_up else math.floor
    return [min(size, whole(size * quota)) for size in sizes]


def keep_largest(aggregate: Tensor, ranks: Tensor, counts: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """``aggregate`` ``[D]`` with all but the ``counts[g]`` largest entries of every group g set to zero."""
    kept = torch.zeros_like(aggregate)
    groups = zip(kept.split(list(sizes)), aggregate.split(list(sizes)), ranks.split(list(sizes)), counts, strict=True)
    for target, source, group_ranks, count in groups:
        torch.where(group_ranks < count, source, target, out=target)
    return kept


def largest_entries(vector: Tensor, count: int) -> Tensor:
    """``vector`` ``[D]`` with all but its ``count`` largest entries set to zero; as it is where not all are finite."""
    if not vector.isfinite().all():
        return vector
    sizes = [vector.numel()]
    return keep_largest(vector, magnitude_ranks(vector, sizes), [count], sizes)
