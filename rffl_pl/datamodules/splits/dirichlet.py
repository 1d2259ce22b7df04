"""DIR: Dirichlet label skew."""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from rffl_pl.datamodules.splits.base import Pool, Split, drawn, of_each_class
from rffl_pl.errors import UserError, check_number
from rffl_pl.functional.streams import random_stream

ALPHA = 0.5

DRAWS = 1000
"""So often is drawn for a least shard: seconds."""

LARGEST_ALPHA = 1e300
"""An alpha beyond which the draws of many participants have no finite sum."""

UNDERFLOW = 1e-300
"""Draws with a smaller sum say nothing: torch gives its smallest positive number for all that underflow."""


class DIR(Split):
    r"""Dirichlet label skew: of every class a random share; see `dirichlet`.

    Args:
        alpha: Concentration :math:`\alpha`; by default ``dirichlet_alpha`` of the data module.
        least: Examples that everybody holds at least: the shares are drawn again, up to 1,000 times, until they do. By
            default they are drawn once, and refused where they leave somebody without any.

    Raises:
        UserError: If `alpha` is not positive, or beyond all sense, or `least` below 1; in `cut`, if `least` is more
            than the mean, or no draw has as many for everybody.
    """

    def __init__(self, *, alpha: float | None = None, least: int | None = None) -> None:
        if alpha is not None:
            check_alpha("--data.split.alpha", alpha)
        if least is not None:
            check_number("--data.split.least", least, 1)
        self.alpha, self.least = alpha, least

    def concentrated(self, alpha: float) -> DIR:
        """The same split, of whatever class, with that concentration."""
        other = copy(self)
        other.alpha, other.arguments = alpha, {**self.arguments, "alpha": alpha}
        return other

    def cut(self, pool: Pool) -> list[Tensor]:
        """N disjoint shards of ``pool.each`` examples on average."""
        alpha = ALPHA if self.alpha is None else self.alpha
        if self.least is not None and self.least > pool.each:
            raise UserError(
                f"Expected --data.split.least to be at most the {pool.each} examples that a participant holds on "
                f"average, but got {self.least}; lower it."
            )
        return dirichlet(
            pool.labels, pool.num_classes, pool.participants, pool.each, alpha, pool.generator, self.least or 0
        )


def check_alpha(option: str, alpha: float) -> None:
    """See that something can be a concentration.

    Raises:
        UserError: If it is not positive, or beyond all sense.
    """
    if not 0 < alpha <= LARGEST_ALPHA:
        raise UserError(
            f"Expected {option} to be positive and at most {LARGEST_ALPHA:g}, but got {alpha}; try {ALPHA}."
        )


def dirichlet(
    labels: Tensor,
    num_classes: int,
    participants: int,
    each: int,
    alpha: float,
    generator: torch.Generator,
    least: int = 0,
) -> list[Tensor]:
    r"""Of every class among n N random examples, participant i gets a share drawn from Dirichlet(:math:`\alpha`).

    Label skew as in Yurochkin et al. 2019 (https://arxiv.org/abs/1905.12022); a small :math:`\alpha` gives every
    participant few classes. Shard sizes vary; n = ``each`` is their mean. Where all draws for a class are too small to
    be told apart, as with an :math:`\alpha` near 0, one participant gets the whole class: whoever it is, as all are
    equal. Where somebody gets fewer than ``least`` examples, the shares of all classes are drawn again.

    Raises:
        UserError: If there are not as many examples, or somebody gets fewer than ``least`` however often is drawn.
    """
    chosen = drawn(len(labels), participants * each, generator)
    members = of_each_class(chosen, labels, num_classes)
    counts = [len(found) for found in members]
    seed = int(torch.randint(2**62, (1,), generator=generator))
    with random_stream(seed, torch.device("cpu")):  # distributions draw from the global stream
        ends = _ends(counts, participants, alpha, least)
    pieces = [found.tensor_split(last[:-1]) for found, last in zip(members, ends, strict=True)]
    return [torch.cat(part) for part in zip(*pieces, strict=True)]


def _ends(counts: list[int], participants: int, alpha: float, least: int) -> Tensor:
    """Behind which of a class's examples everybody's part of it ends, ``[C, N]``, drawn from the global stream."""
    gamma = torch.distributions.Gamma(torch.full((participants,), alpha, dtype=torch.float64), 1.0)
    best = 0
    for _ in range(DRAWS):
        ends = torch.stack([(_running_share(gamma) * count).round().long() for count in counts])
        fewest = int(ends.diff(dim=1, prepend=ends.new_zeros(len(ends), 1)).sum(0).min())
        if fewest >= least:
            return ends
        best = max(best, fewest)
    lower = f"--data.split.least to {best} or " if best else ""  # the same draws come again
    raise UserError(
        f"Expected one of {DRAWS} draws of split DIR to give each of {participants} participants {least} examples, but "
        f"the best gives somebody {best}; raise --data.split.alpha, or lower {lower}--federation.participants."
    )


def _running_share(gamma: torch.distributions.Gamma) -> Tensor:
    """Sums ``[N]`` of shares of a class that are drawn at random: what all up to a participant get."""
    shares = gamma.sample()
    if shares.sum() < UNDERFLOW:
        participants = len(shares)
        shares = one_hot(torch.randint(participants, ()), participants).double()
    return shares.cumsum(0) / shares.sum()
