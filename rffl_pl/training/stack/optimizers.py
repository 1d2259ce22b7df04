"""torch's optimizers for several models at once: a row ``[D]`` of weights for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer


class NotStackableError(Exception):
    """Why participants can only be trained one after another."""


class Rule(Protocol):
    """One step of an optimizer on rows ``[m, D]``."""

    @property
    def slots(self) -> tuple[str, ...]:
        """What it remembers of every entry, by torch's names."""

    @property
    def decays(self) -> bool:
        """Whether weights decay."""

    def step(self, weights: Tensor, grad: Tensor, state: Sequence[Tensor], steps: Tensor, rate: float) -> None:
        """Change ``weights`` and ``state``, a tensor ``[m, D]`` per slot, in place.

        Args:
            weights: ``[m, D]``.
            grad: The gradients ``[m, D]``; not to be used afterwards.
            state: What the optimizer remembers.
            steps: How many steps each row has taken with this one, ``[m, 1]``.
            rate: The learning rate.
        """


_MOMENTUM = ("momentum_buffer",)


@dataclass(frozen=True)
class _Descent:
    """`torch.optim.SGD`."""

    group: Mapping[str, Any]

    @property
    def slots(self) -> tuple[str, ...]:
        return _MOMENTUM if self.group["momentum"] else ()

    @property
    def decays(self) -> bool:
        return bool(self.group["weight_decay"])

    def step(self, weights: Tensor, grad: Tensor, state: Sequence[Tensor], steps: Tensor, rate: float) -> None:
        group = self.group
        if group["weight_decay"]:
            grad.add_(weights, alpha=group["weight_decay"])
        if group["momentum"]:
            (buffer,) = state
            buffer.mul_(group["momentum"]).add_(grad)
            grad = grad.add_(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        weights.add_(grad, alpha=-rate)


@dataclass(frozen=True)
class _Adaptive:
    """`torch.optim.Adam`, and `AdamW`."""

    group: Mapping[str, Any]

    @property
    def slots(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    @property
    def decays(self) -> bool:
        return bool(self.group["weight_decay"])

    def step(self, weights: Tensor, grad: Tensor, state: Sequence[Tensor], steps: Tensor, rate: float) -> None:
        group, (first, second) = self.group, state
        low, high = group["betas"]
        if group["weight_decay"] and group["decoupled_weight_decay"]:
            weights.mul_(1 - rate * group["weight_decay"])
        elif group["weight_decay"]:
            grad.add_(weights, alpha=group["weight_decay"])
        first.lerp_(grad, 1 - low)
        second.mul_(high).addcmul_(grad, grad, value=1 - high)
        spread = (second.sqrt() / (1 - high**steps).sqrt().to(second)).add_(group["eps"])
        weights.sub_(first / spread * (rate / (1 - low**steps)).to(first))


def rule_of(optimizer: Optimizer) -> Rule:
    """The optimizer for rows."""
    kind = type(optimizer)
    (group, *others) = optimizer.param_groups
    plain = not others and not any(group.get(name) for name in ("amsgrad", "maximize", "dampening", "differentiable"))
    settings = {name: value for name, value in group.items() if name not in ("params", "lr")}  # those are the rows' own
    if plain and kind is SGD:
        return _Descent(settings)
    if plain and kind in (Adam, AdamW):
        return _Adaptive({"decoupled_weight_decay": kind is AdamW, **settings})
    raise NotStackableError(f"{kind.__name__} with these options is none that is written for several models")


def check_whole(optimizer: Optimizer, parameters: Sequence[nn.Parameter]) -> None:
    """See that an optimizer steps a network's parameters that train, in their order, and does nothing beside.

    Raises:
        NotStackableError: If not.
    """
    kind = type(optimizer).__name__
    stepped = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if [*map(id, stepped)] != [*map(id, parameters)]:
        raise NotStackableError(f"{kind} steps some of the parameters alone, or in an order of its own")
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks or "step" in vars(optimizer):
        raise NotStackableError(f"steps of {kind} have hooks, or were replaced")


def gathered(optimizer: Optimizer, slot: str, weights: Tensor) -> Tensor:
    """What an optimizer remembers of all parameters, ``[D]``; zeros before its first step."""
    parameters = optimizer.param_groups[0]["params"]
    parts = [optimizer.state[p].get(slot) if p in optimizer.state else None for p in parameters]
    known = [
        torch.zeros_like(p).flatten() if part is None else part.flatten()
        for p, part in zip(parameters, parts, strict=True)
    ]
    return torch.cat(known).to(weights)


def steps_taken(optimizer: Optimizer) -> float:
    """How many steps an optimizer has taken, as far as it counts them."""
    parameter = optimizer.param_groups[0]["params"][0]
    return float(optimizer.state[parameter].get("step", 0)) if parameter in optimizer.state else 0.0


def counted(optimizer: Optimizer, slots: Sequence[str], steps: Tensor, taken: Tensor) -> Tensor:
    """How many steps each has taken, ``[n]``, where such an optimizer keeps the number.

    Args:
        optimizer: One of them.
        slots: What it remembers.
        steps: The numbers on the device.
        taken: The same on the CPU.
    """
    group = optimizer.param_groups[0]
    stays = group.get("fused") or group.get("capturable") or slots in ((), _MOMENTUM)
    return (steps if stays else taken).to(torch.float32)


def put_state(optimizer: Optimizer, slots: Sequence[str], rows: Sequence[Tensor], steps: Tensor) -> None:
    """Leave an optimizer with what it remembers, ``[D]`` per slot, and the number of its steps as of `counted`."""
    group = optimizer.param_groups[0]
    sizes = [p.numel() for p in group["params"]]
    for p, *parts in zip(group["params"], *(row.split(sizes) for row in rows), strict=True):
        state: dict[str, Any] = {slot: part.view(p.shape) for slot, part in zip(slots, parts, strict=True)}
        optimizer.state[p] = state if slots == _MOMENTUM else {"step": steps.clone(), **state}
