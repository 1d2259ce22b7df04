r"""What uploads say of each other: who repeats whom, who agrees with whom beyond chance, and what each contributes.

Shapes: m = uploads at hand, P = participants; G is the Gram matrix of the uploads, ``[m, m]``. All is float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rffl_pl.functional.aggregation import pairwise_cosines
from rffl_pl.functional.reputation import LEAST_NORM

_DUPLICATE, _COPY = 0.99, 1 - 1e-6


def duplicates(gram: Tensor) -> Tensor:
    r"""Which uploads are the same but for a factor and a little noise: a cosine above 0.99, ``[m, m]`` bool.

    Everyone is its own duplicate. Honest uploads share a direction, but 0.99 leaves them a seventh of their length
    for what they do not share: local batches mostly make more of a difference. Large shards in large batches do not, so
    that between two uploads that are each like more than half of all only what differs by rounding, a cosine above
    :math:`1 - 10^{-6}`, is the same: a majority is not called clones for agreeing.
    """
    cosines = pairwise_cosines(gram)
    like = (cosines > _DUPLICATE).fill_diagonal_(True)
    most = 2 * like.sum(1) > len(like)
    copies = (cosines > _COPY).fill_diagonal_(True)
    return torch.where(most.unsqueeze(1) & most, copies, like)


def leave_out(gram: Tensor, weights: Tensor, out: Tensor) -> Tensor:
    r"""Similarities ``[m]`` of everyone to what the others make without it.

    .. math::
        \tilde r_i = \cos\Big(\Delta_i, \sum_{j \notin O_i} w_j \Delta_j\Big)

    With :math:`O_i = \{i\}` it is the cosine to :math:`\Delta_g - w_i \Delta_i`. An upload that has nothing to do with
    the others has 0, whatever its own weight is, where its cosine to the aggregate grows with its share in that.
    0 where either vector is zero.

    Args:
        gram: G.
        weights: w, ``[m]``.
        out: O, ``[m, m]`` bool: whom row i leaves out, itself among them.
    """
    others = torch.where(out, 0.0, weights)
    products = (others * gram).sum(1)
    lengths = ((others @ gram) * others).sum(1).clamp_min(0).sqrt()
    return products / gram.diagonal().sqrt().clamp_min(LEAST_NORM) / lengths.clamp_min(LEAST_NORM)


def agreements(gram: Tensor, gram_of_squares: Tensor) -> Tensor:
    r"""How far two uploads agree beyond chance, in standard deviations, ``[m, m]``; 0 where one is zero.

    .. math::
        z_{ij} = \frac{\sum_k u_{ik} u_{jk}}{\sqrt{\sum_k u_{ik}^2 u_{jk}^2}}

    The denominator is the exact standard deviation of the numerator where one of the two has independent random signs
    (a randomisation test), so that z is about N(0, 1) for noise of any shape, also for noise in a few entries alone.

    Args:
        gram: G.
        gram_of_squares: The Gram matrix of the uploads with every entry squared.
    """
    return torch.where(gram_of_squares > 0, gram / gram_of_squares.clamp_min(1e-300).sqrt(), 0.0)


def ratio_bound(sums: Tensor, squares: Tensor, weights: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    r"""Everyone's ratio :math:`b = \sum_t w_t x_t / \sum_t w_t y_t` and the upper end of its interval, ``[P]`` each.

    The error of a ratio of means, from what is left of each round, with Student's quantile q:

    .. math::
        b + q_{n - 1} \frac{\sqrt{\frac{n}{n - 1} \sum_t w_t^2 (x_t - b y_t)^2}}{\sum_t w_t y_t}, \quad
        n = \frac{(\sum_t w_t)^2}{\sum_t w_t^2}

    Rounds in which y is small hardly count. The bound is infinite with fewer than two rounds.

    Args:
        sums: :math:`\sum w x, \sum w y`, ``[2, P]``.
        squares: :math:`\sum w^2 x^2, \sum w^2 x y, \sum w^2 y^2`, ``[3, P]``.
        weights: :math:`\sum w, \sum w^2`, ``[2, P]``.
        confidence: That the true ratio is below the bound, in (0, 1).
    """
    from scipy.special import stdtrit  # only a server that removes with confidence needs it

    ratio = torch.where(sums[1] > 0, sums[0] / sums[1].clamp_min(1e-300), torch.nan)
    left = (squares[0] - 2 * ratio * squares[1] + ratio.square() * squares[2]).clamp_min(0)
    rounds = weights[0].square() / weights[1].clamp_min(1e-300)
    more = (rounds - 1).clamp_min(0)
    error = (left * rounds / more.clamp_min(1e-300)).sqrt() / sums[1].clamp_min(1e-300)
    quantile = torch.from_numpy(stdtrit(more.clamp_min(1e-3).numpy(), confidence))
    return ratio, torch.where((more > 0.5) & (sums[1] > 0), ratio + quantile * error, torch.inf)
