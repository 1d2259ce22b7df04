"""A network's parameters that train, as one vector, and the network as a view of it; its running statistics."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from rffl_pl.errors import UserError


def trainable(network: nn.Module) -> list[nn.Parameter]:
    """The parameters that require gradients: those that train and travel."""
    return [p for p in network.parameters() if p.requires_grad]


def layer_sizes(network: nn.Module) -> list[int]:
    """Number of entries of every parameter tensor that trains, in ``module.parameters()`` order.

    Raises:
        UserError: If the network has no such parameters, lazy ones or some that are not float32.
    """
    if any(isinstance(p, nn.UninitializedParameter) for p in network.parameters()):
        raise UserError(
            f"Expected --model.network to know its sizes, but {type(network).__name__} has lazy layers; give theirs."
        )
    parameters = trainable(network)
    others = [
        f"{name} in {p.dtype}" for name, p in network.named_parameters() if p.requires_grad and p.dtype != torch.float32
    ]
    if not parameters or others:
        found = f"{len(parameters)}, {', '.join(others[:3])}" if others else "none"
        raise UserError(
            f"Expected --model.network to have parameters that train, all of them float32, but "
            f"{type(network).__name__} has {found}; "
            f"{'call its .float(); for' if others else 'for'} lower precision give --trainer.precision bf16-mixed."
        )
    return [p.numel() for p in parameters]


def flat_parameters(network: nn.Module) -> Tensor:
    """All parameters that train as one new vector ``[D]``."""
    return torch.cat([p.detach().flatten() for p in trainable(network)])


def sharing_copy(network: nn.Module) -> nn.Module:
    """A copy that shares what does not train."""
    return copy.deepcopy(network, {id(p): p for p in network.parameters() if not p.requires_grad})


@contextmanager
def modes_kept(network: nn.Module) -> Iterator[None]:
    """Where a network is evaluated: afterwards every layer is in the mode that it was in, training or evaluation."""
    training, modes = network.training, [(layer, layer.training) for layer in network.modules()]
    try:
        yield
    finally:
        network.train(training)  # its own may do more than that
        for layer, mode in modes:
            layer.training = mode


def running_statistics(network: nn.Module) -> list[Tensor]:
    """What normalisation layers know of all that they have seen: float32 buffers, `running_mean` and `running_var`.

    By these names, which BatchNorm and InstanceNorm have: layers of one's own may call theirs so, too.
    """
    named = ((name.rpartition(".")[2], buffer) for name, buffer in network.named_buffers())
    return [b for name, b in named if name in ("running_mean", "running_var") and b.dtype == torch.float32]


def aligned_rows(row: Tensor, count: int) -> Tensor:
    """``count`` copies of ``row`` ``[D]``, each starting at a multiple of 64 bytes.

    Matrix products pick their order of summation by alignment: a participant's bits must not depend on the row it has.
    """
    rows = row.new_empty(count, -(-len(row) // 16) * 16)[:, : len(row)]
    return rows.copy_(row)


def bind(network: nn.Module, row: Tensor) -> nn.Module:
    """Make a network's parameters views into ``row`` ``[D]``, where its recurrent layers leave them too."""
    for parameter, view in zip(trainable(network), row.split(layer_sizes(network)), strict=True):
        parameter.data = view.view(parameter.shape)
    for layer in network.modules():
        if isinstance(layer, nn.RNNBase):
            layer.flatten_parameters = _as_they_lie  # type: ignore[method-assign]  # of this copy alone
    return network


def _as_they_lie() -> None:
    """In place of what networks call in ``forward``: on a GPU it moves a layer's parameters into memory of their own.

    cuDNN then gathers them at every call. A function of the module, since it is copied and pickled with the layer.
    """


def astray(network: nn.Module, row: Tensor) -> str | None:
    """The name of the first parameter that trains and is no view into ``row`` ``[D]`` any more; None if all are."""
    start = row.data_ptr()
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and parameter.numel():
            if parameter.data_ptr() != start:
                return name
            start += parameter.numel() * row.element_size()
    return None
