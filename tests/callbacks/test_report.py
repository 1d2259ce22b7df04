"""What a removal is explained with."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from rffl_pl.callbacks.records import Round
from rffl_pl.callbacks.report import RunReport
from rffl_pl.federation import Federation
from rffl_pl.functional.blocks import gram_times, squared_norms
from rffl_pl.functional.reputation import cosines


def told(uploads: torch.Tensor) -> str:
    """The warning for the removal of participant 0, who weighed least."""
    weights = torch.tensor([0.05, 0.25, 0.3, 0.4], dtype=torch.float64)
    entry = Round(
        number=11, honest=4, accuracy=[math.nan] * 4, loss=[math.nan] * 4, train_loss=[0.1] * 4,
        members=[False, True, True, True], removed=[0], weight=weights.tolist(),
        similarity=cosines(squared_norms(uploads), gram_times(uploads, weights), weights).tolist(),
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RunReport._warn(entry, Federation(participants=4))
    (warning,) = caught
    return str(warning.message)


@pytest.mark.parametrize("seed", range(3))
def test_a_removal_among_orthogonal_uploads_is_explained(seed: int) -> None:
    """Where similarity is nothing but one's own weight, the user reads why and what to do; elsewhere not."""
    noise = torch.randn(4, 2000, generator=torch.Generator().manual_seed(seed))
    orthogonal, alike = told(noise), told(noise + 1)
    assert "Round 11: participant 0 is removed" in orthogonal
    assert "almost orthogonal" in orthogonal
    assert "--server.removal_from never" in orthogonal
    assert "Round 11: participant 0 is removed" in alike
    assert "orthogonal" not in alike
