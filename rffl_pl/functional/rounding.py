r"""When an update is nothing but the rounding of the weights it was added to."""

from __future__ import annotations

import torch
from torch import Tensor

from rffl_pl.functional.blocks import squared_norm

MULTIPLE = 16.0
"""An update that is shorter than so many times `rounding_level` tells nothing."""


def rounding_level(model: Tensor) -> Tensor:
    r"""Length of the vector of the units in the last place of weights ``[D]``: :math:`\|\mathrm{ulp}(w)\|_2`, float64.

    :math:`\mathrm{ulp}(w_k) = 2^{\lfloor \log_2 |w_k| \rfloor - 23}` in single precision, 0 for a weight of 0.
    """
    powers = (model.view(torch.int32) & 0x7F800000).view(
        torch.float32
    )  # the exponent's bits alone: 2 ** floor(log2 |w|)
    return squared_norm(powers).sqrt() * 2.0**-23


def tells_nothing(update: Tensor, model: Tensor) -> bool:
    """Whether an update ``[D]`` of weights ``[D]`` is at the level of their rounding."""
    return bool(squared_norm(update).sqrt() <= MULTIPLE * rounding_level(model))
