"""Local training of several participants at once, their models as one stack of tensors ``[n, ...]``.

A step of n small models is n times the work for little more than the time of one, where the time goes into starting
operations: on a GPU, and with small networks on a CPU. Every participant keeps its own examples, order, dropout,
learning rate, optimizer state and gradient; `torch.func.vmap` makes of the network one that takes all models.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from rffl_pl.errors import reason
from rffl_pl.stack.batches import Batch, Indexed, StackedBatch, as_drawn, drawing_from, from_memory, index_of
from rffl_pl.stack.networks import Draws, adapted
from rffl_pl.stack.optimizers import NotStackableError, rule_of
from rffl_pl.stack.rows import Rows, Turn


class Stack:
    """Trains participants with one network at once.

    Args:
        network: Their network; it is copied.
        optimizer: One of theirs; all are of one kind.

    Raises:
        NotStackableError: If such a network or optimizer can only be trained one participant at a time; it says why.
    """

    def __init__(self, network: nn.Module, optimizer: Optimizer) -> None:
        self._draws = Draws()
        self._examples: tuple[tuple[Tensor, ...], tuple[Tensor, Tensor]] | None = None
        self.rule = rule_of(optimizer)
        frozen = {id(p): p for p in network.parameters() if not p.requires_grad}
        self._network = adapted(copy.deepcopy(network, frozen), self._draws).train()
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
        rows = Rows(turns, self.rule.slots)
        streams = [torch.Generator().manual_seed(turn.seed) for turn in turns]
        losses = rows.weights.new_zeros(len(turns))
        for rate in rates:
            totals, counts = rows.weights.new_zeros(len(turns)), rows.weights.new_zeros(len(turns))
            for batch in self._epoch(turns, streams, rows.weights.device):
                self._draws.streams, self._draws.sizes = [streams[k] for k in batch.active], batch.sizes
                means = self._step(rows, batch, rate)
                where, sizes = index_of(batch.active), batch.weight.sum(1)
                totals[where] += means * sizes
                counts[where] += sizes
            losses = totals / counts
        rows.put_back(turns)
        return losses[torch.tensor(order).argsort().to(losses.device, non_blocking=True)]

    def _step(self, rows: Rows, batch: StackedBatch, rate: float) -> Tensor:
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
    ) -> Iterator[StackedBatch]:
        """One pass of everybody, from memory where all examples lie there as tensors."""
        passes: list[Iterable[Batch]] = []
        walks: list[Iterator[Batch]] = []
        for turn, stream in zip(turns, streams, strict=True):
            with drawing_from(stream):
                passes.append(turn.examples.epoch())
                walks.append(iter(passes[-1]))
        indexed = [found for found in passes if isinstance(found, Indexed)]
        tensors = indexed[0].tensors if len(indexed) == len(passes) else None
        if tensors is not None and all(found.tensors is tensors for found in indexed):
            return from_memory(self._held(tensors, device), [found.order for found in indexed], indexed[0].prepare)
        return as_drawn(walks, streams, device)

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
        stack._draws.streams, stack._draws.sizes = [torch.Generator(), torch.Generator()], [len(x), len(x)]
        logits = stack.logits(weights.requires_grad_(), torch.stack([x, x]))
        torch.autograd.grad(logits.sum(), weights)
    except Exception as error:  # whatever torch.func or the network makes of it
        return str(error) if isinstance(error, NotStackableError) else reason(error)
    return None
