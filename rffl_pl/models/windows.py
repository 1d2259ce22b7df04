"""Training on a CPU where a convolution of gray images comes first, pooled: as one product over their windows.

Such a convolution has little to multiply and much to write, and only a quarter of that passes a gradient on. Without
AVX-512 oneDNN is slow at the gradient of its weights, with it oneDNN is the faster: `benchmarks/training.py` compares
both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_WITHOUT_AVX512 = not torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def takes(layers: nn.Sequential, x: Tensor) -> bool:
    """Whether they go this way, where they could go through oneDNN in single precision: for gradients, if gray.

    On a CPU without AVX-512. Images of several channels have larger windows, which take longer to lay out than the
    convolution does.

    Args:
        layers: A convolution, max-pooling by 2, then any others.
        x: Their inputs.
    """
    weight = layers[0].weight
    assert isinstance(weight, Tensor)
    gray = x.shape[1] == weight.shape[1] == 1
    return _WITHOUT_AVX512 and gray and torch.is_grad_enabled() and weight.requires_grad


def forward(layers: nn.Sequential, x: Tensor) -> Tensor:
    """What the layers make of inputs ``[B, 1, height, width]``."""
    convolution, _, *rest = layers
    h: Tensor = _PooledConvolution.apply(x, convolution.weight, convolution.bias)
    for layer in rest:
        h = layer(h)
    return h


class _PooledConvolution(torch.autograd.Function):
    """max(conv(x, w)) + b over squares of 2 x 2 pixels, in memory with the channels last.

    The windows that one such square is pooled of lie in four matrices, by their place in it. Of equal ones the first
    passes the gradient on, as in torch's pooling.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        kernels, channels, *size = weight.shape
        rows, columns = ((pixels - reach + 1) // 2 for pixels, reach in zip(x.shape[2:], size, strict=True))
        image, channel, down, right = x.stride()
        windows = x.as_strided(
            (2, 2, len(x), rows, columns, channels, *size),
            (down, right, image, 2 * down, 2 * right, channel, down, right),
        ).reshape(-1, weight[0].numel())
        kernel = weight.flatten(1).t().contiguous()  # a product's bits may depend on where its factors lie
        products = (windows @ kernel).view(4, -1, kernels)
        largest = torch.maximum(products[0], products[1])
        for i in (2, 3):
            torch.maximum(largest, products[i], out=largest)
        ctx.save_for_backward(windows, products, largest)
        ctx.weight_shape = weight.shape
        return (largest + bias).view(len(x), rows, columns, kernels).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        windows, products, largest = ctx.saved_tensors
        left = gradients[0].permute(0, 2, 3, 1).reshape(largest.shape)
        bias, passed = left.sum(0), torch.empty_like(products)
        for i in range(3):
            torch.eq(products[i], largest, out=passed[i]).mul_(left)
            left = left - passed[i]
        passed[3] = left
        weight = windows.t() @ passed.flatten(0, 1)
        return None, weight.t().reshape(ctx.weight_shape), bias
