"""Medians and trimmed means of coordinates against their definitions in float64, and their laws."""

import numpy as np
import pytest
import torch

from rffl_pl.functional.order import coordinate_median, trimmed_mean
from tests.functional.reference import close, permuted, reference_median, reference_trimmed_mean, uploads

every_size = pytest.mark.parametrize(
    ("m", "entries", "seed"), [(m, d, 100 * m + d) for m in range(3, 13) for d in (1, 7, 53)]
)


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


@pytest.mark.parametrize("m", [1, 2, 63, 64, 65, 66, 200])
def test_median_of_many(m: int) -> None:
    """Beyond some number of rows, where it is found another way, the median is another or the rows are changed."""
    rows = uploads(m, 53, seed=m)
    before = rows.clone()
    np.testing.assert_array_equal(coordinate_median(rows), np.median(before.numpy(), axis=0))
    assert torch.equal(rows, before)


def test_median_laws() -> None:
    """It depends on the order of rows, does not move or scale with them, or leaves the range of the majority."""
    for seed, m in enumerate((3, 4, 7, 12)):
        rows = uploads(m, 7, seed)
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
def test_trimmed_mean(m: int, entries: int, seed: int) -> None:
    """The mean of what is left, for some number of values cut, is not the definition's."""
    rows = uploads(m, entries, seed)
    for cut in range((m + 1) // 2):
        close(trimmed_mean(rows, cut), reference_trimmed_mean(rows.tolist(), cut))


@pytest.mark.parametrize(("cut", "expected"), [(0, 22.2), (1, 10 / 3), (2, 2.0)])
def test_trimmed_mean_golden(cut: int, expected: float) -> None:
    """The largest value is left out on one side only, or cut counts both sides together."""
    column = torch.tensor([100.0, 2, 1, 7, 1])[:, None]
    close(trimmed_mean(column, cut), [expected], 1e-6)


@pytest.mark.parametrize("m", [1, 2, 31, 32, 33, 34, 64, 65, 200])
def test_trimmed_mean_of_many(m: int) -> None:
    """Beyond some number of rows, where it is found another way, it is another or the rows are changed."""
    rows = uploads(m, 53, seed=m)
    before = rows.clone()
    for cut in {0, m // 5, (m - 1) // 2}:
        close(trimmed_mean(rows, cut), reference_trimmed_mean(rows.tolist(), cut), 1e-6)
        assert torch.equal(trimmed_mean(-rows, cut), -trimmed_mean(rows, cut))
        assert torch.equal(trimmed_mean(rows[permuted(m, 1)], cut), trimmed_mean(rows, cut))
    assert torch.equal(rows, before)


def test_trimmed_mean_bears_as_many_liars_as_are_cut() -> None:
    """As many liars as are cut on one side move it out of the range of the others."""
    for seed, m in enumerate((3, 7, 12, 40)):
        rows, cut = uploads(m, 7, seed), m // 2
        stormed = trimmed_mean(torch.cat([rows, 1e15 * uploads(cut, 7, seed + 60)]), cut)
        assert (stormed >= rows.min(0).values).all()
        assert (stormed <= rows.max(0).values).all()
