"""The rules in float64 loops, written from their definitions alone (nothing of ``rffl_pl``), and inputs for them."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Rows = Sequence[Sequence[float]]

KRUM_ROWS = [(0, 0), (1, 0), (0, 2), (1, 1), (10, 10), (0.5, 0.5), (-1, 0)]
FOOLSGOLD_ROWS = [(1, 0, 0), (0, 1, 0), (0.2, 0.2, 1), (0.19, 0.21, 1)]
SIGN_ROWS = [(0.3, -0.1, 0, 2), (-0.2, -0.4, 0, 1), (0.5, 0.6, -0.1, -3)]
# From w = (1, 2) to the participants' own weights, at a learning rate of 0.1.
Q_BEFORE, Q_AFTER, Q_LOSSES = (1.0, 2.0), [(0.8, 2.1), (1.3, 1.5), (0.9, 2.0)], (0.5, 2.0, 1.0)
Q_ROWS = [[v - w for v, w in zip(row, Q_BEFORE, strict=True)] for row in Q_AFTER]


def reference_median(rows: Rows) -> np.ndarray:
    """Middle value of every coordinate; the mean of the two middle ones of an even number."""
    half = len(rows) // 2
    columns = [sorted(float(row[k]) for row in rows) for k in range(len(rows[0]))]
    return np.array([c[half] if len(c) % 2 else (c[half - 1] + c[half]) / 2 for c in columns])


def reference_trimmed_mean(rows: Rows, cut: int) -> np.ndarray:
    """Mean of every coordinate's values but the ``cut`` smallest and the ``cut`` largest."""
    columns = [sorted(float(row[k]) for row in rows)[cut : len(rows) - cut] for k in range(len(rows[0]))]
    return np.array([math.fsum(c) / len(c) for c in columns])


def reference_geometric_median(rows: Rows) -> np.ndarray:
    """The point of smallest sum of distances: where Weiszfeld steps on the vectors end, or an upload."""
    points = np.asarray(rows, dtype=np.float64)
    z = np.median(points, axis=0)
    for _ in range(3_000):
        distances = np.maximum(np.linalg.norm(points - z, axis=1), 1e-12)
        z = (points / distances[:, None]).sum(0) / (1 / distances).sum()
    return min([z, *points], key=lambda p: float(np.linalg.norm(points - p, axis=1).sum()))


