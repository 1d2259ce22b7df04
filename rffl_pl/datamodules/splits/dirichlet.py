"""DIR: Dirichlet label skew."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from rffl_pl.datamodules.splits.base import Pool, Split, drawn
from rffl_pl.errors import UserError

ALPHA = 0.5

MOST = 1e300
"""An alpha beyond which the draws of many participants have no finite sum."""

UNDERFLOW = 1e-300
"""Draws with a smaller sum say nothing: torch gives its smallest positive number for all that underflow."""


class DIR(Split):
    r"""Dirichlet label skew: of every class a random share; see `dirichlet`.

    Args:
        alpha: Concentration :math:`\alpha`; by default ``dirichlet_alpha`` of the data module.

    Raises:
        UserError: If `alpha` is not positive, or beyond all sense.
    """

    def __init__(self, *, alpha: float | None = None) -> None:
        if alpha is not None:
            check_alpha("--data.split.alpha", alpha)
        self.alpha = alpha

    def cut(self, pool: Pool) -> list[Tensor]:
        """N disjoint shards of ``pool.each`` examples on average."""
        alpha = ALPHA if self.alpha is None else self.alpha
        return dirichlet(pool.labels, pool.num_classes, pool.participants, pool.each, alpha, pool.generator)


def check_alpha(option: str, alpha: float) -> None:
    """See that something can be a concentration.

    Raises:
        UserError: If it is not positive, or beyond all sense.
    """
    if not 0 < alpha <= MOST:
        raise UserError(f"Expected {option} to be positive and at most {MOST:g}, but got {alpha}; try {ALPHA}.")


def dirichlet(
    labels: Tensor, num_classes: int, participants: int, each: int, alpha: float, generator: torch.Generator
) -> list[Tensor]:
    r"""Of every class among n N random examples, participant i gets a share drawn from Dirichlet(:math:`\alpha`).

    Label skew as in Yurochkin et al. 2019 (https://arxiv.org/abs/1905.12022); a small :math:`\alpha` gives every
    participant few classes. Shard sizes vary; n = ``each`` is their mean. Where all draws for a class are too small to
    be told apart, as with an :math:`\alpha` near 0, one participant gets the whole class: whoever it is, as all are
    equal.
    """
    chosen = drawn(len(labels), participants * each, generator)
    gamma = torch.distributions.Gamma(torch.full((participants,), alpha, dtype=torch.float64), 1.0)
    parts: list[list[Tensor]] = [[] for _ in range(participants)]
    with torch.random.fork_rng(devices=[]):  # distributions draw from the global stream
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        for c in range(num_classes):
            members = chosen[labels[chosen] == c]
            shares = gamma.sample()
            if shares.sum() < UNDERFLOW:
                shares = one_hot(torch.randint(participants, ()), participants).double()
            ends = (shares.cumsum(0) / shares.sum() * len(members)).round().long().tolist()
            for i, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                parts[i].append(members[start:end])
    return [torch.cat(part) for part in parts]
