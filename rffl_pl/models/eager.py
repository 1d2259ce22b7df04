"""Where a network may compute the same in another order, because nobody looks at its layers one by one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def eager(layers: Iterable[nn.Module], x: Tensor) -> bool:
    """Whether these are inputs on a CPU of one model, not exported nor under `torch.func`, and no layer has hooks."""
    if not isinstance(x, Tensor) or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    if x.device.type != "cpu" or not len(x) or torch._C._functorch.maybe_current_level() is not None:
        return False
    return not any(map(hooked, layers))


def hooked(layer: nn.Module) -> bool:
    """Whether a layer has hooks, which are called with it alone."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)
