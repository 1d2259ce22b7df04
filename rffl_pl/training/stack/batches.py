"""Mini-batches of several participants as one, each in an order of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import pad

from rffl_pl.functional.streams import Stream

Batch = tuple[Tensor, Tensor]


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


@dataclass(frozen=True)
class StackedBatch:
    """A mini-batch of each of some rows: who they are, inputs ``[m, B, ...]``, classes, weights ``[m, B]``, sizes."""

    active: list[int]
    x: Tensor
    y: Tensor
    weight: Tensor
    sizes: list[int]


class Held:
    """Examples that lie on the device: every data set once, one behind the other, however many copies there are.

    Args:
        device: The device.
        prepare: What makes the network's inputs of them; None where they are that.

    Attributes:
        x: Inputs, or what they are made of, of all examples.
        y: Their classes.
    """

    def __init__(self, device: torch.device, prepare: Callable[[Tensor], Tensor] | None) -> None:
        self.device, self.prepare = device, prepare
        self.x, self.y = torch.empty(0), torch.empty(0)
        self._known: list[tuple[tuple[Tensor, ...], int]] = []

    def first(self, tensors: tuple[Tensor, ...], prepare: Callable[[Tensor], Tensor] | None) -> int | None:
        """The number of the first of these examples, which are brought over if they are new; None if they do not fit.

        Args:
            tensors: Inputs and classes on the CPU, as `Indexed` has them.
            prepare: What makes the network's inputs of those.
        """
        for known, start in self._known:
            if known is tensors:
                return start
        if prepare != self.prepare or (self._known and not _fit(tensors, self._known[0][0])):
            return None
        same = (start for known, start in self._known if all(map(torch.equal, known, tensors)))
        start = next(same, len(self.y))
        if start == len(self.y):
            x, y = tensors[0].to(self.device), tensors[1].to(self.device).long()
            self.x, self.y = (torch.cat([self.x, x]), torch.cat([self.y, y])) if self._known else (x, y)
        self._known.append((tensors, start))
        return start


def _fit(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether examples are of one kind and shape."""
    return all(a.dtype == b.dtype and a.shape[1:] == b.shape[1:] for a, b in zip(tensors, others, strict=True))


def from_memory(held: Held, orders: Sequence[Sequence[Tensor]]) -> Iterator[StackedBatch]:
    """Mini-batches of examples that lie on the device, by their numbers: one transfer for the whole pass."""
    x, y = held.x, held.y
    sizes = [[len(part) for part in order] for order in orders]
    steps, largest = max(map(len, sizes)), max(map(max, sizes))
    numbers = torch.empty(len(orders), steps, largest, dtype=torch.int64)
    for k, order in enumerate(orders):
        numbers[k] = order[0][0]  # what fills up is its own, too: a gradient of 0 times what is infinite is none
        for step, part in enumerate(order):
            numbers[k, step, : len(part)] = part
    numbers = numbers.to(x.device, non_blocking=True)
    for step in range(steps):
        active = [k for k, own in enumerate(sizes) if len(own) > step]
        counts = [sizes[k][step] for k in active]
        chosen = numbers[index_of(active, x.device), step, : max(counts)]
        inputs = x[chosen] if held.prepare is None else held.prepare(x[chosen])
        yield StackedBatch(active, inputs, y[chosen], _weights(counts, x.device), counts)


def as_drawn(
    walks: Sequence[Iterator[Batch]], streams: Sequence[Stream], device: torch.device
) -> Iterator[StackedBatch]:
    """Mini-batches as they come, each from its participant's stream, until nobody has another.

    Those of one shape are one batch; of sentences all, with zeros behind the shorter ones.
    """
    rest = dict(enumerate(walks))
    while rest:
        found: dict[int, Batch] = {}
        for k, walk in rest.items():
            with streams[k]:
                batch = next(walk, None)
            if batch is not None:
                found[k] = batch
        rest = {k: rest[k] for k in found}
        kinds: dict[Any, list[int]] = {}
        for k, (x, _) in found.items():
            kinds.setdefault(_kind(x.dtype, x.shape[1:]), []).append(k)
        for some in kinds.values():
            inputs = [found[k][0].to(device, non_blocking=True) for k in some]
            classes = [found[k][1].to(device, torch.int64, non_blocking=True) for k in some]
            counts = [len(y) for y in classes]
            x, y = (torch.stack(_filled_up(parts, 0)) for parts in (inputs, classes))
            yield StackedBatch(some, x, y, _weights(counts, device), counts)


def beside(
    one: Iterator[StackedBatch], rows: Sequence[int], other: Iterator[StackedBatch], others: Sequence[int]
) -> Iterator[StackedBatch]:
    """Batches of some rows and of others as batches of all, where they are of one kind, until nobody has another.

    Args:
        one: Batches of some.
        rows: Which row is the first of those, the second, ...
        other: Batches of others.
        others: Which row is the first of these others, the second, ...
    """
    for both in zip_longest(one, other):
        found = [(part, names) for part, names in zip(both, (rows, others), strict=True) if part is not None]
        if len({_kind(part.x.dtype, part.x.shape[2:]) for part, _ in found}) > 1:
            yield from (replace(part, active=[names[k] for k in part.active]) for part, names in found)
            continue
        active = [names[k] for part, names in found for k in part.active]
        sizes = [size for part, _ in found for size in part.sizes]
        ascending = sorted(range(len(active)), key=active.__getitem__)
        where = torch.tensor(ascending).to(found[0][0].x.device, non_blocking=True)
        x, y = (torch.cat(_filled_up([getattr(part, name) for part, _ in found], 1))[where] for name in ("x", "y"))
        weight = _weights(sizes, x.device)[where]
        yield StackedBatch([active[k] for k in ascending], x, y, weight, [sizes[k] for k in ascending])


def _kind(dtype: torch.dtype, shape: torch.Size) -> Any:
    """What inputs of an example have in common that can be in one batch: a shape, or that they are sentences."""
    return dtype if len(shape) == 1 and not dtype.is_floating_point else (dtype, shape)


def _filled_up(parts: Sequence[Tensor], examples: int) -> list[Tensor]:
    """Tensors in one shape: with their first example again, in dimension ``examples``, and zeros behind sentences.

    An example that is nobody's could have no finite gradient, of which 0 times is no number.
    """
    shape = [max(sizes) for sizes in zip(*(part.shape[examples:] for part in parts), strict=True)]
    filled = []
    for part in parts:
        lacking = [then - now for now, then in zip(part.shape[examples:], shape, strict=True)]
        more, *behind = lacking
        first = part.narrow(examples, 0, 1)
        longer = torch.cat([part, *[first] * more], examples) if more else part
        side = [entry for count in reversed(behind) for entry in (0, count)]
        filled.append(pad(longer, side) if any(side) else longer)
    return filled


def _weights(counts: Sequence[int], device: torch.device) -> Tensor:
    """Ones for the examples that a batch has, zeros for what fills it up, ``[m, B]``."""
    there = torch.arange(max(counts)) < torch.tensor(counts).unsqueeze(1)
    return there.to(device, torch.float32, non_blocking=True)


def index_of(active: Sequence[int], device: torch.device) -> slice | Tensor:
    """An index of some rows on a device that gives views where they are the first ones."""
    if active == list(range(len(active))):
        return slice(len(active))
    return torch.tensor(active).to(device, non_blocking=True)  # of a list torch makes one, and waits for the card
