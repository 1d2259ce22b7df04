"""Local training of several participants at once, their models as one stack of tensors ``[n, ...]``.

A step of n small models is n times the work for little more than the time of one, where the time goes into starting
operations: on a GPU, and with small networks on a CPU. Every participant keeps its own examples, order, dropout,
learning rate, optimizer state and gradient; `torch.func.vmap` makes of the network one that takes all models.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy, embedding, pad
from torch.optim import SGD, Adam, AdamW, Optimizer

from rffl_pl.errors import reason

Batch = tuple[Tensor, Tensor]


class NotStackableError(Exception):
    """Why participants can only be trained one after another."""


class Passes(Protocol):
    """A participant's training examples."""

    def __len__(self) -> int:
        """How many."""

    def epoch(self) -> Iterable[Batch]:
        """Mini-batches of one pass, in an order drawn from the surrounding random stream."""


@runtime_checkable
class Indexed(Protocol):
    """A pass that is known by the numbers of its examples.

    Attributes:
        order: Those of each mini-batch, ``[B]`` each.
        tensors: All examples that they count, inputs and classes; None where they do not lie in memory as tensors.
        prepare: What makes the network's inputs of those; None where they are that.
    """

    order: Sequence[Tensor]

    @property
    def tensors(self) -> tuple[Tensor, ...] | None: ...

    @property
    def prepare(self) -> Callable[[Tensor], Tensor] | None: ...


class Rule(Protocol):
    """One step of an optimizer on rows ``[m, D]``."""

    @property
    def slots(self) -> tuple[str, ...]:
        """What it remembers of every entry, by torch's names."""

    def step(self, weights: Tensor, grad: Tensor, state: Sequence[Tensor], steps: Tensor, rate: float) -> None:
        """Change ``weights`` and ``state``, a tensor ``[m, D]`` per slot, in place.

        Args:
            weights: ``[m, D]``.
            grad: The gradients ``[m, D]``; not to be used afterwards.
            state: What the optimizer remembers.
            steps: How many steps each row has taken with this one, ``[m, 1]``.
            rate: The learning rate.
        """


@dataclass(frozen=True)
class _Descent:
    """`torch.optim.SGD`."""

    group: Mapping[str, Any]

    @property
    def slots(self) -> tuple[str, ...]:
        return ("momentum_buffer",) if self.group["momentum"] else ()

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


@dataclass(frozen=True)
class Turn:
    """A participant's local training in one round.

    Attributes:
        weights: Its weights ``[D]``, which are trained in place.
        optimizer: Its optimizer, whose state goes on.
        examples: Its training examples.
        seed: Seed of its random stream in this round.
    """

    weights: Tensor
    optimizer: Optimizer
    examples: Passes
    seed: int


