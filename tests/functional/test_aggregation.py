"""Median, Krum and FoolsGold against float64 loops written from their definitions alone, and their laws."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rffl_pl.functional.aggregation import (
    coordinate_median,
    foolsgold_weights,
    krum_scores,
    pairwise_cosines,
    smallest,
    squared_distances,
)

Rows = Sequence[Sequence[float]]

KRUM_ROWS = [(0, 0), (1, 0), (0, 2), (1, 1), (10, 10), (0.5, 0.5), (-1, 0)]
FOOLSGOLD_ROWS = [(1, 0, 0), (0, 1, 0), (0.2, 0.2, 1), (0.19, 0.21, 1)]

every_size = pytest.mark.parametrize(
    ("m", "entries", "seed"), [(m, d, 100 * m + d) for m in range(3, 13) for d in (1, 7, 53)]
)


def reference_median(rows: Rows) -> np.ndarray:
    """Middle value of every coordinate; the mean of the two middle ones of an even number."""
    half = len(rows) // 2
    columns = [sorted(float(row[k]) for row in rows) for k in range(len(rows[0]))]
    return np.array([c[half] if len(c) % 2 else (c[half - 1] + c[half]) / 2 for c in columns])


def reference_fedavg(rows: Rows, examples: Sequence[int]) -> np.ndarray:
    """Sum of n_i / sum(n) u_i."""
    step = np.zeros(len(rows[0]))
    for row, n in zip(rows, examples, strict=True):
        step += n / sum(examples) * np.asarray(row, dtype=np.float64)
    return step


def reference_krum_scores(rows: Rows, f: int) -> np.ndarray:
    """Sum of the n - f - 2 smallest squared distances to others."""
    n = len(rows)
    squared = [[sum((float(a) - float(b)) ** 2 for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    return np.array([sum(sorted(squared[i][j] for j in range(n) if j != i)[: n - f - 2]) for i in range(n)])


def reference_multi_krum(rows: Rows, f: int, m: int) -> tuple[list[int], np.ndarray]:
    """The m rows of smallest score, first index first among equals, and their mean."""
    scores = reference_krum_scores(rows, f)
    chosen = sorted(range(len(rows)), key=lambda i: (scores[i], i))[:m]
    return sorted(chosen), sum(np.asarray(rows[i], dtype=np.float64) for i in chosen) / m


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
    for x in a / a.max():
        x = 0.99 if x == 1 else x
        logit = kappa * (math.log(x / (1 - x)) + 0.5) if x > 0 else -math.inf
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
    return rows / entries**0.5 * 10 ** (2 * torch.rand(m, 1, generator=generator) - 1)


def close(actual: Tensor, expected: Any, tolerance: float = 1e-5) -> None:
    """Both agree to the tolerance, relative or absolute."""
    expected = torch.as_tensor(np.asarray(expected, dtype=np.float64))
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def permuted(m: int, seed: int) -> Tensor:
    """A random order of m rows."""
    return torch.randperm(m, generator=torch.Generator().manual_seed(seed))


def random_inputs() -> Iterable[tuple[int, Tensor]]:
    """Inputs of the laws: seeds and uploads of several sizes."""
    return [(seed, uploads(m, 7, seed)) for seed, m in enumerate((3, 4, 7, 12))]


@every_size
def test_median(m: int, entries: int, seed: int) -> None:
    """The median of some coordinate is not the definition's."""
    rows = uploads(m, entries, seed)
    close(coordinate_median(rows), reference_median(rows.tolist()))


@pytest.mark.parametrize(
    ("column", "expected"), [([1, 2, 3, 10], 2.5), ([10, 3, 1], 3), ([4], 4), ([1, 2], 1.5), ([5, 5, 5, 5], 5)]
)
def test_median_golden(column: list[float], expected: float) -> None:
    """An even number of uploads gives the lower of the middle two, as torch.median does."""
    assert coordinate_median(torch.tensor(column).float()[:, None]).tolist() == [expected]


def test_median_of_byzfl() -> None:
    """ByzFL's median, which also means the middle two, is another one."""
    byzfl = pytest.importorskip("byzfl", reason="byzfl is not installed; it is no dependency of these tests")
    for m in range(3, 13):
        rows = uploads(m, 53, seed=m)
        close(coordinate_median(rows), byzfl.Median()(rows), 1e-6)


def test_median_laws() -> None:
    """The median hangs on the order of rows, does not move or scale with them, or leaves the range of the majority."""
    for seed, rows in random_inputs():
        median = coordinate_median(rows)
        assert torch.equal(coordinate_median(rows[permuted(len(rows), seed)]), median)
        assert torch.equal(coordinate_median(-4 * rows), -4 * median)
        shift = uploads(1, rows.shape[1], seed + 50)[0]
        close(coordinate_median(rows + shift), median + shift)
        assert torch.equal(coordinate_median(rows.repeat(2, 1)), median)
        liars = 1e15 * uploads(len(rows) - 1, rows.shape[1], seed + 60)
        stormed = coordinate_median(torch.cat([rows, liars]))
        assert (stormed >= rows.min(0).values).all()
        assert (stormed <= rows.max(0).values).all()


