"""Local training of several participants at once, their models as one stack of tensors ``[n, ...]``.

A step of n small models is n times the work for little more than the time of one, where the time goes into starting
operations: with small networks on a CPU, and as is meant, but not measured, on a GPU. Every participant keeps its own
examples, order, dropout, learning rate, optimizer state and gradient; `torch.func.vmap` makes of the network one that
takes all models.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy, pad
from torch.optim import Optimizer

from rffl_pl.errors import reason
from rffl_pl.functional.fingerprints import changes, close, counts
from rffl_pl.functional.streams import Stream, others_state, random_stream, untouched
from rffl_pl.training.parameters import bind, flat_parameters, sharing_copy, trainable
from rffl_pl.training.stack.batches import (
    Batch,
    Held,
    Indexed,
    StackedBatch,
    as_drawn,
    beside,
    channels_last,
    from_memory,
    index_of,
)
from rffl_pl.training.stack.networks import (
    Draws,
    Lowered,
    adapted,
    alike,
    autocast_to,
    dropping,
    drops,
)
from rffl_pl.training.stack.optimizers import NotStackableError, check_whole, gathered, rule_of, steps_taken
from rffl_pl.training.stack.rows import Rows, Turn

_ROUNDING = 0.01
"""A share of the largest logit: on a GPU rounding is coarse."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""From class logits ``[B, C]`` and classes ``[B]`` to one number; cross-entropy is `cross_entropy` itself."""


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
    """

    def __init__(
        self, network: nn.Module, optimizer: Optimizer, loss: Loss = cross_entropy, channels_last: bool = False
    ) -> None:
        self._draws = Draws()
        self._channels_last = channels_last
        self._held: Held | None = None
        self._too_large: list[tuple[Tensor, ...]] = []
        self._most = sys.maxsize  # turns that there is room for at once
        self._loss = loss
        self.rule = rule_of(optimizer)
        self._network = adapted(sharing_copy(network), self._draws).train()
        self._parameters = [(name, p.shape) for name, p in self._network.named_parameters() if p.requires_grad]

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
        same_steps = self.rule == other.rule and alike(self._loss, other._loss)
        return same_vectors and same_steps and alike(self._network, other._network)

    def same(self, turns: Sequence[Turn], others: Sequence[Turn]) -> bool:
        """Whether turns are the very same, of participants who differ in nothing: one training serves both.

        Seeds are looked at first, then weights: few that differ come further.
        """
        told, others_told = ([(turn.seed, turn.proximal) for turn in some] for some in (turns, others))
        return told == others_told and all(
            torch.equal(turn.weights, other.weights)
            and torch.equal(turn.drawn_to, other.drawn_to)
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
                self._draws.streams = [streams[k].generator for k in batch.active]
                self._draws.sizes = batch.sizes
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
        means = self._means(logits, batch.y, batch.weight)
        (grad,) = torch.autograd.grad(means.sum(), leaf)
        torch.clear_autocast_cache()  # the weights it holds in lower precision change now
        with torch.no_grad():
            part.steps.add_(1)
            rows.draw(batch.active, part, grad)
            self.rule.step(part.weights, grad, part.state, part.steps, rate)
            rows.take(batch.active, part)
        return means.detach()

    def _means(self, logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Weighted mean losses ``[m]`` of logits ``[m, B, C]``, classes and weights ``[m, B]``."""
        each = self._losses(logits.flatten(0, 1), y.flatten()).view_as(weight)
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
        return self._logits(self._named(weights), x)

    def _losses(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of every example, ``[B]``: of one's own that of a batch of one."""
        if self._loss is cross_entropy:
            return cross_entropy(logits, y, reduction="none")
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()  # as autocast has losses: it does not see what is computed for all at once
        each: Tensor = vmap(lambda one, its: self._loss(one.unsqueeze(0), its.unsqueeze(0)))(logits, y)
        return each

    def _named(self, weights: Tensor) -> dict[str, Tensor]:
        """Every parameter of models ``[m, D]``, ``[m, ...]``."""
        sizes = [shape.numel() for _, shape in self._parameters]
        named = zip(self._parameters, weights.split(sizes, 1), strict=True)
        return {name: part.unflatten(1, shape) if shape else part.squeeze(1) for (name, shape), part in named}

    def _logits(self, stacked: dict[str, Tensor], x: Tensor) -> Tensor:
        self._draws.channels_last = self._channels_last and x.dim() == 5
        with nullcontext() if autocast_to(x.device) is None else Lowered(x.device):
            logits: Tensor = vmap(lambda own, inputs: functional_call(self._network, own, (inputs,)))(stacked, x)
        return logits

    def check(self, network: nn.Module, x: Tensor, moved: bool = False) -> None:
        """Try a step of two such networks.

        Args:
            network: One of them.
            x: Inputs ``[B, ...]``.
            moved: Whether turns have corrections, or anchors elsewhere.

        Raises:
            NotStackableError: If the network does what a stack does not.
        """
        leaves = self._two_of(network, x)
        before = {name: (buffer, buffer._version) for name, buffer in self._network.named_buffers()}
        counted = counts(self._network)
        outside = others_state()
        logits = self._logits(leaves, torch.stack([x, x]))
        if not untouched(outside):
            raise NotStackableError("it draws random numbers of Python's or NumPy's, of which all would have the same")
        if changed := changes(counted, counts(self._network)):
            raise NotStackableError(f"its {changed[0]} changes while it trains")
        stirred = self._stirred(leaves)  # a last layer of zeros, as some begin with, would hide what it is given
        self._check_filling(leaves, x)
        self._check_filling(stirred, x)
        self._check_loss(logits.shape[-1], x.device)
        for name, buffer in self._network.named_buffers():
            kept, version = before.get(name, (None, 0))
            if buffer is not kept or buffer._version != version:
                raise NotStackableError(f"its buffer {name} changes while it trains")
        found = torch.autograd.grad(logits.sum(), list(leaves.values()), allow_unused=True)
        unused = [name for name, grad in zip(leaves, found, strict=True) if grad is None]
        if unused and (self.rule.decays or moved):  # one after another, what has no gradient is left alone
            what = "weights decay" if self.rule.decays else "steps are drawn elsewhere"
            raise NotStackableError(f"{what}, but nothing uses {unused[0]}")

    def check_gradients(self, network: nn.Module, x: Tensor) -> None:
        """See that gradients are those of one such network alone: hooks that change them do not come to all at once.

        Args:
            network: One of them, without dropout; its weights are changed.
            x: Inputs ``[B, ...]``.

        Raises:
            NotStackableError: If they are others.
        """
        stirred = self._stirred(self._two_of(network, x))
        leaf = torch.cat([part.flatten(1) for part in stirred.values()], 1).requires_grad_()
        logits = self.logits(leaf, torch.stack([x, x]))
        y = torch.arange(len(x), device=x.device) % logits.shape[-1]
        means = self._means(logits, torch.stack([y, y]), torch.ones(2, len(x), device=x.device))
        bind(network.train(), leaf[0].detach().clone())
        loss = self._loss(network(x), y)
        for scale in (1e-6, 1.0, 1e6):  # a bound may be met by some of them alone
            ((found, _),) = torch.autograd.grad(scale * means.sum(), leaf, retain_graph=True)
            network.zero_grad(set_to_none=True)
            (scale * loss).backward(retain_graph=True)
            grads = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in trainable(network)]
            alone = torch.cat([grad.flatten() for grad in grads])
            if alone.isfinite().all() and not (found - alone).norm() <= 0.01 * alone.norm() + 1e-6 * scale:
                raise NotStackableError("it changes its gradients, by hooks say, which are not heard for all at once")

    @torch.no_grad()
    def check_dropout(self, network: nn.Module, x: Tensor) -> None:
        """See that dropout drops of every example what it drops where participants train one after another.

        It does not where its input does not have a row for each example, or lies otherwise in memory than is assumed.

        Args:
            network: One of them, on the CPU, where the streams are; its weights are changed.
            x: Inputs ``[B, ...]`` there.

        Raises:
            NotStackableError: If it drops something else.
        """
        x = torch.cat([x[:1]] * 3)
        stirred = self._stirred(self._two_of(network, x))
        bind(network.train(), torch.cat([part[0].flatten() for part in stirred.values()]))
        with random_stream(0, x.device):
            alone = network(channels_last(x) if self._channels_last else x)
        filled = torch.cat([x, torch.zeros_like(x[:2])])
        if not close(self._drawn(stirred, filled, len(x))[0], alone, _ROUNDING):
            raise NotStackableError("its dropout draws otherwise for one alone than for all at once")

    def rehearse(self, network: nn.Module, x: Tensor) -> None:
        """The gradients of a step of two such networks: in another precision layers may meet what they do not take."""
        leaves = self._two_of(network, x)
        logits = self._logits(leaves, torch.stack([x, x])).flatten(0, 1)
        losses = self._losses(logits, torch.zeros(len(logits), dtype=torch.int64, device=x.device))
        torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)

    def _two_of(self, network: nn.Module, x: Tensor) -> dict[str, Tensor]:
        """Every parameter of two such networks, ``[2, ...]``, which are about to train on so many inputs."""
        weights = flat_parameters(network).repeat(2, 1)
        self._draws.streams, self._draws.sizes = [torch.Generator(), torch.Generator()], [len(x), len(x)]
        return {name: part.detach().requires_grad_() for name, part in self._named(weights).items()}

    @torch.no_grad()
    def _stirred(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Parameters ``[m, ...]`` with noise about as large as layers begin with; what stands for padding stays."""
        stream, found = torch.Generator().manual_seed(0), {}
        for name, part in weights.items():
            noise = torch.randn(part.shape, generator=stream).to(part)
            fan_in = part[0].numel() // len(part[0]) if part.dim() > 2 else 10
            found[name] = part + noise / max(1, fan_in) ** 0.5
        for name, layer in self._network.named_modules():
            row = f"{name}.weight".lstrip(".")
            if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.padding_idx is not None and row in found:
                found[row][:, layer.padding_idx] = weights[row][:, layer.padding_idx]
        return found

    @torch.no_grad()
    def _check_filling(self, weights: dict[str, Tensor], x: Tensor) -> None:
        """See that what fills up a participant's batch beside another's longer one changes none of its logits.

        Raises:
            NotStackableError: If it does.
        """
        # The others are larger, since a batch may be scaled by its largest, and none that the data may not have.
        own = x / 4 if x.is_floating_point() else x
        more = torch.cat([own, torch.zeros_like(x[:1]), x])
        if not close(self._drawn(weights, own), self._drawn(weights, more, len(x)), _ROUNDING):
            raise NotStackableError("what it makes of an example depends on which others are in the batch")
        if x.is_floating_point() or x.dim() != 2:
            return
        part = x[:, : max(1, x.shape[1] // 2)].repeat(2, 1)  # of sentences, whose others may be longer
        try:
            longer = self._drawn(weights, pad(part, (0, max(1, x.shape[1] - part.shape[1]))))
            shorter = self._drawn(weights, part)
        except (RuntimeError, LookupError, ValueError):
            return  # of one length only: there are no others
        if not close(shorter, longer, _ROUNDING):
            raise NotStackableError("what it makes of a sentence depends on how many zeros are behind it")

    def _drawn(self, weights: dict[str, Tensor], x: Tensor, count: int | None = None) -> Tensor:
        """Logits of two models for the first so many of ``x``, with the same random numbers each time."""
        count = len(x) if count is None else count
        self._draws.streams = [torch.Generator().manual_seed(0) for _ in range(2)]
        self._draws.sizes = [count, count]
        return self._logits(weights, torch.stack([x, x]))[:, :count]

    def _check_loss(self, classes: int, device: torch.device) -> None:
        """See that a batch's loss is the mean over its examples, whose number here hangs on the participant."""
        if self._loss is cross_entropy:
            return
        # More than a mini-batch, since some losses go by so many of its examples; of very many classes not all.
        count = min(max(2 * classes, 1024), max(64, 2**22 // classes))
        y = torch.arange(count) % classes
        logits = torch.randn(count, classes, generator=torch.Generator().manual_seed(0))
        # Some are told well and some badly: where all are told alike, a loss that bends between may not show.
        logits[torch.arange(count), y] += torch.tensor([0.0, 20.0, -20.0])[torch.arange(count) % 3]
        logits, y = logits.to(device), y.to(device)
        if not torch.allclose(self._loss(logits, y), self._losses(logits, y).mean(), rtol=1e-4):
            raise NotStackableError("the loss of a batch is not the mean of those of its examples")


TRAINER: ContextVar[Callable[[Stack, Sequence[Turn], Sequence[float]], Tensor] | None] = ContextVar(
    "trainer", default=None
)
"""What trains instead of the stack that is asked to, in the thread that sets it: such as has others' turns too."""


def refusal(
    network: nn.Module,
    optimizer: Optimizer,
    x: Tensor,
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
        stack.check(network, x, moved)
        plain = dropping(network, 0.0)
        Stack(plain, optimizer, loss).check_gradients(plain, x)
        if drops(network):
            drawing = dropping(copy.deepcopy(network).cpu(), 0.5)
            Stack(drawing, optimizer, loss, channels_last).check_dropout(drawing, x.cpu())
        with precision():
            stack.rehearse(network, x)
    except Exception as error:  # whatever torch.func or the network makes of it
        return str(error) if isinstance(error, NotStackableError) else reason(error)
    return None
