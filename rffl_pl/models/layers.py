"""Layers that compute on a CPU what torch's own do, in less time where no gradient is asked for."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MaxPool2d(nn.MaxPool2d):
    """The largest of every 2 x 2 entries; an odd row or column at the end is left out.

    `torch.nn.MaxPool2d` also notes where they were, which takes half of its time and which a gradient alone needs.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        if not _evaluated_on_cpu(x):
            pooled: Tensor = super().forward(x)
            return pooled
        height, width = (size // 2 * 2 for size in x.shape[-2:])
        rows = torch.maximum(x[..., 0:height:2, :width], x[..., 1:height:2, :width])
        return torch.maximum(rows[..., 0::2], rows[..., 1::2])


class Tanh(nn.Tanh):
    """tanh, in evaluation by oneDNN, as near to it as torch's own, which is MKL's and takes three times as long on AMD.

    In training the difference is 3 % of a step and not worth a gradient of one's own.
    """

    def forward(self, x: Tensor) -> Tensor:
        dense = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
        if not (dense and _evaluated_on_cpu(x) and torch.backends.mkldnn.is_available()):
            return super().forward(x)
        entries = x.as_strided((x.numel(),), (1,)).float()  # in the order in which they lie, whatever the layout
        return entries.to_mkldnn().tanh_().to_dense().to(x.dtype).as_strided(x.shape, x.stride())


def _evaluated_on_cpu(x: Tensor) -> bool:
    """Whether no gradient is asked for; not where several models are one, or the network is being exported."""
    return (
        x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.bfloat16)
        and not torch.is_grad_enabled()
        and not torch._C._functorch.is_batchedtensor(x)
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
    )
