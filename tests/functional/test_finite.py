"""Whether numbers can be computed with."""

from __future__ import annotations

import pytest
import torch

from rffl_pl.functional.finite import all_finite

LARGEST = torch.finfo(torch.float32).max


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 7, 100, 4099])
def test_one_entry_decides(dtype: torch.dtype, size: int) -> None:
    """NaN or an infinity anywhere, two that would cancel, or none of them."""
    values = torch.randn(size, generator=torch.Generator().manual_seed(size)).to(dtype)
    assert all_finite(values)
    for bad in (torch.nan, torch.inf, -torch.inf):
        for place in {0, size // 2, size - 1}:
            spoiled = values.clone()
            spoiled[place] = bad
            assert not all_finite(spoiled)
    if size > 1:
        spoiled[0], spoiled[-1] = torch.inf, -torch.inf
        assert not all_finite(spoiled)


def test_a_sum_that_overflows() -> None:
    """It is no entry."""
    assert all_finite(torch.full((10,), LARGEST))
    assert all_finite(torch.tensor([LARGEST, LARGEST, -LARGEST, -LARGEST]))


def test_nothing() -> None:
    """There is nothing wrong with it."""
    assert all_finite(torch.empty(0))
