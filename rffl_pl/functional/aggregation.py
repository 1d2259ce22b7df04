r"""Rules that turn uploads into one step, without state: decisions on m-sized statistics, combinations of blocks.

Shapes: m = uploads at hand, all sound; c = coordinates of a block ``[m, c]``; D = parameters. Distances, scores,
similarities and weights are float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rffl_pl.functional.finite import all_finite

_TOLERANCE, _MOST_ITERATIONS = 1e-10, 10_000
_EVEN, _MOST_MOVES = 1e-12, 10_000


def squared_distances(gram: Tensor) -> Tensor:
    r""":math:`d^2_{ij} = \|u_i - u_j\|^2 = G_{ii} + G_{jj} - 2 G_{ij}`, ``[m, m]``, with infinity on the diagonal.

    Args:
        gram: Inner products of the rows, all less one vector near them: without it, the difference of large numbers
            loses everything when rows are close to each other and far from 0.
    """
    squares = gram.diagonal()
    return (squares.unsqueeze(1) + squares - 2 * gram).clamp_min(0).fill_diagonal_(torch.inf)


def pairwise_cosines(gram: Tensor) -> Tensor:
    r""":math:`G_{ij} / \sqrt{G_{ii} G_{jj}}`, ``[m, m]``; 0 where an upload is zero."""
    lengths = gram.diagonal().sqrt()
    product = lengths.outer(lengths)
    return torch.where(product > 0, gram / product.clamp_min(1e-300), 0.0)


def krum_scores(distances: Tensor, byzantine: int) -> Tensor:
    r"""Krum's scores ``[m]``: the sum of an upload's :math:`m - f - 2` smallest squared distances to others.

    Blanchard et al. 2017, https://arxiv.org/abs/1703.02757, with f = ``byzantine``.
    """
    return distances.sort(dim=1).values[:, : len(distances) - byzantine - 2].sum(1)


def selected_by_krum(distances: Tensor, byzantine: int, count: int) -> Tensor:
    r"""Indices of ``count`` rows that Krum selects one after another, ascending.

    Each time by the `krum_scores` of the rows that are left. Of equal scores, as the two that are nearest to each other
    have where one neighbour counts, or all where none does, the one with the smaller sum of all distances is selected,
    then the smaller index.
    El Mhamdi et al. 2018, https://arxiv.org/abs/1802.07927, Section 4.

    Args:
        distances: Squared, as of `squared_distances`.
        byzantine: f.
        count: How many; no more than m.
    """
    # Of mixed uploads the two sides may differ in their last bit, which would decide between equal scores.
    nearest, order = torch.minimum(distances, distances.T).sort(dim=1)
    rank, among = order.argsort(dim=1), nearest.isfinite()  # nobody is a neighbour of its own
    left = torch.ones(len(distances), dtype=torch.bool, device=distances.device)
    for remaining in range(len(distances), len(distances) - count, -1):
        counted = among & (among.cumsum(1, dtype=torch.int32) <= remaining - byzantine - 2)
        scores = nearest.where(counted, 0.0).sum(1).where(left, torch.inf)
        equal = (scores == scores.min()).nonzero().flatten()
        best = equal[nearest[equal].where(among[equal], 0.0).sum(1).argmin()]
        left[best] = False
        among.scatter_(1, rank[:, best].unsqueeze(1), False)
    return left.logical_not().nonzero().flatten()


def majority(distances: Tensor) -> Tensor:
    r"""The first group of more than half that forms where the closest are linked first.

    .. math::
        \{i : |\{j : b_{ij} \le t\}| > m/2\} \quad \text{with the smallest } t \text{ for which there are any}

    with :math:`b_{ij}` the longest step of the path from i to j on which that is shortest. It is the cluster of HDBSCAN
    (Campello et al. 2013, https://doi.org/10.1007/978-3-642-37456-2_14) with at least :math:`\lfloor m/2 \rfloor + 1`
    members, one neighbour, and a single cluster allowed: of two such, one has too few.

    Args:
        distances: ``[m, m]``, symmetric but for rounding; the diagonal does not count.

    Returns:
        Who belongs to it, ``[m]`` bool.
    """
    # Rounded differently, the two of a pair would leave the group with the one of them that is further on.
    longest = torch.minimum(distances, distances.T).fill_diagonal_(-math.inf)
    for between in longest:  # Floyd and Warshall's paths, in place
        torch.minimum(longest, torch.maximum(between[:, None], between), out=longest)
    reach = longest.sort(1).values[:, len(distances) // 2]
    return reach <= reach.min()


def spectral_scores(gram: Tensor) -> Tensor:
    r"""How far every row stands out along the direction in which all differ most, ``[m]``.

    .. math::
        s_i = \langle u_i - \bar u, v \rangle^2 = \lambda e_i^2

    with v the first right singular vector of the rows less their mean :math:`\bar u`, and :math:`\lambda` and e the
    largest eigenvalue of those rows' inner products and its eigenvector: v itself is never needed.

    Args:
        gram: Inner products of the rows, all less one vector near them, as for `squared_distances`.
    """
    centred = gram - gram.mean(0)
    centred -= centred.mean(1, keepdim=True)
    # Divided by the largest entry: squares of huge ones would overflow within.
    largest = centred.abs().max().clamp_min(torch.finfo(gram.dtype).tiny)
    values: Tensor
    vectors: Tensor
    values, vectors = torch.linalg.eigh(centred / largest)
    return largest * values[-1] * vectors[:, -1].square()


def nearest_mixing(distances: Tensor, count: int) -> Tensor:
    r"""The matrix ``[m, m]`` that replaces every upload by the mean of the ``count`` nearest, itself among them.

    Nearest-neighbour mixing (Allouah et al. 2023, https://arxiv.org/abs/2302.01772); ties go to the smaller index.

    Args:
        distances: Squared, as of `squared_distances`.
        count: At least 1.
    """
    nearest = distances.clone().fill_diagonal_(-1).argsort(dim=1, stable=True)[:, :count]
    return torch.zeros_like(distances).scatter(1, nearest, 1 / count)


def geometric_median_weights(gram: Tensor) -> Tensor:
    r"""Weights ``[m]``, of sum 1, with which uploads make their geometric median :math:`\arg\min_z \sum_i \|u_i - z\|`.

    Where it is an upload, that one alone, since iterations would creep there. Else smoothed Weiszfeld iterations,
    :math:`w_i \propto 1 / \max(\nu, \|u_i - z\|)` with :math:`z = \sum_j w_j u_j`, until no weight moves by more than
    :math:`10^{-10}` (Pillutla et al. 2022, https://arxiv.org/abs/1912.13445, Algorithm 2). They need inner products
    alone: :math:`\|u_i - z\|^2 = G_{ii} - 2 (G w)_i + w^T G w`. :math:`\nu` is :math:`10^{-6}` of the rows' median
    length.

    Args:
        gram: Inner products of the rows, all less one vector near most of them, as for `squared_distances`.
    """
    squares = gram.diagonal()
    least = (1e-6 * squares.sqrt().median()).clamp_min(torch.finfo(torch.float32).tiny)
    apart = (squares.unsqueeze(1) + squares - 2 * gram).clamp_min(0).sqrt()
    if (at := _median_upload(gram, apart, least)) is not None:
        return at
    # At first as from everybody else: from the mean, a huge upload takes many iterations to lose its weight.
    weights = 1 / apart.mean(1).clamp_min(least)
    weights = weights / weights.sum()
    for _ in range(_MOST_ITERATIONS):
        products = gram @ weights
        distances = (squares - 2 * products + weights.dot(products)).clamp_min(0).sqrt()
        before, weights = weights, 1 / distances.clamp_min(least)
        weights = weights / weights.sum()
        if (weights - before).abs().max() <= _TOLERANCE:
            break
    return weights


def _median_upload(gram: Tensor, apart: Tensor, least: Tensor) -> Tensor | None:
    r"""Weights of the upload, or of all that are it, which is the geometric median; None if no upload is.

    It can only be the one with the smallest sum of distances, and is if :math:`\|\sum_j (u_i - u_j) / \|u_i - u_j\|\|`,
    over those elsewhere, is below the number of those there (Vardi and Zhang 2000,
    https://doi.org/10.1073/pnas.97.4.1423). Equal to it, as of two uploads, it may be one of many medians.

    Args:
        gram: As in `geometric_median_weights`.
        apart: Distances of the rows, ``[m, m]``.
        least: The distance up to which two are one.
    """
    nearest = int(apart.sum(1).argmin())
    here = (apart[nearest] <= least).to(gram.dtype)
    pulls = torch.where(here > 0, 0.0, 1 / apart[nearest])
    total = -pulls
    total[nearest] += pulls.sum()
    return here / here.sum() if total @ gram @ total < (1 - 1e-9) * here.sum() ** 2 else None


def least_norm_weights(gram: Tensor, slack: float) -> Tensor:
    r"""Weights ``[m]``, of sum 1 and within a slack of 1/m, of the shortest such combination of rows.

    .. math::
        \arg\min_\lambda \lambda^T G \lambda \quad \text{with} \quad \sum_i \lambda_i = 1, \quad
        \max(0, 1/m - \epsilon) \le \lambda_i \le 1/m + \epsilon

    Weight goes from the row that has most in common with the combination to the one that has least, as much as makes it
    shortest, until two such rows are equal to :math:`10^{-12}` of the longest row's square, or after 10,000 steps
    (sequential minimal optimisation; Platt 1998). Where several weights give that combination, it is one of them.

    Args:
        gram: Inner products of the rows, ``[m, m]`` float64.
        slack: :math:`\epsilon`, in [0, 1].
    """
    count = len(gram)
    least, most = max(0.0, 1 / count - slack), 1 / count + slack
    weights = torch.full((count,), 1 / count, dtype=gram.dtype)
    products = gram @ weights
    enough = _EVEN * gram.diagonal().max()
    for _ in range(_MOST_MOVES):
        taken = int(torch.where(weights > least, products, -torch.inf).argmax())
        given = int(torch.where(weights < most, products, torch.inf).argmin())
        excess = products[taken] - products[given]
        if not excess > enough:
            break
        apart = gram[taken, taken] + gram[given, given] - 2 * gram[taken, given]
        room = min(float(weights[taken]) - least, most - float(weights[given]))
        moved = room if apart * room <= excess else float(excess / apart)
        weights[taken] = least if moved == float(weights[taken]) - least else weights[taken] - moved
        weights[given] = most if moved == most - float(weights[given]) else weights[given] + moved
        products += moved * (gram[given] - gram[taken])
    return weights


def smallest(scores: Tensor, count: int) -> Tensor:
    """Indices ``[count]`` of the ``count`` smallest scores ``[m]``, ties to the smaller index, ascending."""
    return scores.argsort(stable=True)[:count].sort().values


def mean_of(chosen: Tensor | slice, count: int) -> Tensor:
    """Weights ``[count]`` float64 of the mean of k uploads that are chosen by index: 1 / k for these, else 0."""
    weights = torch.zeros(count, dtype=torch.float64)
    weights[chosen] = 1
    return weights / weights.sum()


def foolsgold_weights(gram: Tensor, confidence: float = 1.0) -> Tensor | None:
    r"""FoolsGold's weights ``[m]`` in [0, 1] from the inner products ``[m, m]`` of the accumulated uploads.

    Fung et al. 2020, https://arxiv.org/abs/1808.04866. With :math:`c_{ij}` the cosines (0 on the diagonal) and
    :math:`v_i = \max_j c_{ij}`: pardoning, :math:`c_{ij} \leftarrow c_{ij} v_i / v_j` where :math:`v_i < v_j`;
    :math:`a_i = 1 - \max_j c_{ij}` clamped to [0, 1] and divided by :math:`\max a`, with 0.99 for 1; then
    :math:`\kappa (\ln(a_i / (1 - a_i)) + 0.5)` clamped to [0, 1].

    Returns:
        The weights, or None where all of them point the same way: then no weight is defined.
    """
    cosines = pairwise_cosines(gram).fill_diagonal_(0)
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
    :math:`\sum_i a_i u_i`. Losses are raised beside the largest one, so that no power overflows. Whose loss or length
    is not finite does not count; where nothing is left all weights are 0.

    Args:
        losses: :math:`F_i` before local training, ``[m]``; :math:`10^{-10}` is added, as in the official code.
        squared_norms: :math:`\|u_i\|^2`, ``[m]``.
        shares: :math:`p_i`, ``[m]``; only their ratios matter.
        q: Degree of fairness.
        lipschitz: L, the inverse of the learning rate.
    """
    raised = losses.double().clamp_min(0) + 1e-10 if q else torch.ones_like(squared_norms)
    factors = 1 + q * lipschitz * squared_norms / raised
    usable = raised.isfinite() & factors.isfinite() & (shares > 0)
    if not usable.any():
        return torch.zeros_like(raised)
    powers = (q * (raised / raised[usable].max()).log()).exp()
    numerators = torch.where(usable, shares * powers, 0.0)
    return numerators / torch.where(usable, numerators * factors, 0.0).sum()


def onto_simplex(values: Tensor) -> Tensor:
    r"""The point of the simplex :math:`\{\lambda \ge 0, \sum_i \lambda_i = 1\}` nearest to a vector ``[P]``.

    :math:`\lambda_i = \max(v_i - \tau, 0)` with the :math:`\tau` that makes their sum 1 (Duchi et al. 2008, Figure 1).
    """
    # Whoever is 1 below the largest gets nothing: cut off there, the sums below are finite.
    values = (values - values.max()).clamp_min(-1)
    sums = values.sort(descending=True).values
    excess = (sums.cumsum(0) - 1) / torch.arange(1, len(values) + 1, dtype=values.dtype)
    return (values - excess[int((sums > excess).sum()) - 1]).clamp_min(0)


def majority_vote(block: Tensor) -> Tensor:
    r""":math:`\mathrm{sign} \sum_i \mathrm{sign}\, u_i` of a block ``[m, c]``, as ``[c]``; 0 for a tie.

    Bernstein et al. 2019, https://arxiv.org/abs/1810.05291, Algorithm 1.
    """
    return block.sign().sum(0).sign()


def clip_factors(lengths: Tensor, bound: float | Tensor) -> Tensor:
    r"""Factors :math:`\min(1, b / \ell_i)` that clip vectors of lengths ``[m]`` to a bound, ``[m]``; 1 for length 0."""
    return torch.where(lengths > bound, bound / lengths, 1.0)


def clamp_entries(update: Tensor, bound: float) -> Tensor:
    """Every entry of an update ``[D]`` clamped to [-bound, bound]; one that is not finite passes unchanged."""
    return update.clamp(-bound, bound) if all_finite(update) else update