class Stack:
    """Trains participants with one network at once.

    Args:
        network: Their network; it is copied.
        optimizer: One of theirs; all are of one kind.

    Raises:
        NotStackableError: If such a network or optimizer can only be trained one participant at a time; it says why.
    """

    def __init__(self, network: nn.Module, optimizer: Optimizer) -> None:
        self._streams: list[torch.Generator] = []
        self._sizes: list[int] = []
        self._examples: tuple[tuple[Tensor, ...], tuple[Tensor, Tensor]] | None = None
        self.rule = _rule(optimizer)
        frozen = {id(p): p for p in network.parameters() if not p.requires_grad}
        self._network = self._adapted(copy.deepcopy(network, frozen)).train()
        self._parameters = [(name, p.shape) for name, p in self._network.named_parameters() if p.requires_grad]

    def train(self, turns: Sequence[Turn], rates: Sequence[float]) -> Tensor:
        """Train everybody for as many local epochs as there are rates.

        Args:
            turns: Whose turn it is, n of them.
            rates: The learning rate of each local epoch.

        Returns:
            Mean training losses ``[n]`` of the last local epoch.
        """
        # Whoever has the most batches first: those who have not ended are then always the first rows.
        order = sorted(range(len(turns)), key=lambda k: -len(turns[k].examples))
        turns = [turns[k] for k in order]
        rows = _Rows(turns, self.rule.slots)
        streams = [torch.Generator().manual_seed(turn.seed) for turn in turns]
        losses = rows.weights.new_zeros(len(turns))
        for rate in rates:
            totals, counts = rows.weights.new_zeros(len(turns)), rows.weights.new_zeros(len(turns))
            for batch in self._epoch(turns, streams, rows.weights.device):
                self._streams, self._sizes = [streams[k] for k in batch.active], batch.sizes
                means = self._step(rows, batch, rate)
                where, sizes = _where(batch.active), batch.weight.sum(1)
                totals[where] += means * sizes
                counts[where] += sizes
            losses = totals / counts
        rows.put_back(turns)
        return losses[torch.tensor(order).argsort().to(losses.device, non_blocking=True)]

    def _step(self, rows: _Rows, batch: _Batch, rate: float) -> Tensor:
        """One step of some rows ``[m]``: their mean losses ``[m]``."""
        part = rows.of(batch.active)
        leaf = part.weights.detach().requires_grad_()
        logits = self.logits(leaf, batch.x)
        each = cross_entropy(logits.flatten(0, 1), batch.y.flatten(), reduction="none").view_as(batch.weight)
        means = (each * batch.weight).sum(1) / batch.weight.sum(1)
        (grad,) = torch.autograd.grad(means.sum(), leaf)
        torch.clear_autocast_cache()  # the weights it holds in lower precision change now
        with torch.no_grad():
            part.steps.add_(1)
            self.rule.step(part.weights, grad, part.state, part.steps, rate)
            rows.take(batch.active, part)
        return means.detach()

    def _epoch(
        self, turns: Sequence[Turn], streams: Sequence[torch.Generator], device: torch.device
    ) -> Iterator[_Batch]:
        """One pass of everybody, from memory where all examples lie there as tensors."""
        passes: list[Iterable[Batch]] = []
        walks: list[Iterator[Batch]] = []
        for turn, stream in zip(turns, streams, strict=True):
            with _drawing_from(stream):
                passes.append(turn.examples.epoch())
                walks.append(iter(passes[-1]))
        indexed = [found for found in passes if isinstance(found, Indexed)]
        tensors = indexed[0].tensors if len(indexed) == len(passes) else None
        if tensors is not None and all(found.tensors is tensors for found in indexed):
            return _from_memory(self._held(tensors, device), [found.order for found in indexed], indexed[0].prepare)
        return _as_drawn(walks, streams, device)

    def _held(self, tensors: tuple[Tensor, ...], device: torch.device) -> tuple[Tensor, Tensor]:
        """All inputs and classes on the device, where they stay."""
        if self._examples is None or self._examples[0] is not tensors:
            x, y = (tensor.to(device) for tensor in tensors)
            self._examples = (tensors, (x, y.long()))
        return self._examples[1]

    def logits(self, weights: Tensor, x: Tensor) -> Tensor:
        """Class logits ``[m, B, C]`` of models ``[m, D]`` for inputs ``[m, B, ...]``."""
        sizes = [shape.numel() for _, shape in self._parameters]
        named = zip(self._parameters, weights.split(sizes, 1), strict=True)
        stacked = {name: part.unflatten(1, shape) if shape else part.squeeze(1) for (name, shape), part in named}
        logits: Tensor = vmap(lambda own, inputs: functional_call(self._network, own, (inputs,)))(stacked, x)
        return logits

    def _adapted(self, network: nn.Module) -> nn.Module:
        """The network with what `torch.func.vmap` does otherwise, or not at all."""
        for module in network.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
                raise NotStackableError(f"{type(module).__name__} keeps statistics while it trains")
            if type(module) is nn.Embedding and module.padding_idx is not None:
                module.__class__ = _Embedding
            for name, child in module.named_children():
                if type(child) is nn.Dropout:
                    setattr(module, name, _Dropout(child.p, self))
        return _Dropout(network.p, self) if type(network) is nn.Dropout else network

    def draw(self, rows: Tensor, share: float) -> Tensor:
        """Ones with probability ``share``, else zeros, ``[m, B, ...]``, each row from its participant's stream."""
        drawn = torch.ones(rows.shape, dtype=rows.dtype)  # on the CPU, as the streams are, and brought over at once
        for row, stream, size in zip(drawn, self._streams, self._sizes, strict=True):
            row[:size].bernoulli_(share, generator=stream)
        return drawn.to(rows.device, non_blocking=True)


class _Embedding(nn.Embedding):
    """Without a gradient for the padding, of which vmap's rule knows nothing."""

    def forward(self, x: Tensor) -> Tensor:
        assert self.padding_idx is not None
        found = embedding(x, self.weight)
        return torch.where(torch.eq(x, self.padding_idx).unsqueeze(-1), found.detach(), found)


