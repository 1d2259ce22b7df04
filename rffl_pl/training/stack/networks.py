"""Layers that have to know that there are several models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, multi_head_attention_forward
from torch.overrides import TorchFunctionMode

from rffl_pl.training.parameters import sharing_copy
from rffl_pl.training.stack.optimizers import NotStackableError


class Draws:
    """Random numbers for all rows at once, those of each row from its participant's stream.

    Attributes:
        streams: Of the participants whose step it is, m of them.
        sizes: How many examples each of them has in this step.
        channels_last: Whether maps are drawn with channels last, as those of images lie where one trains after another.
    """

    def __init__(self) -> None:
        self.channels_last = False
        self.streams: Sequence[torch.Generator] = ()
        self.sizes: Sequence[int] = ()

    def ones(self, rows: Tensor, share: float) -> Tensor:
        """Ones with probability ``share``, else zeros, in the shape of ``rows`` ``[m, B, ...]``."""
        drawn = torch.ones(rows.shape, dtype=rows.dtype)  # on the CPU, as the streams are, and brought over at once
        lying = torch.channels_last if self.channels_last and rows.dim() == 5 else torch.contiguous_format
        for row, stream, size in zip(drawn, self.streams, self.sizes, strict=True):
            own = torch.empty_like(row[:size], memory_format=lying)
            row[:size] = own.bernoulli_(share, generator=stream)
        return drawn.to(rows.device, non_blocking=True)


def autocast_to(device: torch.device) -> torch.dtype | None:
    """What autocast computes in on a device; None where it is off."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
    if device.type == "cpu":  # before torch 2.4
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


class Lowered(TorchFunctionMode):
    """Layers in autocast's precision, which does not see the operations that `torch.func.vmap` makes of them.

    Args:
        device: Where they compute.
    """

    LAYERS = frozenset(
        {torch.conv1d, torch.conv2d, torch.conv3d, linear, torch.prelu, multi_head_attention_forward}
        | {torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d}
    )

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        dtype = autocast_to(self.device) if function in self.LAYERS else None  # a network may switch it off within
        if dtype is not None:
            args = [_lowered(value, dtype) for value in args]
            kwargs = {name: _lowered(value, dtype) for name, value in kwargs.items()}
        return function(*args, **kwargs)


def _lowered(value: Any, dtype: torch.dtype) -> Any:
    """As autocast takes it, which leaves double precision and whole numbers alone."""
    single = isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64
    return value.to(dtype) if single else value


def adapted(network: nn.Module, draws: Draws) -> nn.Module:
    """Replace, in place, layers that `torch.func.vmap` gets wrong; the network, or what replaces it.

    Raises:
        NotStackableError: If a layer has no such replacement, since it only works for one model at a time.
    """
    made: dict[nn.Module, _Dropout] = {}  # one layer may stand in several places
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            raise NotStackableError(f"{type(module).__name__} keeps statistics while it trains")
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise NotStackableError(f"{type(module).__name__} goes by a batch, and shorter ones are filled up")
        if isinstance(module, nn.RNNBase | nn.LSTMCell):
            raise NotStackableError(f"torch.func.vmap has no rule for {type(module).__name__}")
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and not isinstance(module, _Embedding):
            _check_embedding(module)
        if type(module) is nn.Embedding and module.padding_idx is not None:
            module.__class__ = _Embedding
        for name, child in list(module._modules.items()):
            if type(child) is nn.Dropout:
                setattr(module, name, made.setdefault(child, _Dropout(child.p, draws)))
    return _Dropout(network.p, draws) if type(network) is nn.Dropout else network


def dropping(network: nn.Module, share: float) -> nn.Module:
    """A copy whose dropout drops so much, where it drops anything, and which shares what does not train."""
    copied = sharing_copy(network)
    for layer in copied.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.p = share if layer.p else 0.0
        elif isinstance(layer, nn.MultiheadAttention):
            layer.dropout = share if layer.dropout else 0.0
    return copied


def drops(network: nn.Module) -> bool:
    """Whether it has layers that `adapted` has draw from every participant's own stream."""
    return any(type(layer) is nn.Dropout and layer.p for layer in network.modules())


def _check_embedding(embedding: nn.Embedding | nn.EmbeddingBag) -> None:
    """See that it does nothing but look up rows.

    Raises:
        NotStackableError: If not.
    """
    for option in ("max_norm", "scale_grad_by_freq"):
        if getattr(embedding, option):
            raise NotStackableError(f"{type(embedding).__name__} has {option}")
    own = isinstance(embedding, nn.Embedding) and type(embedding) is not nn.Embedding
    if own and embedding.padding_idx is not None:
        raise NotStackableError(f"torch.func.vmap trains the padding of {type(embedding).__name__}")


def alike(one: Any, other: Any) -> bool:
    """Whether two networks compute the same but for the values of the parameters that train.

    What they hold is compared: layers, settings, frozen parameters and buffers. What has no equality, such as a
    function that each has of its own, is taken for different.
    """
    return _alike(one, other, set())


def _alike(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    if one is other or (id(one), id(other)) in seen:  # seen: a circle, whose other parts decide
        return True
    seen.add((id(one), id(other)))
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        facts = [(each.shape, each.dtype, each.device, each.requires_grad) for each in (one, other)]
        return facts[0] == facts[1] and (one.requires_grad or torch.equal(one, other))
    if isinstance(one, nn.Module):
        return _alike(vars(one), vars(other), seen)
    if isinstance(one, dict):
        return list(one) == list(other) and all(_alike(one[key], other[key], seen) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_alike(a, b, seen) for a, b in zip(one, other, strict=True))
    return isinstance(one, Draws) or (one == other) is True


class _Embedding(nn.Embedding):
    """An embedding without a gradient for its padding, which torch's own has under `torch.func.vmap`."""

    def forward(self, x: Tensor) -> Tensor:
        assert self.padding_idx is not None
        found = embedding(x, self.weight)
        return torch.where(torch.eq(x, self.padding_idx).unsqueeze(-1), found.detach(), found)


class _Dropout(nn.Module):
    """A dropout that draws each participant's mask from the participant's own stream."""

    def __init__(self, p: float, draws: Draws) -> None:
        super().__init__()
        self.p = p
        self.draws = draws

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:  # in training: a part that its network keeps in evaluation
            return x
        if self.p == 1:  # torch's draws nothing either
            return x * 0
        mask: Tensor = _Mask.apply(x.detach(), 1 - self.p, self.draws)
        return x * mask


class _Mask(torch.autograd.Function):
    """The mask of a dropout, which vmap has drawn for all models at once, each from its participant's stream."""

    @staticmethod
    def forward(x: Tensor, share: float, draws: Draws) -> Tensor:
        raise AssertionError("drawn under vmap alone")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, share: float, draws: Draws) -> tuple[Tensor, int]:
        return draws.ones(x.movedim(in_dims[0], 0), share).div_(share), 0
