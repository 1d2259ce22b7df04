"""Downloads that are sparse in proportion to a quota: the largest entries of one aggregate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rffl_pl.functional import sparsify
from rffl_pl.servers.coordinates import Coordinates


def largest_parts(
    aggregate: Tensor, quotas: Tensor, groups: Sequence[int], coordinates: Coordinates, *, round_up: bool
) -> Callable[[int], Tensor]:
    """What cuts an aggregate to each participant's quota, from one sort; the parts are computed when asked for.

    Args:
        aggregate: ``[d]``, of the coordinates that are here.
        quotas: Which share of every group's entries each participant receives, ``[P]``; NaN for nothing at all.
        groups: Sizes of the groups that are cut separately, the layers or D.
        coordinates: Those that are here.
        round_up: Whether the number of entries of a group is rounded up, or down.
    """
    sizes = coordinates.sizes(groups)
    ranks = sparsify.magnitude_ranks(aggregate, sizes)
    counts = [sparsify.group_counts(quota, groups, round_up=round_up) for quota in quotas.nan_to_num(0.0).tolist()]
    here = coordinates.largest(aggregate, ranks, groups, torch.tensor(counts)).tolist()

    def part(participant: int) -> Tensor:
        if quotas[participant].isnan():
            return torch.zeros_like(aggregate)
        return sparsify.keep_largest(aggregate, ranks, here[participant], sizes)

    return part
