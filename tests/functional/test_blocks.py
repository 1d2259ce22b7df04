"""Sums over blocks of coordinates, against numpy over the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rffl_pl.functional import blocks

ENTRIES = 1 << 18
# One block, several with a rest, blocks of one coordinate, one row that is longer than a block, many rows whose pieces
# are those of several blocks.
shapes = pytest.mark.parametrize(
    ("m", "entries"), [(3, 7), (50, 20_000), (ENTRIES // 2 + 1, 3), (1, ENTRIES + 5), (700, 9_000)], ids=str
)


def rows(m: int, entries: int) -> Tensor:
    """Random float32 rows."""
    return torch.randn(m, entries, generator=torch.Generator().manual_seed(m))


@pytest.mark.parametrize("dtype", [None, torch.float64], ids=str)
@shapes
def test_blocks_are_all_there_is(m: int, entries: int, dtype: torch.dtype | None) -> None:
    """A coordinate is left out or comes twice, a block outgrows the cache, or its numbers are others."""
    matrix = rows(m, entries)
    for form in (matrix, list(matrix)):
        seen = 0
        for where, block in blocks.blocks(form, dtype):
            assert where.start == seen
            assert block.is_contiguous()
            assert block.numel() <= max(ENTRIES, m)
            assert torch.equal(block, matrix[:, where].to(dtype or torch.float32))
            seen = where.stop
        assert seen == entries


@pytest.mark.parametrize(
    ("m", "entries"), [(3, 7), (50, 20_000), (1, ENTRIES + 5), (48, 9_000), (96, 3_000), (107, 9_000)]
)
def test_sums_are_those_of_the_matrix(m: int, entries: int) -> None:
    """A statistic or a combination is not the one of all coordinates."""
    matrix, weights = rows(m, entries), torch.randn(m, dtype=torch.float64)
    plain, w = np.asarray(matrix, dtype=np.float64), weights.numpy()
    centre = matrix[0] + 1
    centred = plain - np.asarray(centre, dtype=np.float64)
    np.testing.assert_allclose(blocks.squared_norms(matrix), (plain**2).sum(1), rtol=1e-12)
    np.testing.assert_allclose(blocks.gram(matrix), plain @ plain.T, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(blocks.gram(matrix, centre), centred @ centred.T, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(blocks.gram_of_squares(matrix), plain**2 @ plain.T**2, rtol=1e-10)
    np.testing.assert_allclose(blocks.gram_times(matrix, weights), plain @ plain.T @ w, rtol=1e-9, atol=1e-8)
    assert torch.equal(blocks.combined(matrix, lambda block: block.max(0).values), matrix.max(0).values)


def test_bits_do_not_hang_on_where_rows_lie() -> None:
    """A matrix, its rows in a list, rows with gaps between them and rows of their own memory make different bits."""
    matrix, weights = rows(50, 20_000), torch.randn(50, dtype=torch.float64)
    wide = torch.zeros(50, 20_003)
    wide[:, 3:] = matrix
    forms: list[blocks.Rows] = [matrix, list(matrix), wide[:, 3:], [row.clone() for row in matrix]]
    results = [
        [
            blocks.squared_norms(form),
            blocks.gram(form),
            blocks.gram_times(form, weights),
            blocks.combined(form, lambda block: weights.float() @ block),
        ]
        for form in forms
    ]
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_squared_norm_is_the_participants_own() -> None:
    """A participant's bits change with the number of participants that share its process, or are single precision."""
    matrix = rows(5, 200_000)
    assert torch.equal(blocks.squared_norms(matrix)[3], blocks.squared_norm(matrix[3]))
    assert blocks.squared_norm(matrix[3]).dtype == torch.float64
    assert blocks.squared_norms(matrix[:0]).shape == (0,)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_squared_norm_of_what_is_not_finite(value: float) -> None:
    """A NaN or an infinity is lost on the way."""
    row = torch.zeros(200_000)
    row[150_000] = value
    assert not blocks.squared_norm(row).isfinite()
