r"""Rules that turn uploads into one step, without state.

Shapes: m = uploads at hand, all finite; D = parameters. ``uploads`` is ``[m, D]``; distances, scores and similarities
are float64.
"""

from __future__ import annotations

import torch
from torch import Tensor


def coordinate_median(uploads: Tensor) -> Tensor:
    r"""Median of every coordinate, ``[D]``: the middle value, or the mean of the two middle ones for even m.

    Yin et al. 2018, https://arxiv.org/abs/1803.01498. `torch.median` returns the lower of the two.
    """
    ordered = uploads.sort(dim=0).values
    m = len(uploads)
    return (ordered[(m - 1) // 2] + ordered[m // 2]) / 2


def squared_distances(uploads: Tensor) -> Tensor:
    r""":math:`d^2_{ij} = \|u_i - u_j\|^2`, ``[m, m]`` float64, with infinity on the diagonal.

    From the differences themselves: the Gram form loses everything to cancellation when uploads are close.
    """
    rows = [torch.stack([(u - v).double().square().sum() for v in uploads]) for u in uploads]
    return torch.stack(rows).fill_diagonal_(torch.inf)


def krum_scores(uploads: Tensor, byzantine: int) -> Tensor:
    r"""Krum's scores ``[m]``: the sum of an upload's :math:`m - f - 2` smallest squared distances to others.

    Blanchard et al. 2017, https://arxiv.org/abs/1703.02757, with f = ``byzantine``.
    """
    nearest = squared_distances(uploads).sort(dim=1).values
    return nearest[:, : len(uploads) - byzantine - 2].sum(1)


def smallest(scores: Tensor, count: int) -> Tensor:
    """Indices of the ``count`` smallest scores, ties to the smaller index, ascending."""
    return scores.argsort(stable=True)[:count].sort().values


def pairwise_cosines(vectors: Tensor, eps: float = 1e-10) -> Tensor:
    """Cosines of all pairs of rows ``[m, D]``, as ``[m, m]`` float64 with 0 on the diagonal and for rows of zeros."""
    dots = torch.stack([torch.stack([torch.dot(u.double(), v.double()) for v in vectors]) for u in vectors])
    norms = dots.diagonal().sqrt().clamp_min(eps)
    return (dots / norms.outer(norms)).fill_diagonal_(0)


def foolsgold_weights(history: Tensor, confidence: float = 1.0) -> Tensor | None:
    r"""FoolsGold's weights ``[m]`` in [0, 1] from the rows' accumulated uploads ``[m, D]``.

    Fung et al. 2020, https://arxiv.org/abs/1808.04866. With :math:`c_{ij}` the cosines (0 on the diagonal) and
    :math:`v_i = \max_j c_{ij}`: pardoning, :math:`c_{ij} \leftarrow c_{ij} v_i / v_j` where :math:`v_i < v_j`;
    :math:`a_i = 1 - \max_j c_{ij}` clamped to [0, 1] and divided by :math:`\max a`, with 0.99 for 1; then
    :math:`\kappa (\ln(a_i / (1 - a_i)) + 0.5)` clamped to [0, 1].

    Returns:
        The weights, or None where all rows point the same way: then no weight is defined.
    """
    cosines = pairwise_cosines(history)
    highest = cosines.max(1).values.clamp_min(0)
    pardon = highest.unsqueeze(1) < highest.unsqueeze(0)
    cosines = torch.where(pardon, cosines * highest.unsqueeze(1) / highest.unsqueeze(0).clamp_min(1e-300), cosines)
    a = (1 - cosines.max(1).values.clamp_min(0)).clamp(0, 1)
    if not a.max() > 1e-12:  # what rounding leaves of 0
        return None
    a = a / a.max()
    a = torch.where(a == 1, 0.99, a)
    return (confidence * (torch.log(a / (1 - a)) + 0.5)).clamp(0, 1)


def q_fair_weights(losses: Tensor, norms: Tensor, shares: Tensor, q: float, lipschitz: float) -> Tensor:
    r"""Weights of the uploads in q-FedAvg's step, ``[m]`` float64.

    .. math::
        a_i = \frac{p_i F_i^q}{\sum_j p_j (q F_j^{q-1} L \|u_j\|^2 + F_j^q)}

    Li et al. 2020, Algorithm 2, with :math:`G_i = -L u_i` and numerator and denominator divided by L; the step is
    :math:`\sum_i a_i u_i`. Whose terms overflow does not count; where nothing is left all weights are 0.

    Args:
        losses: :math:`F_i` before local training, ``[m]``; :math:`10^{-10}` is added, as in the official code.
        norms: :math:`\|u_i\|`, ``[m]``.
        shares: :math:`p_i`, ``[m]``; only their ratios matter.
        q: Degree of fairness.
        lipschitz: L, the inverse of the learning rate.
    """
    raised = losses.double().clamp_min(0) + 1e-10
    numerators = shares * raised**q
    denominators = numerators + shares * q * raised ** (q - 1) * lipschitz * norms.double().square()
    usable = numerators.isfinite() & denominators.isfinite()
    total = torch.where(usable, denominators, 0.0).sum()
    return torch.where(usable, numerators, 0.0) / total if total > 0 else torch.zeros_like(numerators)


def majority_vote(uploads: Tensor) -> Tensor:
    r""":math:`\mathrm{sign} \sum_i \mathrm{sign}\, u_i` of ``uploads`` ``[m, D]``, as ``[D]``; 0 for a tie.

    Bernstein et al. 2019, https://arxiv.org/abs/1810.05291, Algorithm 1.
    """
    return uploads.sign().sum(0).sign()


def clamp_entries(uploads: Tensor, bound: float) -> Tensor:
    """Every entry of ``uploads`` ``[m, D]`` clamped to [-bound, bound]; a row that is not finite passes unchanged."""
    finite = uploads.isfinite().all(1, keepdim=True)
    return torch.where(finite, uploads.clamp(-bound, bound), uploads)
