"""What uploads say of each other, against numpy and scipy in float64."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from rffl_pl.functional import contribution
from rffl_pl.functional.blocks import gram, gram_of_squares

seeds = pytest.mark.parametrize("seed", range(5))


def rows(seed: int, count: int = 7, entries: int = 101) -> Tensor:
    """Uploads with a common direction, whose norms differ by powers of ten."""
    generator = torch.Generator().manual_seed(seed)
    lengths = 10.0 ** torch.linspace(-3, 2, count)
    drawn: Tensor = (torch.randn(entries, generator=generator) + torch.randn(count, entries, generator=generator)) * (
        lengths[:, None] / entries**0.5
    )
    return drawn


def alone(count: int) -> Tensor:
    """Everyone leaves out itself."""
    return torch.eye(count, dtype=torch.bool)


@seeds
def test_gram_of_squares(seed: int) -> None:
    """The sum is not over the products of squares."""
    expected = (rows(seed).double().numpy() ** 2) @ (rows(seed).double().numpy() ** 2).T
    np.testing.assert_allclose(gram_of_squares(rows(seed)), expected, rtol=1e-12)


@seeds
def test_pairwise_cosines(seed: int) -> None:
    """A cosine is not numpy's, or an upload of zeros is like anything."""
    uploads = rows(seed)
    uploads[3] = 0
    x = uploads.double().numpy()
    lengths = np.maximum(np.linalg.norm(x, axis=1), 1e-100)
    np.testing.assert_allclose(
        contribution.pairwise_cosines(gram(uploads)), x @ x.T / np.outer(lengths, lengths), atol=1e-12
    )


def test_duplicates() -> None:
    """A copy at another length is missed, an opposite or an upload of zeros is taken for one, or oneself is not one."""
    one, other = rows(0)[5], rows(1)[5]
    noise = rows(2)[0]
    uploads = torch.stack(
        [one, 1e-3 * one, -one, other, torch.zeros(101), one + 0.01 * noise * one.norm() / noise.norm()]
    )
    same = contribution.duplicates(gram(uploads))
    assert same.diagonal().all()
    assert torch.equal(same, same.T)
    assert same[0].tolist() == [True, True, False, False, False, True]
    assert same[4].sum() == 1


def test_a_majority_that_agrees() -> None:
    """The honest are clones for having large shards; or a majority of copies is as many as it says."""
    one, noise = rows(0)[5], torch.randn(4, 101, generator=torch.Generator().manual_seed(3))
    agreeing = one + 0.02 * one.norm() / 101**0.5 * noise
    free = rows(2)[0]
    assert contribution.pairwise_cosines(gram(agreeing)).min() > 0.99
    assert torch.equal(contribution.duplicates(gram(torch.stack([*agreeing, free]))), alone(5))
    few = torch.cat([agreeing[:2], rows(2)[:3]])  # two of five are no majority
    assert contribution.duplicates(gram(few))[0].tolist() == [True, True, False, False, False]
    copies = torch.stack([one, one, 3 * one, free, rows(1)[5]])
    assert contribution.duplicates(gram(copies))[0].tolist() == [True, True, True, False, False]


