"""SHARDS: a few pieces of what is sorted by class."""

from __future__ import annotations

import torch
from torch import Tensor

from rffl_pl.datamodules.splits.base import Pool, Split, by_label, consecutive, drawn
from rffl_pl.errors import UserError, check_number


class SHARDS(Split):
    """Examples sorted by class and dealt in pieces, so that everybody holds few classes; see `sorted_shards`.

    Args:
        shards: Pieces that everybody gets. One that lies across the border of two classes has both.

    Raises:
        UserError: If `shards` is below 1; in `cut`, if it is more than a participant's examples.
    """

    def __init__(self, *, shards: int = 2) -> None:
        check_number("--data.split.shards", shards, 1)
        self.shards = shards

    def cut(self, pool: Pool) -> list[Tensor]:
        """N disjoint shards of ``pool.each`` examples."""
        if self.shards > pool.each:
            raise UserError(
                f"Expected --data.split.shards to be at most the {pool.each} examples that a participant holds, but "
                f"got {self.shards}; lower it."
            )
        return sorted_shards(pool.labels, pool.participants, pool.each, self.shards, pool.generator)


def sorted_shards(
    labels: Tensor, participants: int, each: int, shards: int, generator: torch.Generator
) -> list[Tensor]:
    r"""Of n N random examples, sorted by class and cut into k N pieces, everybody gets k at random.

    The pathological split of McMahan et al. 2017 (https://arxiv.org/abs/1602.05629), who have k = 2; k = ``shards``.
    All get n = ``each`` examples: a piece has n / k, and where k does not divide n everybody's first n mod k pieces
    have one more than the others.
    """
    ordered = by_label(drawn(len(labels), participants * each, generator), labels)
    place = torch.randperm(participants * shards, generator=generator)  # piece j is the (place_j mod k)-th of somebody
    pieces = consecutive(ordered, (each // shards + (place % shards < each % shards)).tolist())
    hands = place.argsort().view(participants, shards).tolist()
    return [torch.cat([pieces[j] for j in hand]) for hand in hands]