class _Dropout(nn.Module):
    """Draws from every participant's own stream."""

    def __init__(self, p: float, stack: Stack) -> None:
        super().__init__()
        self.p = p
        self._stack = (stack,)  # which is no part of the network

    def forward(self, x: Tensor) -> Tensor:
        mask: Tensor = _Mask.apply(x.detach(), 1 - self.p, self._stack[0])
        return x * mask


class _Mask(torch.autograd.Function):
    """The one place where a function of one model has to know that there are several."""

    @staticmethod
    def forward(x: Tensor, share: float, stack: Stack) -> Tensor:
        raise AssertionError("drawn under vmap alone")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, share: float, stack: Stack) -> tuple[Tensor, int]:
        return stack.draw(x.movedim(in_dims[0], 0), share).div_(share), 0


class _Rows:
    """Weights and optimizer state of several participants, ``[n, D]`` each, and the steps taken, ``[n, 1]``."""

    def __init__(self, turns: Sequence[Turn], slots: Sequence[str]) -> None:
        self.slots = slots
        self.weights = torch.stack([turn.weights for turn in turns])
        self.state = [torch.stack([_gathered(turn.optimizer, slot, turn.weights) for turn in turns]) for slot in slots]
        taken = [_steps(turn.optimizer) for turn in turns]
        steps = torch.tensor(taken, dtype=torch.float64).unsqueeze(1)
        self.steps = steps.to(self.weights.device, non_blocking=True)

    def of(self, active: list[int]) -> _Part:
        """Some rows: views where they are the first ones, else copies."""
        where = _where(active)
        state = [slot[where] for slot in self.state]
        return _Part(self.weights[where], state, self.steps[where], isinstance(where, slice))

    def take(self, active: list[int], part: _Part) -> None:
        """Take changed rows back."""
        if not part.views:
            self.weights[active], self.steps[active] = part.weights, part.steps
            for slot, changed in zip(self.state, part.state, strict=True):
                slot[active] = changed

    def put_back(self, turns: Sequence[Turn]) -> None:
        """Leave everybody with its weights and its optimizer's state."""
        for k, turn in enumerate(turns):
            turn.weights.copy_(self.weights[k])
            if self.slots:
                _put_state(turn.optimizer, self.slots, [slot[k].clone() for slot in self.state], self.steps[k, 0])


@dataclass(frozen=True)
class _Part:
    """Some of the rows, as views of them or as copies."""

    weights: Tensor
    state: list[Tensor]
    steps: Tensor
    views: bool


@dataclass(frozen=True)
class _Batch:
    """A mini-batch of each of some rows: who they are, inputs ``[m, B, ...]``, classes, weights ``[m, B]``, sizes."""

    active: list[int]
    x: Tensor
    y: Tensor
    weight: Tensor
    sizes: list[int]


def refusal(network: nn.Module, optimizer: Optimizer, x: Tensor) -> str | None:
    """Why participants with such a network cannot be trained as a stack; None if they can.

    Args:
        network: Their network.
        optimizer: One of their optimizers.
        x: Inputs ``[B, ...]`` on the network's device.
    """
    try:
        stack = Stack(network, optimizer)
        weights = torch.cat([p.detach().flatten() for p in network.parameters() if p.requires_grad]).repeat(2, 1)
        stack._streams, stack._sizes = [torch.Generator(), torch.Generator()], [len(x), len(x)]
        logits = stack.logits(weights.requires_grad_(), torch.stack([x, x]))
        torch.autograd.grad(logits.sum(), weights)
    except Exception as error:  # whatever torch.func or the network makes of it
        return str(error) if isinstance(error, NotStackableError) else reason(error)
    return None


def _rule(optimizer: Optimizer) -> Rule:
    """The optimizer for rows."""
    kind = type(optimizer)
    (group, *others) = optimizer.param_groups
    plain = not others and not any(group.get(name) for name in ("amsgrad", "maximize", "dampening", "differentiable"))
    if plain and kind is SGD:
        return _Descent(group)
    if plain and kind in (Adam, AdamW):
        return _Adaptive({"decoupled_weight_decay": kind is AdamW, **group})
    raise NotStackableError(f"{kind.__name__} with these options is none that is written for several models")


