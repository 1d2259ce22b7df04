"""Whether participants can be trained as a stack: what one alone would do otherwise is a reason to refuse."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.optim import Optimizer

from rffl_pl.errors import reason
from rffl_pl.functional.fingerprints import changes, close, counts
from rffl_pl.functional.streams import python_numpy_state, python_numpy_unchanged, random_stream
from rffl_pl.training.layout import channels_last
from rffl_pl.training.objective import Loss
from rffl_pl.training.parameters import bind, flat_parameters, trainable
from rffl_pl.training.stack.networks import dropping, drops
from rffl_pl.training.stack.optimizers import NotStackableError, check_whole
from rffl_pl.training.stack.training import Stack

_ROUNDING = 0.01
"""A share of the largest logit: on a GPU rounding is coarse."""


def refusal(
    network: nn.Module,
    optimizer: Optimizer,
    x: Tensor,
    *,
    loss: Loss = cross_entropy,
    precision: Callable[[], AbstractContextManager[object]] = nullcontext,
    moved: bool = False,
    channels_last: bool = False,
) -> str | None:
    """Why participants with such a network cannot be trained as a stack; None if they can.

    Args:
        network: Their network.
        optimizer: One of their optimizers.
        x: Inputs ``[B, ...]`` on the network's device.
        loss: Their loss, on the network's device.
        precision: Surrounds their training.
        moved: Whether their steps are corrected, or drawn to another place than where they begin.
        channels_last: Whether one after another they are given images with channels last.
    """
    try:
        stack = Stack(network, optimizer, loss)
        check_whole(optimizer, trainable(network))
        _check_step(stack, network, x, moved)
        plain = dropping(network, 0.0)
        _check_gradients(Stack(plain, optimizer, loss), plain, x)
        if drops(network):
            drawing = dropping(copy.deepcopy(network).cpu(), 0.5)
            _check_dropout(Stack(drawing, optimizer, loss, channels_last=channels_last), drawing, x.cpu())
        with precision():
            _rehearse(stack, network, x)
    except Exception as error:  # whatever torch.func or the network makes of it
        return str(error) if isinstance(error, NotStackableError) else reason(error)
    return None


def _check_step(stack: Stack, network: nn.Module, x: Tensor, moved: bool) -> None:
    """Try a step of two such networks.

    Args:
        stack: It trains such networks.
        network: One of them.
        x: Inputs ``[B, ...]``.
        moved: Whether turns have corrections, or anchors elsewhere.

    Raises:
        NotStackableError: If the network does what a stack does not.
    """
    leaves = _two_of(stack, network, x)
    before = {name: (buffer, buffer._version) for name, buffer in stack.network.named_buffers()}
    counted = counts(stack.network)
    outside = python_numpy_state()
    logits = stack.logits_by_name(leaves, torch.stack([x, x]))
    if not python_numpy_unchanged(outside):
        raise NotStackableError("it draws random numbers of Python's or NumPy's, of which all would have the same")
    if changed := changes(counted, counts(stack.network)):
        raise NotStackableError(f"its {changed[0]} changes while it trains")
    stirred = _stirred(stack, leaves)  # a last layer of zeros, as some begin with, would hide what it is given
    _check_filling(stack, leaves, x)
    _check_filling(stack, stirred, x)
    _check_loss(stack, logits.shape[-1], x.device)
    for name, buffer in stack.network.named_buffers():
        kept, version = before.get(name, (None, 0))
        if buffer is not kept or buffer._version != version:
            raise NotStackableError(f"its buffer {name} changes while it trains")
    found = torch.autograd.grad(logits.sum(), list(leaves.values()), allow_unused=True)
    unused = [name for name, grad in zip(leaves, found, strict=True) if grad is None]
    if unused and (stack.rule.decays or moved):  # one after another, what has no gradient is left alone
        what = "weights decay" if stack.rule.decays else "steps are drawn elsewhere"
        raise NotStackableError(f"{what}, but nothing uses {unused[0]}")


def _check_gradients(stack: Stack, network: nn.Module, x: Tensor) -> None:
    """See that gradients are those of one such network alone: hooks that change them do not come to all at once.

    Args:
        stack: It trains such networks.
        network: One of them, without dropout; its weights are changed.
        x: Inputs ``[B, ...]``.

    Raises:
        NotStackableError: If they are others.
    """
    stirred = _stirred(stack, _two_of(stack, network, x))
    leaf = torch.cat([part.reshape(len(part), -1) for part in stirred.values()], 1).requires_grad_()
    logits = stack.logits(leaf, torch.stack([x, x]))
    y = torch.arange(len(x), device=x.device) % logits.shape[-1]
    means = stack.means(logits, torch.stack([y, y]), torch.ones(2, len(x), device=x.device))
    bind(network.train(), leaf[0].detach().clone())
    loss = stack.loss(network(x), y)
    for scale in (1e-6, 1.0, 1e6):  # a bound may be met by some of them alone
        ((found, _),) = torch.autograd.grad(scale * means.sum(), leaf, retain_graph=True)
        network.zero_grad(set_to_none=True)
        (scale * loss).backward(retain_graph=True)
        grads = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in trainable(network)]
        alone = torch.cat([grad.flatten() for grad in grads])
        if alone.isfinite().all() and not (found - alone).norm() <= 0.01 * alone.norm() + 1e-6 * scale:
            raise NotStackableError("it changes its gradients, by hooks say, which are not heard for all at once")


@torch.no_grad()
def _check_dropout(stack: Stack, network: nn.Module, x: Tensor) -> None:
    """See that dropout drops of every example what it drops where participants train one after another.

    It does not where its input does not have a row for each example, or lies otherwise in memory than is assumed.

    Args:
        stack: It trains such networks.
        network: One of them, on the CPU, where the streams are; its weights are changed.
        x: Inputs ``[B, ...]`` there.

    Raises:
        NotStackableError: If it drops something else.
    """
    x = torch.cat([x[:1]] * 3)
    stirred = _stirred(stack, _two_of(stack, network, x))
    bind(network.train(), torch.cat([part[0].flatten() for part in stirred.values()]))
    with random_stream(0, x.device):
        alone = network(channels_last(x) if stack.channels_last else x)
    filled = torch.cat([x, torch.zeros_like(x[:2])])
    if not close(_drawn(stack, stirred, filled, len(x))[0], alone, _ROUNDING):
        raise NotStackableError("its dropout draws otherwise for one alone than for all at once")


def _rehearse(stack: Stack, network: nn.Module, x: Tensor) -> None:
    """The gradients of a step of two such networks: in another precision layers may meet what they do not take."""
    leaves = _two_of(stack, network, x)
    logits = stack.logits_by_name(leaves, torch.stack([x, x])).flatten(0, 1)
    losses = stack.losses(logits, torch.zeros(len(logits), dtype=torch.int64, device=x.device))
    torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)


def _two_of(stack: Stack, network: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Every parameter of two such networks, ``[2, ...]``, which are about to train on so many inputs."""
    weights = flat_parameters(network).repeat(2, 1)
    stack.draws.streams, stack.draws.sizes = [torch.Generator(), torch.Generator()], [len(x), len(x)]
    return {name: part.detach().requires_grad_() for name, part in stack.named(weights).items()}


