"""Mini-batches of several participants as one, each in an order of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import pad

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


def from_memory(
    examples: tuple[Tensor, Tensor], orders: Sequence[Sequence[Tensor]], prepare: Callable[[Tensor], Tensor] | None
) -> Iterator[StackedBatch]:
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
        chosen = numbers[index_of(active), step, : max(counts)]
        inputs = x[chosen] if prepare is None else prepare(x[chosen])
        yield StackedBatch(active, inputs, y[chosen], _weights(counts, x.device), counts)


def as_drawn(
    walks: Sequence[Iterator[Batch]], streams: Sequence[torch.Generator], device: torch.device
) -> Iterator[StackedBatch]:
    """Mini-batches as they come, each from its participant's stream, until nobody has another."""
    rest = dict(enumerate(walks))
    while rest:
        found: dict[int, Batch] = {}
        for k, walk in rest.items():
            with drawing_from(streams[k]):
                batch = next(walk, None)
            if batch is not None:
                found[k] = batch
        rest = {k: rest[k] for k in found}
        if found:
            inputs = [x.to(device, non_blocking=True) for x, _ in found.values()]
            classes = [y.to(device, torch.int64, non_blocking=True) for _, y in found.values()]
            counts = [len(y) for y in classes]
            yield StackedBatch(list(found), _filled_up(inputs), _filled_up(classes), _weights(counts, device), counts)


@contextmanager
def drawing_from(stream: torch.Generator) -> Iterator[None]:
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


def index_of(active: Sequence[int]) -> Any:
    """An index of some rows that gives views where they are the first ones."""
    return slice(len(active)) if active == list(range(len(active))) else list(active)
