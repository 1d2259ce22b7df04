"""Convolutional networks on a CPU in oneDNN's own layout, from the images to where they are flattened.

There oneDNN pools and computes tanh itself, several times as fast as torch does on its own layouts, and no convolution
reorders what it reads.
"""

from __future__ import annotations

import platform
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from rffl_pl.functional.finite import all_finite

_X86 = platform.machine().lower() in ("x86_64", "amd64")  # elsewhere it has not been tried


def takes(layers: nn.Sequential, x: Tensor) -> bool:
    """Whether they can go this way: on a CPU of x86, one model at a time, and not where the network is being exported.

    In single precision; in bfloat16 only where no gradient is asked for and the CPU has instructions for it. From torch
    2.4 on. Not what is not finite, which oneDNN's pooling loses: a model that has diverged would look sound.

    Args:
        layers: Convolutions with a bias, pooling, tanh and ReLU, then a `torch.nn.Flatten`, then any others.
        x: Their inputs.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or x.device.type != "cpu" or not len(x):
        return False
    if not (_X86 and torch.backends.mkldnn.is_available() and hasattr(torch, "get_autocast_dtype")):
        return False
    if _precision(x) != torch.float32 and not (_precision(x) == torch.bfloat16 and _evaluates_in_bfloat16()):
        return False
    tensors = [x.detach(), *(p.detach() for p in layers.parameters())]
    if any(torch._C._functorch.is_batchedtensor(t) for t in tensors):
        return False
    return all_finite(torch.stack([t.sum() for t in tensors]))


def forward(layers: nn.Sequential, x: Tensor) -> Tensor:
    """What the layers make of inputs ``[B, channels, height, width]``, in the precision of autocast."""
    precision, rest = _precision(x), iter(layers)
    h = x.to(precision).contiguous().to_mkldnn()
    with torch.autocast("cpu", enabled=False):  # which cannot convert what lies in that layout
        for layer in takewhile(lambda layer: not isinstance(layer, nn.Flatten), rest):
            if isinstance(layer, nn.Conv2d):
                h = conv2d(h, _as_taken(layer.weight, precision), _as_taken(layer.bias, precision))
            else:
                h = _Tanh.apply(h) if isinstance(layer, nn.Tanh) else layer(h)
    h = h.to_dense().flatten(1)
    for layer in rest:
        h = layer(h)
    return h


def _as_taken(parameter: Tensor | None, precision: torch.dtype) -> Tensor:
    """As oneDNN takes them: in single precision as they are, with a gradient too, in another in its own layout."""
    assert parameter is not None
    return parameter if precision == torch.float32 else parameter.to(precision).to_mkldnn()


def _precision(x: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype


def _evaluates_in_bfloat16() -> bool:
    return not torch.is_grad_enabled() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class _Tanh(torch.autograd.Function):
    """oneDNN's tanh, of whose gradient torch has only its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        found: Tensor = torch.ops.aten.tanh_backward(gradients[0].to_dense(), y.to_dense())
        return found.to_mkldnn()
