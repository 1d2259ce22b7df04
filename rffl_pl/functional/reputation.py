r"""Similarity, reputation, removal and quota of RFFL (Xu & Lyu 2021, Algorithm 1).

Shapes: P = participants, m = uploads at hand, D = parameters, c = coordinates of a block. Whatever has one entry per
participant is float64, and so is every sum over D (`rffl_pl.functional.blocks`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from rffl_pl.functional.blocks import squared_norm

LEAST_NORM = 1e-10
"""What a cosine divides by at least."""


def clip(update: Tensor, gamma: float) -> Tensor:
    r"""Bound the norm of an update ``[D]`` by :math:`\gamma` (released code of RFFL).

    :math:`\Delta \leftarrow \gamma \Delta / (\|\Delta\| + 10^{-7})` if :math:`\|\Delta\| > \gamma`. One with a NaN or
    an infinity passes unchanged.
    """
    norm = float(squared_norm(update).sqrt())
    return update * (gamma / (norm + 1e-7)) if gamma < norm < float("inf") else update


def unit_scale(squared_norms: Tensor, gamma: float) -> Tensor:
    r"""The factors :math:`\gamma / \|\Delta_i\|` of Eq. 1, ``[m]``; 0 for an upload of zeros."""
    return torch.where(squared_norms > 0, gamma / squared_norms.sqrt(), 0.0)


def weighted_sum(block: Tensor, weights: Tensor) -> Tensor:
    r"""The aggregate :math:`\Delta_g = \sum_i w_i \Delta_i` of a block ``[m, c]``, as ``[c]``, in the block's dtype.

    Or several, ``[k, c]``, by weights ``[k, m]``. On a GPU in double precision: products in single precision are TF32
    there where anybody allows it, which keeps ten bits of every entry, and a single upload of weight 1 would come back
    as another.
    """
    if block.is_cuda:
        return (weights.to(block.device, torch.float64) @ block.double()).to(block.dtype)
    return weights.to(block) @ block


def weighted_mean(block: Tensor, weights: Tensor) -> Tensor:
    r"""The mean :math:`\sum_i w_i \Delta_i / \sum_i w_i` of a block ``[m, c]`` by weights ``[m]``, as ``[c]``."""
    return weighted_sum(block, weights / weights.sum())


def cosines(squared_norms: Tensor, products: Tensor, weights: Tensor) -> Tensor:
    r"""Similarities :math:`\tilde r_i = \cos(\Delta_g, \Delta_i)` of :math:`\Delta_g = \sum_j w_j \Delta_j`, ``[m]``.

    With the Gram matrix G of the uploads: :math:`(G w)_i / \sqrt{G_{ii} \, w^T G w}`; 0 where a vector is zero.
    Each norm is at least :math:`10^{-10}`, as in the released code: their product may fall far below it late in a run,
    when updates are small.

    Args:
        squared_norms: The diagonal of G, ``[m]``.
        products: :math:`G w`, ``[m]``.
        weights: w, ``[m]``.
    """
    length = weights.dot(products).clamp_min(0).sqrt()
    return products / squared_norms.sqrt().clamp_min(LEAST_NORM) / length.clamp_min(LEAST_NORM)


def moving_average(previous: Tensor, similarities: Tensor, alpha: float) -> Tensor:
    r"""Eq. 2: :math:`r_i \leftarrow \alpha r_i + (1 - \alpha) \tilde r_i`."""
    return alpha * previous + (1 - alpha) * similarities


def total(reputations: Tensor) -> Tensor | None:
    r""":math:`\sum_i r_i`; None where negative ones leave less than a tenth of :math:`\sum_i |r_i|` of it.

    Divided by so little, reputations would be weights of ten times what is aggregated; where uploads are each other's
    opposites the sum is rounding alone, and they would be :math:`10^{15}`.
    """
    found = reputations.sum()
    return found if found > 0.1 * reputations.abs().sum() else None


def normalise(reputations: Tensor) -> Tensor | None:
    r""":math:`r / \sum_i r_i`, or None where no `total` is left: then no distribution is defined."""
    found = total(reputations)
    return None if found is None else reputations / found


def share_out(reputations: Tensor, scored: Tensor) -> Tensor | None:
    r"""Scale the reputations of the scored so that all add up to 1, and leave the others' as they are.

    With S the scored: :math:`r_i \leftarrow r_i \, (1 - \sum_{j \notin S} r_j) / \sum_{j \in S} r_j` for i in S. Where
    all are scored it is `normalise`.

    Returns:
        ``[P]``, or None where there is nothing to share out or no `total` to share it by.
    """
    found = total(reputations * scored)
    mass = 1 - (reputations * ~scored).sum()
    return None if found is None or mass <= 0 else torch.where(scored, reputations / found * mass, reputations)


def relative_quota(reputations: Tensor) -> Tensor:
    r""":math:`q_i = r_i / \max_j r_j`, at least 0; all 0 where no reputation is positive."""
    highest = reputations.max()
    return (reputations / highest).clamp_min(0) if highest > 0 else torch.zeros_like(reputations)


def settled(quotas: Tensor) -> Tensor:
    """Quotas of 1 where they are but for the rounding of sums, by which equal reputations differ: it must cost nothing.

    One last bit below 1, a quota would leave an entry out.
    """
    return torch.where(quotas > 1 - 1e-9, 1.0, quotas)


def altruistic(quotas: Tensor) -> Tensor:
    r""":math:`\tanh(2 q_i) / \tanh(2)`: raises all quotas but the highest (issue #4 of the released code)."""
    return torch.tanh(2 * quotas) / torch.tanh(torch.tensor(2.0, dtype=quotas.dtype, device=quotas.device))
