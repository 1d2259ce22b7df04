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

from rffl_pl.models.eager import eager

_X86 = platform.machine().lower() in ("x86_64", "amd64")  # elsewhere it has not been tried


def takes(layers: nn.Sequential, x: Tensor) -> bool:
    """Whether they can go this way: on a CPU of x86, one model at a time, and not where the network is being exported.

    In single precision; in bfloat16 only where no gradient is asked for and the CPU has instructions for it. From torch
    2.4 on. Not where a layer has hooks, nor under `torch.func`. Not where numbers may overflow or are none, which
    oneDNN's pooling and ReLU lose: a model that has diverged would look sound. Nor where inputs have gradients, whose
    own gradients a penalty may need: it has no second derivatives. Who needs those by weights turns it off by
    ``torch.backends.mkldnn.flags(enabled=False)``.

    Args:
        layers: Convolutions as `torch.nn.Conv2d` makes them of channels and a kernel, max-pooling, tanh and ReLU, then
            a `torch.nn.Flatten`, then any others.
        x: Their inputs.
    """
    backend = torch.backends.mkldnn
    known = _X86 and backend.is_available() and backend.enabled and hasattr(torch, "get_autocast_dtype")
    if not (known and eager(layers, x)) or x.requires_grad:
        return False
    if _precision(x) != torch.float32 and not (_precision(x) == torch.bfloat16 and _evaluates_in_bfloat16()):
        return False
    return _bound(layers, x) < 1e30


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


@torch.no_grad()
def _bound(layers: nn.Sequential, x: Tensor) -> float:
    """What no number is larger than on the way to `torch.nn.Flatten`, were tanh and ReLU not there; NaN if one is."""
    bound = x.abs().amax()
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            assert layer.bias is not None
            bound = (bound + 1) * (layer.weight.abs().sum() + layer.bias.abs().amax() + 1)
    return float(bound)


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
