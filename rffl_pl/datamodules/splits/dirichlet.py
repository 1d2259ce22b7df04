"""DIR: Dirichlet label skew."""

from __future__ import annotations

import torch
from torch import Tensor

from rffl_pl.datamodules.splits.base import Pool, Split, drawn
from rffl_pl.errors import UserError

ALPHA = 0.5


class DIR(Split):
    r"""Dirichlet label skew: of every class a random share; see `dirichlet`.

    Args:
        alpha: Concentration :math:`\alpha`; by default ``dirichlet_alpha`` of the data module.

    Raises:
        UserError: If `alpha` is not positive.
    """

    def __init__(self, *, alpha: float | None = None) -> None:
        if alpha is not None and not alpha > 0:
            raise UserError(f"Expected --data.split.alpha to be positive, but got {alpha}; try {ALPHA}.")
        self.alpha = alpha

    def cut(self, pool: Pool) -> list[Tensor]:
        """N disjoint shards of ``pool.each`` examples on average."""
        alpha = ALPHA if self.alpha is None else self.alpha
        return dirichlet(pool.labels, pool.num_classes, pool.participants, pool.each, alpha, pool.generator)


def dirichlet(
    labels: Tensor, num_classes: int, participants: int, each: int, alpha: float, generator: torch.Generator
) -> list[Tensor]:
    r"""Of every class among n N random examples, participant i gets a share drawn from Dirichlet(:math:`\alpha`).

    Label skew as in Hsu et al. 2019 (https://arxiv.org/abs/1909.06335); a small :math:`\alpha` gives every participant
    few classes. Shard sizes vary; n = ``each`` is their mean.
    """
    chosen = drawn(len(labels), participants * each, generator)
    gamma = torch.distributions.Gamma(torch.full((participants,), alpha, dtype=torch.float64), 1.0)
    parts: list[list[Tensor]] = [[] for _ in range(participants)]
    with torch.random.fork_rng(devices=[]):  # distributions draw from the global stream
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        for c in range(num_classes):
            members = chosen[labels[chosen] == c]
            shares = gamma.sample()
            ends = (shares.cumsum(0) / shares.sum() * len(members)).round().long().tolist()
            for i, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                parts[i].append(members[start:end])
    return [torch.cat(part) for part in parts]