@every_size
def test_krum_scores(m: int, entries: int, seed: int) -> None:
    """Scores of some f differ from the sum of the m - f - 2 smallest squared distances to others."""
    rows = uploads(m, entries, seed)
    for f in range((m - 1) // 2):
        close(krum_scores(rows, f), reference_krum_scores(rows.tolist(), f))


def test_krum_scores_golden() -> None:
    """The worked example: self is counted, distances are not squared, or m - f - 1 neighbours are taken."""
    scores = krum_scores(torch.tensor(KRUM_ROWS), 1)
    close(scores, [4.5, 6.5, 13.5, 5.5, 687.5, 4.0, 12.5], 1e-12)
    close(torch.from_numpy(reference_krum_scores(KRUM_ROWS, 1)), scores, 1e-12)
    assert [int(smallest(scores, k).sum() - smallest(scores, k - 1).sum()) + 1 for k in range(1, 8)] == [
        6, 1, 4, 2, 7, 3, 5,
    ]  # fmt: skip


def test_smallest_takes_the_first_of_equals() -> None:
    """A tie goes to another than the smallest index, or the indices do not ascend."""
    assert smallest(torch.tensor([2.0, 1.0, 1.0, 1.0, 0.5]), 3).tolist() == [1, 2, 4]
    assert smallest(torch.ones(9), 4).tolist() == [0, 1, 2, 3]


def test_krum_laws() -> None:
    """Scores hang on the order of rows or on a common shift, or do not grow with the square of the scale."""
    for seed, rows in random_inputs():
        f = (len(rows) - 3) // 2
        scores, order = krum_scores(rows, f), permuted(len(rows), seed)
        close(krum_scores(rows[order], f), scores[order], 1e-12)
        close(krum_scores(-4 * rows, f), 16 * scores, 1e-12)
        shift = uploads(1, rows.shape[1], seed + 50)[0]
        close(krum_scores(rows.double() + shift, f), krum_scores(rows.double(), f), 1e-9)


def test_krum_scores_of_close_rows() -> None:
    """Rows close to each other and far from 0 lose their distances to cancellation, or get negative ones."""
    rows = 1000 + 1e-3 * uploads(7, 53, seed=1).double()
    close(krum_scores(rows, 2) * 1e6, 1e6 * reference_krum_scores(rows.tolist(), 2))
    assert (squared_distances(rows.repeat(2, 1)) >= 0).all()
    assert krum_scores(rows[:1].repeat(5, 1), 1).tolist() == [0.0] * 5


def defined_weights(history: Tensor, kappa: float = 1.0) -> Tensor:
    """The weights, with 1 for everybody where none are defined."""
    weights = foolsgold_weights(history, kappa)
    return torch.ones(len(history), dtype=torch.float64) if weights is None else weights


@every_size
@pytest.mark.parametrize("kappa", [1.0, 0.3])
def test_foolsgold_weights(m: int, entries: int, seed: int, kappa: float) -> None:
    """Weights differ from the definition's at some size or confidence."""
    history = uploads(m, entries, seed)
    close(defined_weights(history, kappa), reference_foolsgold(history.tolist(), kappa)[2])


def test_foolsgold_inputs_reach_between_0_and_1() -> None:
    """The random histories above give only weights 0 and 1, and so would hide a wrong logit."""
    histories = [uploads(m, d, 100 * m + d).tolist() for m in range(3, 13) for d in (7, 53)]
    weights = np.concatenate([reference_foolsgold(history)[2] for history in histories])
    assert ((weights > 0.01) & (weights < 0.99)).sum() >= 10
    assert (weights == 0).sum() >= 5
    assert (weights == 1).sum() >= 5


def test_foolsgold_golden() -> None:
    """The worked example: pardoning goes the wrong way, or the logit is not clamped."""
    v, a, final = reference_foolsgold(FOOLSGOLD_ROWS)
    np.testing.assert_allclose(v, [0.192450, 0.202054, 0.999907, 0.999907], atol=6e-7)
    np.testing.assert_allclose(a, [0.962960, 0.959170, 0.000093, 0.000093], atol=6e-7)
    assert final.tolist() == [1, 1, 0, 0]
    history = torch.tensor(FOOLSGOLD_ROWS)
    close(pairwise_cosines(history).max(1).values, v, 1e-6)
    assert defined_weights(history).tolist() == [1, 1, 0, 0]


def test_foolsgold_laws() -> None:
    """Weights leave [0, 1], hang on the order of rows, or on their lengths."""
    for seed, history in random_inputs():
        weights, order = defined_weights(history), permuted(len(history), seed)
        assert ((weights >= 0) & (weights <= 1)).all()
        close(defined_weights(history[order]), weights[order], 1e-9)
        lengths = 2.0 ** torch.arange(len(history))[:, None]
        close(defined_weights(history * lengths), weights, 1e-9)


def test_foolsgold_catches_two_clones_among_honest_rows() -> None:
    """Two clones among eight orthogonal rows keep a weight, or take an honest row's."""
    clone = torch.zeros(10)
    clone[8:] = 1
    history = torch.cat([torch.eye(10)[:8], torch.stack([clone, 3 * clone])])
    close(defined_weights(history), [1.0] * 8 + [0.0] * 2, 1e-12)


@pytest.mark.parametrize("entries", [1, 7, 53])
@pytest.mark.parametrize("lengths", ["equal", "different"])
def test_foolsgold_of_one_direction_is_not_defined(entries: int, lengths: str) -> None:
    """Where all rows point the same way rounding alone makes weights, which must be reported as not defined."""
    for seed in range(10):
        m = 3 + seed
        row = uploads(1, entries, seed)
        history = row * (torch.ones(m, 1) if lengths == "equal" else torch.linspace(0.3, 3, m)[:, None])
        assert foolsgold_weights(history) is None, f"seed {seed}: {foolsgold_weights(history)}"


def test_foolsgold_rows_of_zeros() -> None:
    """A row of zeros has a similarity, or a NaN; it resembles nobody."""
    history = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    assert pairwise_cosines(history).tolist() == [[0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    close(defined_weights(history), [1, 0, 0, 1], 1e-12)
    assert defined_weights(torch.zeros(3, 5)).tolist() == [1, 1, 1]
