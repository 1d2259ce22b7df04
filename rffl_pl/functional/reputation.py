r"""Aggregation, similarity, reputation, removal and quota of RFFL (Xu & Lyu 2021, Algorithm 1).

Shapes: P = participants, m = uploads at hand, D = parameters. ``uploads`` is ``[m, D]`` in the dtype of the model;
whatever has one entry per participant is float64, and so is every sum over D.
"""

from __future__ import annotations

import torch
from torch import Tensor


def row_norms(uploads: Tensor) -> Tensor:
    r"""Euclidean norms :math:`\|\Delta_i\|` of the rows of ``uploads`` ``[m, D]``, as ``[m]`` float64.

    Row by row: how a reduction over a matrix sums depends on the number of rows, and a participant's bits must not.
    """
    norms = [torch.linalg.vector_norm(row, dtype=torch.float64) for row in uploads]
    return torch.stack(norms) if norms else uploads.new_empty(0, dtype=torch.float64)


def sound(uploads: Tensor) -> Tensor:
    """Which rows of ``uploads`` ``[m, D]`` can be computed with, as ``[m]`` bool.

    A row with a NaN or an infinity is not sound, nor one whose squared norm overflows single precision.
    """
    return row_norms(uploads).square() <= torch.finfo(torch.float32).max


def clip(uploads: Tensor, gamma: float) -> Tensor:
    r"""Bound every row's norm by :math:`\gamma` (released code of RFFL).

    :math:`\Delta_i \leftarrow \gamma \Delta_i / (\|\Delta_i\| + 10^{-7})` where :math:`\|\Delta_i\| > \gamma`.
    Rows ``[m, D]`` in, rows ``[m, D]`` out. A row with a NaN or an infinity passes unchanged.
    """
    norms = row_norms(uploads)
    long = (norms > gamma) & norms.isfinite()
    scale = torch.where(long, gamma / (norms + 1e-7), torch.ones_like(norms))
    return uploads * scale.to(uploads.dtype).unsqueeze(1)


def unit_scale(uploads: Tensor, gamma: float) -> Tensor:
    r"""The factors :math:`\gamma / \|\Delta_i\|` of Eq. 1, as ``[m]`` float64; 0 for a row of zeros."""
    norms = row_norms(uploads)
    return torch.where(norms > 0, gamma / norms, torch.zeros_like(norms))


def weighted_sum(uploads: Tensor, weights: Tensor) -> Tensor:
    r"""The aggregate :math:`\Delta_g = \sum_i w_i \Delta_i` of ``uploads`` ``[m, D]``, as ``[D]``.

    Rows of weight 0 do not enter at all, so that a NaN in one cannot.
    """
    used = weights != 0
    return weights[used].to(uploads.dtype) @ uploads[used]


def cosine_to(uploads: Tensor, aggregate: Tensor, eps: float = 1e-10) -> Tensor:
    r"""Similarities :math:`\tilde r_i = \cos(\Delta_g, \Delta_i)`, as ``[m]`` float64; 0 where a vector is zero.

    Each norm is at least ``eps``: their product may fall far below it late in a run, when updates are small.
    """
    direction = aggregate.double()
    dots = torch.stack([torch.dot(row.double(), direction) for row in uploads]) if len(uploads) else direction[:0]
    return dots / row_norms(uploads).clamp_min(eps) / torch.linalg.vector_norm(direction).clamp_min(eps)


def moving_average(previous: Tensor, similarities: Tensor, alpha: float) -> Tensor:
    r"""Eq. 2: :math:`r_i \leftarrow \alpha r_i + (1 - \alpha) \tilde r_i`."""
    return alpha * previous + (1 - alpha) * similarities


def normalise(reputations: Tensor) -> Tensor | None:
    r""":math:`r / \sum_i r_i`, or None when the sum is not positive: then no distribution is defined."""
    total = reputations.sum()
    return reputations / total if total > 0 else None


def relative_quota(reputations: Tensor) -> Tensor:
    r""":math:`q_i = r_i / \max_j r_j`, at least 0; all 0 where no reputation is positive."""
    highest = reputations.max()
    return (reputations / highest).clamp_min(0) if highest > 0 else torch.zeros_like(reputations)


def altruistic(quotas: Tensor, degree: float = 2.0) -> Tensor:
    r""":math:`\tanh(\beta q_i) / \tanh(\beta)`: raises all quotas but the highest (issue #4 of the released code)."""
    return torch.tanh(degree * quotas) / torch.tanh(torch.tensor(degree, dtype=quotas.dtype, device=quotas.device))
