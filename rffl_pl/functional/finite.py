"""Whether numbers can be computed with."""

from __future__ import annotations

import torch
from torch import Tensor


def all_finite(values: Tensor) -> bool:
    """Whether no entry is NaN or infinite.

    A sum with such an entry is not finite, and one without overflows hardly ever: to add takes a twentieth of the time
    that it takes to look at every entry, which is left to where the sum does not tell.
    """
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())


def sound(squared_norms: Tensor) -> Tensor:
    r"""Which uploads can be computed with, from their :math:`\|\Delta_i\|^2`, elementwise.

    Not sound is what has a NaN or an infinity, or a squared norm that overflows single precision.
    """
    return squared_norms <= torch.finfo(torch.float32).max


def empty(squared_norms: Tensor) -> Tensor:
    r"""Which uploads are zeros, from their :math:`\|\Delta_i\|^2`, elementwise.

    Zeros, too, is what has a squared norm that underflows single precision, the counterpart of `sound`: shorter than
    :math:`10^{-19}`, it moves no weight, but scaled to a norm of its own it would overflow.
    """
    return squared_norms < torch.finfo(torch.float32).tiny
