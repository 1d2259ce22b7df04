"""Local training of several participants at once, their models as one stack of tensors ``[n, ...]``.

A step of n small models is n times the work for little more than the time of one, where the time goes into starting
operations: with small networks on a CPU, and as is meant, but not measured, on a GPU. Every participant keeps its own
examples, order, dropout, learning rate, optimizer state and gradient; `torch.func.vmap` makes of the network one that
takes all models.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from rffl_pl.functional.streams import Stream
from rffl_pl.training.objective import Loss
from rffl_pl.training.parameters import sharing_copy
from rffl_pl.training.stack.batches import (
    Batch,
    Held,
    Indexed,
    StackedBatch,
    as_drawn,
    beside,
    from_memory,
    index_of,
)
from rffl_pl.training.stack.networks import (
    Draws,
    Lowered,
    adapted,
    alike,
    autocast_to,
)
from rffl_pl.training.stack.optimizers import gathered, rule_of, steps_taken
from rffl_pl.training.stack.rows import Rows, Turn


class Stack:
    """Trains participants with one network at once.

    Args:
        network: Their network; it is copied.
        optimizer: One of theirs; all are of one kind.
        loss: Theirs, on their device.
        channels_last: Whether one after another they are given images with channels last, which decides the order in
            which dropout draws.

    Raises:
        NotStackableError: If such a network or optimizer can only be trained one participant at a time; it says why.

    Attributes:
        network: The copy, which takes its parameters and draws its dropout from elsewhere.
        draws: Where dropout draws from.
        rule: Their optimizers' step.
    """

    def __init__(
        self, network: nn.Module, optimizer: Optimizer, loss: Loss = cross_entropy, *, channels_last: bool = False
    ) -> None:
        self.draws = Draws()
        self.channels_last = channels_last
        self._held: Held | None = None
        self._too_large: list[tuple[Tensor, ...]] = []
        self._most = sys.maxsize  # turns that there is room for at once
        self.loss = loss
        self.rule = rule_of(optimizer)
        self.network = adapted(sharing_copy(network), self.draws).train()
        self._parameters = [(name, p.shape) for name, p in self.network.named_parameters() if p.requires_grad]

    def train(self, turns: Sequence[Turn], rates: Sequence[float]) -> Tensor:
        """Train everybody for as many local epochs as there are rates; in a thread with a `TRAINER`, by that.

        Args:
            turns: Whose turn it is, n of them.
            rates: The learning rate of each local epoch.

        Returns:
            Mean training losses ``[n]`` of the last local epoch.
        """
        trainer = TRAINER.get()
        if trainer is not None:
            return trainer(self, turns, rates)
        losses: list[Tensor] = []
        start = 0
        while start < len(turns):
            some = turns[start : start + self._most]
            done = self._trained_if_there_is_room(some, rates)
            if done is None:
                self._most = len(some) // 2
                warnings.warn(f"The GPU has no room for more than {self._most} participants at once.", stacklevel=2)
                continue
            rows, found = done
            rows.put_back()
            losses.append(found)
            start += len(some)
        return torch.cat(losses)

    def _trained_if_there_is_room(self, turns: Sequence[Turn], rates: Sequence[float]) -> tuple[Rows, Tensor] | None:
        """As `trained`; nobody is changed, and nothing drawn, where the device has no room for so many."""
        try:
            return self.trained(turns, rates)
        except torch.cuda.OutOfMemoryError:
            if len(turns) == 1:
                raise
        return None

    def serves(self, other: Stack) -> bool:
        """Whether it trains another stack's turns as that would, to rounding."""
        same_vectors = self._parameters == other._parameters
        same_steps = self.rule == other.rule and alike(self.loss, other.loss)
        return same_vectors and same_steps and alike(self.network, other.network)

    def same(self, turns: Sequence[Turn], others: Sequence[Turn]) -> bool:
        """Whether participants' turns are identical pair by pair, so that training one of each pair serves both.

        Seeds are looked at first, then weights: few that differ come further.
        """
        told, others_told = ([(turn.seed, turn.proximal) for turn in some] for some in (turns, others))
        return told == others_told and all(
            torch.equal(turn.weights, other.weights)
            and torch.equal(turn.anchor, other.anchor)
            and (turn.correction is other.correction or torch.equal(turn.added, other.added))
            and steps_taken(turn.optimizer) == steps_taken(other.optimizer)
            and all(
                torch.equal(*(gathered(each.optimizer, slot, each.weights) for each in (turn, other)))
                for slot in self.rule.slots
            )
            and self._same_examples(turn, other)
            for turn, other in zip(turns, others, strict=True)
        )

    def _same_examples(self, turn: Turn, other: Turn) -> bool:
        """Whether both have the same examples in memory, which come in the same batches."""
        firsts, orders = [], []
        for each in (turn, other):
            with Stream(turn.seed):
                found = each.examples.epoch()
            firsts.append(self._first(found, turn.weights.device))
            orders.append(list(found.order) if isinstance(found, Indexed) else [])
        if None in firsts or firsts[0] != firsts[1] or len(orders[0]) != len(orders[1]):
            return False
        return all(map(torch.equal, *orders))

    def trained(self, turns: Sequence[Turn], rates: Sequence[float]) -> tuple[Rows, Tensor]:
        """As `train`, but everybody is left as it was: the rows that are to be put back, and the losses ``[n]``."""
        # Whoever has the most batches first: those who have not ended are then always the first rows.
        order = sorted(range(len(turns)), key=lambda k: -len(turns[k].examples))
        turns = [turns[k] for k in order]
        rows = Rows(turns, self.rule.slots)
        streams = [Stream(turn.seed) for turn in turns]
        losses = rows.weights.new_zeros(len(turns))
        for rate in rates:
            totals, counts = rows.weights.new_zeros(len(turns)), rows.weights.new_zeros(len(turns))
            for batch in self._epoch(turns, streams, rows.weights.device):
                self.draws.streams = [streams[k].generator for k in batch.active]
                self.draws.sizes = batch.sizes
                means = self._step(rows, batch, rate)
                where, sizes = index_of(batch.active, totals.device), batch.weight.sum(1)
                totals[where] += means * sizes
                counts[where] += sizes
            losses = totals / counts
        return rows, losses[torch.tensor(order).argsort().to(losses.device, non_blocking=True)]

    def _step(self, rows: Rows, batch: StackedBatch, rate: float) -> Tensor:
        """One step of some rows ``[m]``: their mean losses ``[m]``."""
        part = rows.of(batch.active)
        leaf = part.weights.detach().requires_grad_()
        logits = self.logits(leaf, batch.x)
        means = self.means(logits, batch.y, batch.weight)
        (grad,) = torch.autograd.grad(means.sum(), leaf)
        torch.clear_autocast_cache()  # the weights it holds in lower precision change now
        with torch.no_grad():
            part.steps.add_(1)
            rows.add_to_gradients(batch.active, part, grad)
            self.rule.step(part.weights, grad, part.state, part.steps, rate)
            rows.take(batch.active, part)
        return means.detach()

    def means(self, logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Weighted mean losses ``[m]`` of logits ``[m, B, C]``, classes and weights ``[m, B]``."""
        each = self.losses(logits.flatten(0, 1), y.flatten()).view_as(weight)
        return (each * weight).sum(1) / weight.sum(1)

    def _epoch(self, turns: Sequence[Turn], streams: Sequence[Stream], device: torch.device) -> Iterator[StackedBatch]:
        """One pass of everybody: from memory those whose examples lie there as tensors, the others as they draw."""
        passes: list[Iterable[Batch]] = []
        walks: list[Iterator[Batch]] = []
        for turn, stream in zip(turns, streams, strict=True):
            with stream:
                passes.append(turn.examples.epoch())
                walks.append(iter(passes[-1]))
        numbered, rest = [], []
        for k, found in enumerate(passes):
            first = self._first(found, device)
            if first is None:
                rest.append(k)
            else:
                assert isinstance(found, Indexed)
                numbered.append((k, [part + first for part in found.order] if first else found.order))
        drawn = as_drawn([walks[k] for k in rest], [streams[k] for k in rest], device)
        if self._held is None or not numbered:
            return drawn
        held = from_memory(self._held, [order for _, order in numbered])
        return beside(held, [k for k, _ in numbered], drawn, rest) if rest else held

    def _first(self, examples: Iterable[Batch], device: torch.device) -> int | None:
        """Where the numbers of a pass's examples begin on the device, to which they are brought once; None if not."""
        if not isinstance(examples, Indexed) or examples.tensors is None:
            return None
        if self._held is None:
            self._held = Held(device, examples.prepare)
        if any(known is examples.tensors for known in self._too_large):
            return None
        try:
            return self._held.first(examples.tensors, examples.prepare)
        except torch.cuda.OutOfMemoryError:  # they are brought over a batch at a time
            self._too_large.append(examples.tensors)
            return None

    def logits(self, weights: Tensor, x: Tensor) -> Tensor:
        """Class logits ``[m, B, C]`` of models ``[m, D]`` for inputs ``[m, B, ...]``."""
        return self.logits_by_name(self.named(weights), x)

    def losses(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of every example, ``[B]``: of one's own that of a batch of one."""
        if self.loss is cross_entropy:
            return cross_entropy(logits, y, reduction="none")
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()  # as autocast has losses: it does not see what is computed for all at once
        each: Tensor = vmap(lambda one, its: self.loss(one.unsqueeze(0), its.unsqueeze(0)))(logits, y)
        return each

    def named(self, weights: Tensor) -> dict[str, Tensor]:
        """Every parameter of models ``[m, D]``, ``[m, ...]``."""
        sizes = [shape.numel() for _, shape in self._parameters]
        named = zip(self._parameters, weights.split(sizes, 1), strict=True)
        return {name: part.unflatten(1, shape) if shape else part.squeeze(1) for (name, shape), part in named}

    def logits_by_name(self, stacked: dict[str, Tensor], x: Tensor) -> Tensor:
        """As `logits`, by every parameter of the models, ``[m, ...]``."""
        self.draws.channels_last = self.channels_last and x.dim() == 5
        with nullcontext() if autocast_to(x.device) is None else Lowered(x.device):
            logits: Tensor = vmap(lambda own, inputs: functional_call(self.network, own, (inputs,)))(stacked, x)
        return logits


TRAINER: ContextVar[Callable[[Stack, Sequence[Turn], Sequence[float]], Tensor] | None] = ContextVar(
    "trainer", default=None
)
"""What trains instead of the stack that is asked to, in the thread that sets it: such as has others' turns too."""
