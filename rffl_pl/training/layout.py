"""How images lie in memory."""

from __future__ import annotations

import torch
from torch import Tensor


def channels_last(x: Tensor) -> Tensor:
    """Images with channels last, on which convolutions on CPUs are up to twice as fast; other inputs as they are."""
    if x.dim() != 4 or _has_channels_last(x):
        return x
    # `contiguous` would leave one-channel images with strides that convolutions read as channels first.
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)


def _has_channels_last(x: Tensor) -> bool:
    """Whether images already lie as `channels_last` leaves them; with one channel their strides must say so too."""
    return x.stride() == (x.shape[1:].numel(), 1, x.shape[1] * x.shape[3], x.shape[1])