def reference_centered_clipping(rows: Rows, centre: np.ndarray, radius: float | None) -> np.ndarray:
    """The centre plus the mean of the differences to it, each cut to the radius or to the lower median of lengths."""
    differences = [np.asarray(row, dtype=np.float64) - centre for row in rows]
    lengths = [math.sqrt(d @ d) for d in differences]
    radius = sorted(lengths)[(len(lengths) - 1) // 2] if radius is None else radius
    moved = [d * min(1.0, radius / length) if length > 0 else d for d, length in zip(differences, lengths, strict=True)]
    return np.asarray(centre + np.sum(moved, axis=0) / len(moved))


def reference_fedavg(rows: Rows, examples: Sequence[int]) -> np.ndarray:
    """Sum of n_i / sum(n) u_i."""
    step = np.zeros(len(rows[0]))
    for row, n in zip(rows, examples, strict=True):
        step += n / sum(examples) * np.asarray(row, dtype=np.float64)
    return step


def reference_q_fedavg(
    rows: Rows, losses: Sequence[float], q: float, lipschitz: float, shares: Sequence[float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """h of every participant and the step, from Algorithm 2 of the paper: G = -L u, Delta = F^q G, w - sum / sum.

    ``shares`` stand before both Delta and h, as full participation asks for; none are 1.
    """
    h, numerator = [], np.zeros(len(rows[0]))
    for row, loss, share in zip(rows, losses, shares or [1.0] * len(rows), strict=True):
        loss = float(loss) + 1e-10
        gradient = -lipschitz * np.asarray(row, dtype=np.float64)
        squared = math.fsum(float(g) ** 2 for g in gradient)
        numerator += share * loss**q * gradient
        h.append(share * (q * loss ** (q - 1) * squared + lipschitz * loss**q))
    return np.array(h), -numerator / math.fsum(h)


def reference_vote(rows: Rows) -> np.ndarray:
    """Who has more votes in every coordinate, up or down; 0 for as many of both."""
    up = [sum(row[k] > 0 for row in rows) for k in range(len(rows[0]))]
    down = [sum(row[k] < 0 for row in rows) for k in range(len(rows[0]))]
    return np.array([(a > b) - (a < b) for a, b in zip(up, down, strict=True)], dtype=np.float64)


def reference_krum_scores(rows: Rows, f: int) -> np.ndarray:
    """Sum of the n - f - 2 smallest squared distances to others."""
    n = len(rows)
    squared = [[sum((float(a) - float(b)) ** 2 for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    return np.array([sum(sorted(squared[i][j] for j in range(n) if j != i)[: n - f - 2]) for i in range(n)])


def reference_multi_krum(rows: Rows, f: int, m: int) -> tuple[list[int], np.ndarray]:
    """The m rows of smallest score, first index first among equals, and their mean."""
    scores = reference_krum_scores(rows, f)
    chosen = sorted(range(len(rows)), key=lambda i: (scores[i], i))[:m]
    return sorted(chosen), np.sum([np.asarray(rows[i], dtype=np.float64) for i in chosen], axis=0) / m


def reference_bulyan(rows: Rows, f: int) -> tuple[list[int], np.ndarray]:
    """Who is selected by Krum from whoever is left, n - 2f times, and of their values the n - 4f next to the median."""
    left: list[int] = list(range(len(rows)))
    chosen: list[int] = []
    squared = [[math.fsum((float(a) - float(b)) ** 2 for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    while len(chosen) < len(rows) - 2 * f:
        scores = {}
        for i in left:
            distances = sorted(squared[i][j] for j in left if j != i)
            scores[i] = (sum(distances[: max(0, len(left) - f - 2)]), sum(distances), i)
        best = min(left, key=scores.__getitem__)
        left.remove(best)
        chosen.append(best)
    chosen.sort()
    some = [rows[i] for i in chosen]
    medians, step = reference_median(some), []
    for k, median in enumerate(medians):
        nearest = sorted((float(row[k]) for row in some), key=lambda value: (abs(value - median), value))
        step.append(math.fsum(nearest[: len(rows) - 4 * f]) / (len(rows) - 4 * f))
    return chosen, np.array(step)


def reference_dnc(rows: Rows, out: int) -> tuple[list[int], np.ndarray]:
    """Who is left, and their mean, without the rows of largest projection on the first right singular vector."""
    points = np.asarray(rows, dtype=np.float64)
    along = np.linalg.svd(points - points.mean(0), full_matrices=False)[2][0]
    scores = ((points - points.mean(0)) @ along) ** 2
    left = sorted(np.argsort(scores, kind="stable")[: len(points) - out].tolist())
    return left, points[left].mean(0)


def reference_foolsgold(history: Rows, kappa: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """v, a before it is rescaled, and the weights, from the histories of the rows."""
    n = len(history)
    cs = np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        x, y = (np.asarray(history[k], dtype=np.float64) for k in (i, j))
        norms = np.sqrt(x @ x) * np.sqrt(y @ y)
        cs[i, j] = x @ y / norms if norms > 0 else 0.0
    v = cs.max(axis=1)
    pardoned = cs.copy()
    for i, j in itertools.permutations(range(n), 2):
        if v[i] < v[j]:
            pardoned[i, j] = cs[i, j] * v[i] / v[j]
    a = np.clip(1 - pardoned.max(axis=1), 0, 1)
    if a.max() <= 1e-12:
        return v, a, np.ones(n)
    weights = []
    for share in a / a.max():
        share = 0.99 if share == 1 else share
        logit = kappa * (math.log(share / (1 - share)) + 0.5) if share > 0 else -math.inf
        weights.append(min(1.0, max(0.0, logit)))
    return v, a, np.array(weights)


class ReferenceHistory:
    """FoolsGold's memory: by identity, the sum of uploads cut to length 1."""

    def __init__(self) -> None:
        self.sums: dict[int, np.ndarray] = {}

    def add(self, sender: int, upload: Sequence[float]) -> np.ndarray:
        """The sender's history with this upload."""
        u = np.asarray(upload, dtype=np.float64)
        norm = math.sqrt(u @ u)
        self.sums[sender] = self.sums.get(sender, np.zeros(len(u))) + (u / norm if norm > 1 else u)
        return self.sums[sender]


def uploads(m: int, entries: int, seed: int) -> Tensor:
    """Rows around one direction, each with its own share of it and its own length, 0.1 to 10."""
    generator = torch.Generator().manual_seed(seed)
    agreement = torch.rand(m, 1, generator=generator) * 2.5
    rows = agreement * torch.randn(entries, generator=generator) + torch.randn(m, entries, generator=generator)
    drawn: Tensor = rows / entries**0.5 * 10 ** (2 * torch.rand(m, 1, generator=generator) - 1)
    return drawn


def close(actual: Tensor, expected: Any, tolerance: float = 1e-5) -> None:
    """Both agree to the tolerance, relative or absolute."""
    expected = torch.as_tensor(np.asarray(expected, dtype=np.float64))
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def permuted(m: int, seed: int) -> Tensor:
    """A random order of m rows."""
    return torch.randperm(m, generator=torch.Generator().manual_seed(seed))


def random_losses(m: int, seed: int, low: float = -3, high: float = 2) -> Tensor:
    """Losses from 10 ** low to 10 ** high."""
    generator = torch.Generator().manual_seed(seed)
    return 10 ** (low + (high - low) * torch.rand(m, generator=generator, dtype=torch.float64))