@torch.no_grad()
def _stirred(stack: Stack, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Parameters ``[m, ...]`` with noise about as large as layers begin with; what stands for padding stays."""
    stream, found = torch.Generator().manual_seed(0), {}
    for name, part in weights.items():
        noise = torch.randn(part.shape, generator=stream).to(part)
        fan_in = part[0].numel() // len(part[0]) if part.dim() > 2 else 10
        found[name] = part + noise / max(1, fan_in) ** 0.5
    for name, layer in stack.network.named_modules():
        row = f"{name}.weight".lstrip(".")
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.padding_idx is not None and row in found:
            found[row][:, layer.padding_idx] = weights[row][:, layer.padding_idx]
    return found


@torch.no_grad()
def _check_filling(stack: Stack, weights: dict[str, Tensor], x: Tensor) -> None:
    """See that what fills up a participant's batch beside another's longer one changes none of its logits.

    Raises:
        NotStackableError: If it does.
    """
    # The others are larger, since a batch may be scaled by its largest, and none that the data may not have.
    own = x / 4 if x.is_floating_point() else x
    more = torch.cat([own, torch.zeros_like(x[:1]), x])
    if not close(_drawn(stack, weights, own), _drawn(stack, weights, more, len(x)), _ROUNDING):
        raise NotStackableError("what it makes of an example depends on which others are in the batch")
    if x.is_floating_point() or x.dim() != 2:
        return
    part = x[:, : max(1, x.shape[1] // 2)].repeat(2, 1)  # of sentences, whose others may be longer
    try:
        longer = _drawn(stack, weights, pad(part, (0, max(1, x.shape[1] - part.shape[1]))))
        shorter = _drawn(stack, weights, part)
    except (RuntimeError, LookupError, ValueError):
        return  # of one length only: there are no others
    if not close(shorter, longer, _ROUNDING):
        raise NotStackableError("what it makes of a sentence depends on how many zeros are behind it")


def _drawn(stack: Stack, weights: dict[str, Tensor], x: Tensor, count: int | None = None) -> Tensor:
    """Logits of two models for the first so many of ``x``, with the same random numbers each time."""
    count = len(x) if count is None else count
    stack.draws.streams = [torch.Generator().manual_seed(0) for _ in range(2)]
    stack.draws.sizes = [count, count]
    return stack.logits_by_name(weights, torch.stack([x, x]))[:, :count]


def _check_loss(stack: Stack, classes: int, device: torch.device) -> None:
    """See that a batch's loss is the mean over its examples, whose number here depends on the participant."""
    if stack.loss is cross_entropy:
        return
    # More than a mini-batch, since some losses go by so many of its examples; of very many classes not all.
    count = min(max(2 * classes, 1024), max(64, 2**22 // classes))
    y = torch.arange(count) % classes
    logits = torch.randn(count, classes, generator=torch.Generator().manual_seed(0))
    # Some are told well and some badly: where all are told alike, a loss that bends between may not show.
    logits[torch.arange(count), y] += torch.tensor([0.0, 20.0, -20.0])[torch.arange(count) % 3]
    logits, y = logits.to(device), y.to(device)
    if not torch.allclose(stack.loss(logits, y), stack.losses(logits, y).mean(), rtol=1e-4):
        raise NotStackableError("the loss of a batch is not the mean of those of its examples")
