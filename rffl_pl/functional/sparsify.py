"""Top-k sparsification of the aggregate, for all participants from one sort.

Shapes: D = parameters; ``sizes`` are the numbers of entries of the groups that are cut separately: the layers, or
``[D]`` for a cut over the whole vector. Supports nest: whoever has the larger quota gets all that the others get.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rffl_pl.functional.finite import all_finite


def magnitude_ranks(aggregate: Tensor, sizes: Sequence[int]) -> Tensor:
    """Position of every entry in its group's order of descending magnitude, as ``[D]`` int64.

    Ties keep their order in the vector, so that "the k largest" is always exactly k entries and always the same.
    """
    ranks = torch.empty(aggregate.numel(), dtype=torch.int64, device=aggregate.device)
    for group, group_ranks in zip(aggregate.split(list(sizes)), ranks.split(list(sizes)), strict=True):
        places = torch.arange(group.numel(), device=aggregate.device)
        group_ranks[_descending(group.abs(), places)] = places
    return ranks


def _descending(magnitudes: Tensor, places: Tensor) -> Tensor:
    """The places of magnitudes in the order from the largest on, ties as they lie."""
    if magnitudes.device.type != "cpu" or magnitudes.dtype != torch.float32:
        return magnitudes.argsort(descending=True, stable=True)
    # Bit patterns grow with magnitudes. With the place below them they are numbers of which no two are alike, and which
    # NumPy sorts with vector instructions: torch's sort takes three to six times as long.
    keys = magnitudes.view(torch.int32).long().mul_(-(1 << 32)).add_(places)
    keys.numpy().sort()
    return keys.bitwise_and_((1 << 32) - 1)


def group_counts(quota: float, sizes: Sequence[int], *, round_up: bool) -> list[int]:
    r"""Entries to keep of every group of n: :math:`\lceil n q \rceil` or :math:`\lfloor n q \rfloor`; 0 if q <= 0."""
    if quota <= 0:
        return [0] * len(sizes)
    return [min(size, _whole(size * quota, round_up=round_up)) for size in sizes]


def _whole(count: float, *, round_up: bool) -> int:
    """The count rounded; one that is whole but for last bits, as 100 times 0.07, is taken for whole."""
    near = round(count)
    if abs(count - near) <= 1e-12 * near:
        return near
    return math.ceil(count) if round_up else math.floor(count)


def keep_largest(aggregate: Tensor, ranks: Tensor, counts: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """``aggregate`` ``[D]`` with all but the ``counts[g]`` largest entries of every group g set to zero."""
    kept = torch.zeros_like(aggregate)
    groups = zip(kept.split(list(sizes)), aggregate.split(list(sizes)), ranks.split(list(sizes)), counts, strict=True)
    for target, source, group_ranks, count in groups:
        torch.where(group_ranks < count, source, target, out=target)
    return kept


def largest_entries(vector: Tensor, count: int) -> Tensor:
    """``vector`` ``[D]`` with all but its ``count`` largest entries set to zero; as it is where not all are finite."""
    if not all_finite(vector):
        return vector
    sizes = [vector.numel()]
    return keep_largest(vector, magnitude_ranks(vector, sizes), [count], sizes)


def sorted_magnitudes(vector: Tensor, ranks: Tensor, sizes: Sequence[int]) -> Tensor:
    r"""The magnitudes of finite float32 entries, group after group in ascending order, as keys ``[D]`` int64.

    The key of magnitude a in group g is :math:`2^{31} g` + its bit pattern, which grows with a.

    Args:
        vector: ``[D]``.
        ranks: Its `magnitude_ranks`.
        sizes: Of the groups.
    """
    keys = torch.empty_like(ranks)
    groups = zip(keys.split(list(sizes)), vector.split(list(sizes)), ranks.split(list(sizes)), strict=True)
    for number, (target, source, group_ranks) in enumerate(groups):
        target[len(source) - 1 - group_ranks] = source.abs().view(torch.int32).long().add_(number << 31)
    return keys


def count_as_large(keys: Tensor, patterns: Tensor, sizes: Sequence[int]) -> Tensor:
    """How many entries of each of G groups have at least a bit pattern ``[..., G]``, as ``[..., G]``.

    Args:
        keys: `sorted_magnitudes`.
        patterns: Of magnitudes, int64; 2^31 is above all.
        sizes: Of the groups.
    """
    groups = torch.arange(len(sizes), device=keys.device)
    ends = torch.tensor(sizes, device=keys.device).cumsum(0)
    return ends - torch.searchsorted(keys, (patterns + (groups << 31)).contiguous())


def largest_pattern(counts: Tensor, count_as_large: Callable[[Tensor], Tensor]) -> Tensor:
    """The largest bit patterns of magnitudes that so many entries at least have, found four bits at a time.

    Args:
        counts: How many, ``[P, G]`` int64.
        count_as_large: How many entries have at least the patterns ``[n, P, G]``, none of them above 2^31.
    """
    patterns = torch.zeros_like(counts)
    digits = torch.arange(1, 16, device=counts.device).view(-1, 1, 1)
    for shift in range(28, -1, -4):
        enough = count_as_large((patterns + (digits << shift)).clamp_max(1 << 31)) >= counts
        patterns = (patterns + (enough.sum(0) << shift)).clamp_max((1 << 31) - 1)
    return patterns
