"""As far from the honest mean as the honest are apart (Shejwalkar & Houmansadr, NDSS 2021)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from rffl_pl.adversaries.base import OmniscientAdversary, Situation
from rffl_pl.functional.blocks import add_up


class MinMax(OmniscientAdversary):
    r"""Knows the honest uploads and goes as far from their mean as distances between them allow: Min-Max and Min-Sum.

    All adversaries upload :math:`u = \mu + \gamma p`, with :math:`\mu` the mean of the h honest uploads :math:`u_i` and
    the largest :math:`\gamma` within a bound (Shejwalkar & Houmansadr 2021, *Manipulating the Byzantine*,
    https://doi.org/10.14722/ndss.2021.24498):

    .. math::
        \text{max}: \; \max_i \|u - u_i\| \le \max_{i,j} \|u_i - u_j\| \qquad
        \text{sum}: \; \sum_i \|u - u_i\|^2 \le \max_i \sum_j \|u_i - u_j\|^2

    The authors halve intervals; here :math:`\gamma` is exact. With :math:`d_i = u_i - \mu` and B the largest squared
    distance of two it is, for the one and the other bound,

    .. math::
        \min_i \frac{b_i + \sqrt{b_i^2 + \|p\|^2 (B - \|d_i\|^2)}}{\|p\|^2}, \; b_i = \langle d_i, p \rangle
        \qquad \text{and} \qquad \frac{\max_i \|d_i\|}{\|p\|}.

    Where p is 0, or there is one honest upload, u is :math:`\mu`.

    Args:
        direction: p: ``unit``, :math:`-\mu / \|\mu\|`; ``std``, minus the standard deviation of every entry; ``sign``,
            :math:`-\operatorname{sign}(\mu)`.
        bound: ``max`` is Min-Max, ``sum`` Min-Sum.
    """

    def __init__(
        self, *, direction: Literal["unit", "std", "sign"] = "std", bound: Literal["max", "sum"] = "max"
    ) -> None:
        self.direction, self.bound = direction, bound

    def collude(self, situation: Situation) -> Tensor:
        honest = situation.honest
        assert honest is not None
        mu = honest.mean(0)
        p = self._direction(honest, mu)
        return mu + self._gamma(honest, mu, p) * p if p.any() else mu

    def _direction(self, honest: Tensor, mu: Tensor) -> Tensor:
        """The direction p ``[D]``, of any length: gamma makes up for it."""
        if self.direction == "std":
            return -honest.std(0, correction=0)
        return -mu if self.direction == "unit" else -mu.sign()

    def _gamma(self, honest: Tensor, mu: Tensor, p: Tensor) -> float:
        """The largest gamma within the bound."""
        products = add_up([*honest, p], _centred_gram, mu)
        squares, along, p_square = products.diagonal()[:-1], products[:-1, -1], products[-1, -1]
        if self.bound == "sum":
            # The sums are h |u - mu|^2 + s and h |d_i|^2 + s, with s that of all |d_i|^2.
            return float((squares.max() / p_square).sqrt())
        between = squares[:, None] + squares - 2 * products[:-1, :-1]
        room = (between.max() - squares).clamp_min(0)  # below 0 by rounding alone, where all are equal
        return float(((along + (along.square() + p_square * room).sqrt()) / p_square).min())


def _centred_gram(block: Tensor, mu: Tensor | None) -> Tensor:
    """The Gram matrix of all d and p ``[h + 1, h + 1]``, of a block of all u and p."""
    assert mu is not None
    block[:-1] -= mu
    return block @ block.T