@seeds
def test_leave_out(seed: int) -> None:
    """A similarity is not the cosine to the weighted sum of the others."""
    uploads = rows(seed)
    weights = torch.rand(7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    out = alone(7)
    out[1, 4] = out[4, 1] = True
    x, w = uploads.double().numpy(), weights.numpy()
    expected = []
    for i in range(7):
        others = sum(w[j] * x[j] for j in range(7) if not out[i, j])
        expected.append(x[i] @ others / np.linalg.norm(x[i]) / np.linalg.norm(others))
    np.testing.assert_allclose(contribution.leave_out(gram(uploads), weights, out), expected, atol=1e-9)


def test_leave_out_of_what_has_nothing_in_common() -> None:
    """An upload gains by its own share: of ten orthogonal ones each has a cosine of 0.316 to their sum."""
    tenth = torch.full((10,), 0.1, dtype=torch.float64)
    assert contribution.leave_out(gram(torch.eye(10)), tenth, alone(10)).tolist() == [0.0] * 10
    loud = torch.eye(10)
    loud[9] *= 1e6
    assert contribution.leave_out(gram(loud), tenth, alone(10)).tolist() == [0.0] * 10


def test_leave_out_of_two() -> None:
    """Of two, one looks more like the other than the other like it."""
    one, other = contribution.leave_out(gram(rows(0)[[2, 6]]), torch.tensor([0.9, 0.1]).double(), alone(2)).tolist()
    assert one == pytest.approx(other)
    assert 0.2 < one < 0.8


def test_leave_out_alone_or_of_nothing() -> None:
    """Whoever is alone, or sends zeros, has another similarity than 0."""
    assert contribution.leave_out(gram(rows(0)[:1]), torch.ones(1).double(), alone(1)).tolist() == [0.0]
    assert contribution.leave_out(gram(torch.zeros(3, 5)), torch.ones(3).double(), alone(3)).tolist() == [0.0] * 3


@seeds
def test_agreements(seed: int) -> None:
    """An agreement is not the sum of products over the root of the sum of their squares."""
    uploads = rows(seed)
    uploads[2] = 0
    products = uploads.double().numpy()[:, None] * uploads.double().numpy()[None]
    expected = products.sum(2) / np.sqrt(np.maximum((products**2).sum(2), 1e-300))
    np.testing.assert_allclose(
        contribution.agreements(gram(uploads), gram_of_squares(uploads)), expected, rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("entries", [60, 400])
def test_agreements_of_noise_are_standard_normal(entries: int) -> None:
    """Noise agrees beyond chance, whether it fills every entry or hides in a few entries."""
    generator = torch.Generator().manual_seed(0)
    honest = torch.randn(400, generator=generator)
    noise = torch.zeros(3000, 400)
    noise[:, :entries] = torch.rand(3000, entries, generator=generator) * 2 - 1
    uploads = torch.cat([honest[None], noise])
    found = contribution.agreements(gram(uploads), gram_of_squares(uploads))[0, 1:]
    assert stats.kstest(found.numpy(), "norm").pvalue > 1e-3


def column(*values: float) -> Tensor:
    """One participant's statistics."""
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


def sums_of(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """The statistics of one participant's rounds."""
    w = weights
    return (
        column((w * x).sum(), (w * y).sum()),
        column((w * w * x * x).sum(), (w * w * x * y).sum(), (w * w * y * y).sum()),
        column(w.sum(), (w * w).sum()),
    )


@seeds
def test_ratio_bound(seed: int) -> None:
    """The bound is not Student's on the residuals of a weighted ratio."""
    rng = np.random.default_rng(seed)
    y = rng.uniform(0.1, 1, 12)
    x = 0.4 * y + rng.normal(0, 0.1, 12)
    w = 0.9 ** np.arange(12)[::-1]
    ratio, bound = contribution.ratio_bound(*sums_of(x, y, w), confidence=0.99)
    b = (w * x).sum() / (w * y).sum()
    n = w.sum() ** 2 / (w**2).sum()
    error = np.sqrt((w**2 * (x - b * y) ** 2).sum() * n / (n - 1)) / (w * y).sum()
    assert ratio.item() == pytest.approx(b)
    assert bound.item() == pytest.approx(b + stats.t.ppf(0.99, n - 1) * error)


def test_ratio_bound_covers() -> None:
    """In repeated draws the true ratio is above the bound much more often than the confidence allows."""
    rng = np.random.default_rng(0)
    above = 0
    for _ in range(2000):
        y = rng.uniform(0.3, 0.9, 15)
        x = 0.5 * y + rng.normal(0, 0.2, 15)
        above += contribution.ratio_bound(*sums_of(x, y, np.ones(15)), confidence=0.95)[1].item() < 0.5
    assert 0.03 < above / 2000 < 0.075


def test_ratio_bound_of_too_little() -> None:
    """After one round or none, or without anything to compare with, somebody is surely below anything."""
    for x, y in (([], []), ([0.1], [0.9]), ([0.0, 0.0], [0.0, 0.0])):
        _, bound = contribution.ratio_bound(*sums_of(np.array(x), np.array(y), np.ones(len(x))), confidence=0.99)
        assert bound.item() == float("inf")


@pytest.mark.parametrize(
    ("degrees", "alike"),
    [
        ((0, 8, 90, 180), True),  # a cosine of 0.99 is 8.1 degrees
        ((0, 9, 90, 180), False),
        ((0, 0.05, 0.02), True),  # where most agree copies alone are: 1 - 1e-6 is 0.081 degrees
        ((0, 0.1, 0.02), False),
        ((0, 7, -7, 90, 180), True),  # the first is like most, the second is not
    ],
)
def test_who_repeats_whom(degrees: tuple[float, ...], alike: bool) -> None:
    """Clones are counted once where they are not, or participants that differ are taken for clones."""
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    rows = torch.stack([angles.cos(), angles.sin()], 1)
    assert bool(contribution.duplicates(rows @ rows.T)[0, 1]) == alike