def _from_memory(
    examples: tuple[Tensor, Tensor], orders: Sequence[Sequence[Tensor]], prepare: Callable[[Tensor], Tensor] | None
) -> Iterator[_Batch]:
    """Mini-batches of examples that lie on the device, by their numbers: one transfer for the whole pass."""
    x, y = examples
    sizes = [[len(part) for part in order] for order in orders]
    steps, largest = max(map(len, sizes)), max(map(max, sizes))
    numbers = torch.zeros(len(orders), steps, largest, dtype=torch.int64)
    for k, order in enumerate(orders):
        for step, part in enumerate(order):
            numbers[k, step, : len(part)] = part
    numbers = numbers.to(x.device, non_blocking=True)
    for step in range(steps):
        active = [k for k, own in enumerate(sizes) if len(own) > step]
        counts = [sizes[k][step] for k in active]
        chosen = numbers[_where(active), step, : max(counts)]
        inputs = x[chosen] if prepare is None else prepare(x[chosen])
        yield _Batch(active, inputs, y[chosen], _weights(counts, x.device), counts)


def _as_drawn(
    walks: Sequence[Iterator[Batch]], streams: Sequence[torch.Generator], device: torch.device
) -> Iterator[_Batch]:
    """Mini-batches as they come, each from its participant's stream, until nobody has another."""
    rest = dict(enumerate(walks))
    while rest:
        found: dict[int, Batch] = {}
        for k, walk in rest.items():
            with _drawing_from(streams[k]):
                batch = next(walk, None)
            if batch is not None:
                found[k] = batch
        rest = {k: rest[k] for k in found}
        if found:
            inputs = [x.to(device, non_blocking=True) for x, _ in found.values()]
            classes = [y.to(device, torch.int64, non_blocking=True) for _, y in found.values()]
            counts = [len(y) for y in classes]
            yield _Batch(list(found), _filled_up(inputs), _filled_up(classes), _weights(counts, device), counts)


@contextmanager
def _drawing_from(stream: torch.Generator) -> Iterator[None]:
    """Have what draws from the default generator draw from this one."""
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(stream.get_state())
    try:
        yield
    finally:
        stream.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(before)


def _filled_up(parts: Sequence[Tensor]) -> Tensor:
    """Tensors as one ``[m, ...]``, with zeros behind those that are shorter, in every dimension."""
    shape = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
    lacking = [[then - now for now, then in zip(part.shape, shape, strict=True)] for part in parts]
    sides = [[entry for count in reversed(more) for entry in (0, count)] for more in lacking]
    return torch.stack([pad(part, side) if any(side) else part for part, side in zip(parts, sides, strict=True)])


def _weights(counts: Sequence[int], device: torch.device) -> Tensor:
    """Ones for the examples that a batch has, zeros for what fills it up, ``[m, B]``."""
    there = torch.arange(max(counts)) < torch.tensor(counts).unsqueeze(1)
    return there.to(device, torch.float32, non_blocking=True)


def _where(active: Sequence[int]) -> Any:
    """An index of some rows that gives views where they are the first ones."""
    return slice(len(active)) if active == list(range(len(active))) else list(active)


def _gathered(optimizer: Optimizer, slot: str, weights: Tensor) -> Tensor:
    """What an optimizer remembers of all parameters, ``[D]``; zeros before its first step."""
    parameters = optimizer.param_groups[0]["params"]
    parts = [optimizer.state[p].get(slot) if p in optimizer.state else None for p in parameters]
    known = [
        torch.zeros_like(p).flatten() if part is None else part.flatten()
        for p, part in zip(parameters, parts, strict=True)
    ]
    return torch.cat(known).to(weights)


def _steps(optimizer: Optimizer) -> float:
    """How many steps an optimizer has taken, as far as it counts them."""
    parameter = optimizer.param_groups[0]["params"][0]
    return float(optimizer.state[parameter].get("step", 0)) if parameter in optimizer.state else 0.0


def _put_state(optimizer: Optimizer, slots: Sequence[str], rows: Sequence[Tensor], steps: Tensor) -> None:
    """Leave an optimizer with what it remembers, ``[D]`` per slot."""
    group = optimizer.param_groups[0]
    sizes = [p.numel() for p in group["params"]]
    count = steps.to(torch.float32)
    count = count if group.get("fused") or group.get("capturable") else count.cpu()
    for p, *parts in zip(group["params"], *(row.split(sizes) for row in rows), strict=True):
        state: dict[str, Any] = {slot: part.view(p.shape) for slot, part in zip(slots, parts, strict=True)}
        optimizer.state[p] = state if slots == ("momentum_buffer",) else {"step": count.clone(), **state}
