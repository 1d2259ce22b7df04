"""The level of rounding of a model, entry by entry against numpy, and what is below it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rffl_pl.functional.rounding import MULTIPLE, rounding_level, tells_nothing


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e30])
def test_level_is_the_length_of_the_units_in_the_last_place(scale: float) -> None:
    """The spacing of single precision is not what is measured, at some size of weights."""
    model = torch.randn(10_000, generator=torch.Generator().manual_seed(0)) * scale
    spacing = np.spacing(np.abs(model.numpy())).astype(np.float64)
    np.testing.assert_allclose(float(rounding_level(model)), np.sqrt((spacing**2).sum()), rtol=1e-12)


def test_level_at_powers_of_two_and_at_zero() -> None:
    """At a power of two the unit is that below it, or a weight of 0 has one, or a negative one does not."""
    assert float(rounding_level(torch.tensor([1.0]))) == 2.0**-23
    assert float(rounding_level(torch.tensor([0.999]))) == 2.0**-24
    assert float(rounding_level(torch.tensor([-2.0, 0.0]))) == 2.0**-22
    assert float(rounding_level(torch.zeros(5))) == 0


def test_what_tells_nothing() -> None:
    """The border is elsewhere, zeros tell something, or NaN is hidden as nothing."""
    model = torch.ones(100)
    border = MULTIPLE * rounding_level(model) / 10  # ten times that is the length of 100 such entries
    assert tells_nothing(torch.full((100,), 0.99 * float(border)), model)
    assert not tells_nothing(torch.full((100,), 1.01 * float(border)), model)
    assert tells_nothing(torch.zeros(100), torch.zeros(100))
    assert not tells_nothing(torch.full((100,), torch.nan), model)


def test_training_below_the_level_turns_away() -> None:
    """What is called nothing still points the right way, or what is called something does not: 60 steps, two rates."""
    generator = torch.Generator().manual_seed(0)
    start, gradients = torch.randn(5_000, generator=generator), torch.randn(5_000, generator=generator)

    def update(rate: float, dtype: torch.dtype) -> torch.Tensor:
        model = start.to(dtype)
        for _ in range(60):
            model = model - (rate * gradients).to(dtype)
        return (model - start.to(dtype)).double()

    for rate, told in ((1e-5, True), (1e-9, False)):
        single, double = update(rate, torch.float32), update(rate, torch.float64)
        assert tells_nothing(single.float(), start) is not told
        assert (float(torch.cosine_similarity(single, double, dim=0)) > 0.9) is told
