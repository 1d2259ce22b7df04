r"""Uploads read block of coordinates after block: what adds up over coordinates, and what works on each one alone.

Shapes: m = rows at hand, all of them sound; D = entries of each. ``rows`` is a sequence of m vectors ``[D]``, views of
whatever they lie in: they are never stacked whole. A block is ``[m, c]``, where c hangs on m alone, and blocks are
added up in the order of coordinates: the bits do not depend on where the rows lie. Sums over D are float64 on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

Rows = Sequence[Tensor] | Tensor
"""m vectors ``[D]``, or the matrix ``[m, D]`` of them."""

_ENTRIES = 1 << 18
"""Entries of a block: 1 MiB in single precision, which stays in a core's cache."""
_SPAN = 1 << 16
"""Entries of one row that are widened to float64 at a time."""


def blocks(rows: Rows, dtype: torch.dtype | None = None) -> Iterator[tuple[slice, Tensor]]:
    """Every block of coordinates: where it lies in D, and a copy ``[m, c]`` that the next one takes the place of.

    Args:
        rows: At least one.
        dtype: What the copy is converted to; by default that of the rows.
    """
    count, dimension = len(rows), len(rows[0])
    width = max(1, _ENTRIES // count)
    memory = rows[0].new_empty(count * min(width, dimension), dtype=dtype)
    for start in range(0, dimension, width):
        where = slice(start, min(start + width, dimension))
        here = rows[:, where] if isinstance(rows, Tensor) else torch.stack([row[where] for row in rows])
        yield where, memory[: here.numel()].view(here.shape).copy_(here)


def squared_norm(row: Tensor, memory: Tensor | None = None) -> Tensor:
    r""":math:`\|u\|^2` of a vector ``[D]``, float64 on its device; NaN or infinity where it has one.

    Of one row alone: a participant's bits must not hang on how many others share its process. ``memory`` is what one
    call leaves to the next: taking it anew for every row fragments the heap.
    """
    memory = row.new_empty(_SPAN, dtype=torch.float64) if memory is None else memory
    total = row.new_zeros((), dtype=torch.float64)
    for span in row.split(_SPAN):
        wide = memory[: len(span)].copy_(span)
        total += wide.dot(wide)
    return total


def squared_norms(rows: Rows) -> Tensor:
    r""":math:`\|u_i\|^2`, ``[m]``."""
    if not len(rows):
        return torch.empty(0, dtype=torch.float64)
    memory = rows[0].new_empty(_SPAN, dtype=torch.float64)
    return torch.stack([squared_norm(row, memory) for row in rows]).cpu()


def squared_distances_to(rows: Rows, point: Tensor) -> Tensor:
    r""":math:`\|u_i - p\|^2` for a vector ``[D]``, ``[m]``."""
    total = rows[0].new_zeros(len(rows), dtype=torch.float64)
    point = point.to(total)
    for where, block in blocks(rows, torch.float64):
        total += block.sub_(point[where]).square_().sum(1)
    return total.cpu()


def gram(rows: Rows, centre: Tensor | None = None) -> Tensor:
    r""":math:`G_{ij} = \langle u_i - c, u_j - c \rangle`, ``[m, m]``, with c = 0 or a vector ``[D]``."""
    total = rows[0].new_zeros(len(rows), len(rows), dtype=torch.float64)
    for where, block in blocks(rows, torch.float64):
        if centre is not None:
            block -= centre[where].double()
        total += block @ block.T
    return total.cpu()


def gram_of_squares(rows: Rows) -> Tensor:
    r""":math:`\sum_k u_{ik}^2 u_{jk}^2`, ``[m, m]``: the Gram matrix of the rows with every entry squared."""
    total = rows[0].new_zeros(len(rows), len(rows), dtype=torch.float64)
    for _, block in blocks(rows, torch.float64):
        block *= block
        total += block @ block.T
    return total.cpu()


def gram_times(rows: Rows, weights: Tensor) -> Tensor:
    r""":math:`G w`, that is :math:`\langle u_i, \sum_j w_j u_j \rangle`, ``[m]``, with m times less work than G."""
    total = rows[0].new_zeros(len(rows), dtype=torch.float64)
    weights = weights.to(total)
    for _, block in blocks(rows, torch.float64):
        total += block @ (weights @ block)
    return total.cpu()


def combined(rows: Rows, rule: Callable[[Tensor], Tensor]) -> Tensor:
    """A rule from ``[m, c]`` to ``[c]`` on every block, as ``[D]`` in the dtype of the rows."""
    result = torch.empty_like(rows[0])
    for where, block in blocks(rows):
        result[where] = rule(block)
    return result
