r"""Rules that turn uploads into one step, without state: decisions on m-sized statistics, combinations of blocks.

Shapes: m = uploads at hand, all sound; c = coordinates of a block ``[m, c]``; D = parameters. Distances, scores,
similarities and weights are float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

_FEW = 32  # rows, up to which comparing whole rows is the faster way to a median on a CPU


def coordinate_median(block: Tensor) -> Tensor:
    r"""Median of every coordinate, ``[c]``: the middle value, or the mean of the two middle ones for even m.

    Yin et al. 2018, https://arxiv.org/abs/1803.01498. `torch.median` returns the lower of the two.
    """
    lower, upper = (len(block) - 1) // 2, len(block) // 2
    if block.device.type != "cpu":
        ordered = block.sort(dim=0).values
        return (ordered[lower] + ordered[upper]) / 2
    if len(block) <= _FEW:
        return torch.stack(_selected(block, (lower, upper))).sum(0) / 2
    # NumPy sorts short contiguous rows with vector instructions, torch does not.
    columns = np.sort(block.T.contiguous().numpy(), axis=1)
    return torch.from_numpy((columns[:, lower] + columns[:, upper]) / 2)


def _selected(block: Tensor, ranks: tuple[int, ...]) -> list[Tensor]:
    """The values of these ranks in every column of ``[m, c]``, ``[c]`` each, by comparing whole rows."""
    rows, spare = list(block.clone().unbind()), torch.empty_like(block[0])
    for a, b, low, high in _comparisons(len(block), ranks):
        x, y = rows[a], rows[b]
        if low and high:
            torch.minimum(x, y, out=spare)
            torch.maximum(x, y, out=y)
            rows[a], spare = spare, x
        elif low:
            torch.minimum(x, y, out=x)
        else:
            torch.maximum(x, y, out=y)
    return [rows[rank] for rank in ranks]


@cache
def _comparisons(count: int, ranks: tuple[int, ...]) -> list[tuple[int, int, bool, bool]]:
    """Batcher's odd-even mergesort of so many rows, less what some ranks do not need.

    Of each comparison the two rows, and whether the smaller and the larger value are needed.
    """
    pairs = []
    for size, step in _merges(count):
        for start in range(step % size, count - step, 2 * step):
            for i in range(start, min(start + step, count - step)):
                if i // (2 * size) == (i + step) // (2 * size):
                    pairs.append((i, i + step))
    needed, kept = set(ranks), []
    for a, b in reversed(pairs):
        if a in needed or b in needed:
            kept.append((a, b, a in needed, b in needed))
            needed |= {a, b}
    return kept[::-1]


def _merges(count: int) -> Iterator[tuple[int, int]]:
    """Lengths of the runs that are merged, and distances at which they are compared."""
    size = 1
    while size < count:
        step = size
        while step:
            yield size, step
            step //= 2
        size *= 2


def squared_distances(gram: Tensor) -> Tensor:
    r""":math:`d^2_{ij} = \|u_i - u_j\|^2 = G_{ii} + G_{jj} - 2 G_{ij}`, ``[m, m]``, with infinity on the diagonal.

    Args:
        gram: Inner products of the rows, all less one vector near them: without it, the difference of large numbers
            loses everything when rows are close to each other and far from 0.
    """
    squares = gram.diagonal()
    return (squares.unsqueeze(1) + squares - 2 * gram).clamp_min(0).fill_diagonal_(torch.inf)


def krum_scores(distances: Tensor, byzantine: int) -> Tensor:
    r"""Krum's scores ``[m]``: the sum of an upload's :math:`m - f - 2` smallest squared distances to others.

    Blanchard et al. 2017, https://arxiv.org/abs/1703.02757, with f = ``byzantine``.
    """
    return distances.sort(dim=1).values[:, : len(distances) - byzantine - 2].sum(1)


def smallest(scores: Tensor, count: int) -> Tensor:
    """Indices of the ``count`` smallest scores, ties to the smaller index, ascending."""
    return scores.argsort(stable=True)[:count].sort().values


def pairwise_cosines(gram: Tensor, eps: float = 1e-10) -> Tensor:
    """Cosines of all pairs of rows, ``[m, m]``, from their inner products; 0 on the diagonal and for rows of zeros."""
    norms = gram.diagonal().sqrt().clamp_min(eps)
    return (gram / norms.outer(norms)).fill_diagonal_(0)


def foolsgold_weights(gram: Tensor, confidence: float = 1.0) -> Tensor | None:
    r"""FoolsGold's weights ``[m]`` in [0, 1] from the inner products ``[m, m]`` of the accumulated uploads.

    Fung et al. 2020, https://arxiv.org/abs/1808.04866. With :math:`c_{ij}` the cosines (0 on the diagonal) and
    :math:`v_i = \max_j c_{ij}`: pardoning, :math:`c_{ij} \leftarrow c_{ij} v_i / v_j` where :math:`v_i < v_j`;
    :math:`a_i = 1 - \max_j c_{ij}` clamped to [0, 1] and divided by :math:`\max a`, with 0.99 for 1; then
    :math:`\kappa (\ln(a_i / (1 - a_i)) + 0.5)` clamped to [0, 1].

    Returns:
        The weights, or None where all of them point the same way: then no weight is defined.
    """
    cosines = pairwise_cosines(gram)
    highest = cosines.max(1).values.clamp_min(0)
    pardon = highest.unsqueeze(1) < highest.unsqueeze(0)
    cosines = torch.where(pardon, cosines * highest.unsqueeze(1) / highest.unsqueeze(0).clamp_min(1e-300), cosines)
    a = (1 - cosines.max(1).values.clamp_min(0)).clamp(0, 1)
    if not a.max() > 1e-12:  # what rounding leaves of 0
        return None
    a = a / a.max()
    a = torch.where(a == 1, 0.99, a)
    return (confidence * (torch.log(a / (1 - a)) + 0.5)).clamp(0, 1)


def q_fair_weights(losses: Tensor, squared_norms: Tensor, shares: Tensor, q: float, lipschitz: float) -> Tensor:
    r"""Weights of the uploads in q-FedAvg's step, ``[m]`` float64.

    .. math::
        a_i = \frac{p_i F_i^q}{\sum_j p_j (q F_j^{q-1} L \|u_j\|^2 + F_j^q)}

    Li et al. 2020, Algorithm 2, with :math:`G_i = -L u_i` and numerator and denominator divided by L; the step is
    :math:`\sum_i a_i u_i`. Whose terms overflow does not count; where nothing is left all weights are 0.

    Args:
        losses: :math:`F_i` before local training, ``[m]``; :math:`10^{-10}` is added, as in the official code.
        squared_norms: :math:`\|u_i\|^2`, ``[m]``.
        shares: :math:`p_i`, ``[m]``; only their ratios matter.
        q: Degree of fairness.
        lipschitz: L, the inverse of the learning rate.
    """
    raised = losses.double().clamp_min(0) + 1e-10
    numerators = shares * raised**q
    denominators = numerators + shares * q * raised ** (q - 1) * lipschitz * squared_norms
    usable = numerators.isfinite() & denominators.isfinite()
    total = torch.where(usable, denominators, 0.0).sum()
    return torch.where(usable, numerators, 0.0) / total if total > 0 else torch.zeros_like(numerators)


def majority_vote(block: Tensor) -> Tensor:
    r""":math:`\mathrm{sign} \sum_i \mathrm{sign}\, u_i` of a block ``[m, c]``, as ``[c]``; 0 for a tie.

    Bernstein et al. 2019, https://arxiv.org/abs/1810.05291, Algorithm 1.
    """
    return block.sign().sum(0).sign()


def clamp_entries(update: Tensor, bound: float) -> Tensor:
    """Every entry of an update ``[D]`` clamped to [-bound, bound]; one that is not finite passes unchanged."""
    return update.clamp(-bound, bound) if update.isfinite().all() else update
