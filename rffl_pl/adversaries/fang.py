"""Against the honest direction, just beyond the honest or as far as Krum allows (Fang et al., USENIX Security 2020)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rffl_pl.adversaries.base import OmniscientAdversary, Situation
from rffl_pl.errors import UserError
from rffl_pl.functional.aggregation import squared_distances
from rffl_pl.functional.blocks import add_up

_HALVINGS = 20
"""After so many a step that Krum still does not choose is given up: a millionth of the first."""


class Fang(OmniscientAdversary):
    r"""Knows the honest uploads and the kind of rule, and pushes the model against the direction it would take.

    With s the sign of the honest mean in every entry, by which the model would move without an attack (Fang, Cao, Jia
    & Gong 2020, *Local Model Poisoning Attacks to Byzantine-Robust Federated Learning*,
    https://arxiv.org/abs/1911.11815, with full knowledge):

    Against ``trimmed_mean``, and the median, every adversary draws every entry j for itself, uniformly, just beyond the
    h honest :math:`u_{ij}`, with :math:`a_j = \max_i u_{ij}` where :math:`s_j = -1` and
    :math:`a_j = \min_i u_{ij}` where :math:`s_j = 1`: between :math:`a_j` and :math:`b a_j` or :math:`a_j / b`,
    whichever lies beyond. Where the honest mean is 0 it uploads 0.

    Against ``krum`` all of f upload :math:`-\lambda s`. Of n = h + f uploads Krum chooses the one whose n - f - 2
    nearest others are closest to it (`rffl_pl.servers.MultiKrum` with ``selected=1``). From its upper bound
    :math:`\lambda` is halved until that is theirs, 20 times at most: where the honest agree it never is, and what is
    uploaded is next to nothing. With e the number of entries where s is not 0, and :math:`N_i` the n - f - 2 honest
    nearest to i,

    .. math::
        \lambda_0 = \sqrt{\frac{\min_i \sum_{j \in N_i} \|u_i - u_j\|^2}{(n - 2f - 1) \, e}} +
        \frac{\max_i \|u_i\|}{\sqrt{e}},

    with n - f - 2 and n - 2f - 1 never less than 1. Two things differ from the authors: they forge models, and here, as
    in most later work, it is uploads; and their s is the sign of the step that the rule itself would make.

    Args:
        against: The rule.
        b: b, how far beyond the honest an entry may lie.

    Raises:
        UserError: If `b` is no finite number of 1 or more.
    """

    def __init__(self, *, against: Literal["trimmed_mean", "krum"] = "trimmed_mean", b: float = 2.0) -> None:
        if not 1 <= b <= torch.finfo(torch.float32).max:
            raise UserError(
                f"Expected {self._option('b')} to be 1 or more, and finite in single precision, but got {b}; "
                "Fang's is 2."
            )
        self.against, self.b = against, b

    def collude(self, situation: Situation) -> Tensor:
        honest = situation.honest
        assert honest is not None
        mean = honest.mean(0)
        if self.against == "krum":
            s = mean.sign()
            return -_largest_step(honest, s, situation.adversaries) * s
        edge = torch.where(mean < 0, honest.amax(0), honest.amin(0))
        outwards = (edge > 0) == (mean < 0)  # away from 0 lies beyond the honest
        factor = torch.where(outwards, self.b, 1 / self.b)
        share = torch.rand(mean.shape, generator=situation.generator).to(honest)
        return torch.where(mean == 0, 0, edge * (1 + share * (factor - 1)))


def _largest_step(honest: Tensor, s: Tensor, adversaries: int) -> float:
    """The first lambda that Krum chooses."""
    products = add_up([*honest, s], lambda block, _: block @ block.T)
    squares, along, entries = products.diagonal()[:-1], products[:-1, -1], products[-1, -1]
    if not entries:
        return 0.0
    near = squared_distances(products[:-1, :-1]).sort(1).values[:, :-1]  # to the others, nearest first
    neighbours = max(1, len(honest) - 2)
    room = near[:, :neighbours].sum(1).min() / max(1, len(honest) - adversaries - 1)
    step = float((room / entries).sqrt() + (squares.max() / entries).sqrt())
    for _ in range(_HALVINGS):
        away = step**2 * entries + 2 * step * along + squares  # of every honest upload from -step * s
        theirs = torch.cat([away.new_zeros(adversaries - 1), away.sort().values])[:neighbours].sum()
        others = torch.cat([near, away[:, None].expand(-1, adversaries)], 1).sort(1).values
        if theirs < others[:, :neighbours].sum(1).min():
            break
        step /= 2
    return step
