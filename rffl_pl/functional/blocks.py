r"""Uploads read block of coordinates after block: what adds up over coordinates, and what works on each one alone.

Shapes: m = rows at hand, all of them sound; D = entries of each. ``rows`` is a sequence of m vectors ``[D]``, views of
whatever they lie in: they are never stacked whole. A block is ``[m, c]``, where c depends on m alone, and blocks are
added up in the order of coordinates: the bits do not depend on where the rows lie, nor on how many ranks share the
coordinates (`rffl_pl.sharded`). Sums over D are float64 on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

Rows = Sequence[Tensor] | Tensor
"""m vectors ``[D]``, or the matrix ``[m, D]`` of them."""

_ENTRIES = 1 << 18
"""Entries of a block: 1 MiB in single precision, which stays in a core's cache."""
_SQUARE = 48
"""Rows of a symmetric product that are computed at a time: with more rows, half of it is not."""
SPAN = 1 << 16
"""Entries of one row that are widened to float64 at a time."""


Term = Callable[[Tensor, Tensor | None], Tensor]
"""What is added up, of a block ``[m, c]`` in float64, which it may change, and ``[c]`` beside it; zeros where c = 0."""

Sum = Callable[[Rows, Term, Tensor | None], Tensor]
"""What adds up a term over all blocks, as `add_up` does."""


def block_width(count: int) -> int:
    """The number c of coordinates of a block of so many rows."""
    return max(1, _ENTRIES // count)


def shards(dimension: int, ranks: int) -> list[slice]:
    """The coordinates that each of several ranks serves: in order, about as many each, in whole spans of 65,536.

    So `squared_norm` adds up within one rank. Where there are fewer spans than ranks some serve none.
    """
    spans = -(-dimension // SPAN)
    cuts = [min(rank * spans // ranks * SPAN, dimension) for rank in range(ranks + 1)]
    return [slice(*cut) for cut in pairwise(cuts)]


def blocks(rows: Rows, dtype: torch.dtype | None = None) -> Iterator[tuple[slice, Tensor]]:
    """Every block of coordinates: where it lies in D, and a copy ``[m, c]`` that the next one takes the place of.

    Args:
        rows: At least one.
        dtype: What the copy is converted to; by default that of the rows.
    """
    width, dimension = block_width(len(rows)), len(rows[0])
    memory = block_memory(rows, dimension, dtype)
    for start, panel in _panels(rows, width):
        for here in panel.split(width, 1):
            where = slice(start, start + here.shape[1])
            yield where, memory[: here.numel()].view(here.shape).copy_(here)
            start = where.stop


def _panels(rows: Rows, width: int) -> Iterator[tuple[int, Tensor]]:
    """The rows as matrices of several blocks: the first coordinate and ``[m, k c]``.

    To take a piece of a vector costs a microsecond, whatever its length: of many rows the pieces are long.
    """
    if isinstance(rows, Tensor):
        yield 0, rows
        return
    wide = width * max(1, min(16, len(rows) // 32))
    for start in range(0, len(rows[0]), wide):
        yield start, torch.stack([row[start : start + wide] for row in rows])


def block_memory(rows: Rows, dimension: int, dtype: torch.dtype | None = None) -> Tensor:
    """A vector ``[m c]``, not filled, with room for every block ``[m, c]`` of m rows ``[dimension]``."""
    return rows[0].new_empty(len(rows) * min(block_width(len(rows)), dimension), dtype=dtype)


def add_up(rows: Rows, term: Term, beside: Tensor | None = None) -> Tensor:
    """The sum of a term over all blocks in their order, float64 on the CPU.

    Args:
        rows: At least one.
        term: What is added up.
        beside: A vector ``[D]`` of which the term gets the same coordinates as of the rows.
    """
    total = zero(rows, term, beside)
    for where, block in blocks(rows, torch.float64):
        total += term(block, None if beside is None else beside[where].to(block))
    return total.cpu()


def zero(rows: Rows, term: Term, beside: Tensor | None) -> Tensor:
    """The term of a block ``[m, 0]``, of no coordinates: zeros in the shape of a sum of terms."""
    nothing = rows[0].new_empty(len(rows), 0, dtype=torch.float64)
    return term(nothing, None if beside is None else nothing[0])


def squared_norm(row: Tensor, memory: Tensor | None = None) -> Tensor:
    r""":math:`\|u\|^2` of a vector ``[D]``, float64 on its device; NaN or infinity where it has one.

    Of one row alone: a participant's bits must not depend on how many others share its process. ``memory`` is what one
    call leaves to the next: taking it anew for every row fragments the heap.
    """
    total = row.new_zeros((), dtype=torch.float64)
    for part in span_norms(row, memory):
        total += part
    return total


def span_norms(row: Tensor, memory: Tensor | None = None) -> Iterator[Tensor]:
    """The squared norms of a row's spans of 65,536 entries, the last one shorter; none for an empty row."""
    memory = row.new_empty(SPAN, dtype=torch.float64) if memory is None else memory
    for start in range(0, len(row), SPAN):
        span = row[start : start + SPAN]
        wide = memory[: len(span)].copy_(span)
        yield wide.dot(wide)


def squared_norms(rows: Rows) -> Tensor:
    r""":math:`\|u_i\|^2`, ``[m]``."""
    if not len(rows):
        return torch.empty(0, dtype=torch.float64)
    memory = rows[0].new_empty(SPAN, dtype=torch.float64)
    return torch.stack([squared_norm(row, memory) for row in rows]).cpu()


def squared_distances_to(rows: Rows, point: Tensor, add_up: Sum = add_up) -> Tensor:
    r""":math:`\|u_i - p\|^2` for a vector ``[D]``, ``[m]``."""

    def term(block: Tensor, there: Tensor | None) -> Tensor:
        assert there is not None
        return block.sub_(there).square_().sum(1)

    return add_up(rows, term, point)


def products_with(rows: Rows, point: Tensor, add_up: Sum = add_up) -> Tensor:
    r""":math:`\langle u_i, p \rangle` for a vector ``[D]``, ``[m]``."""

    def term(block: Tensor, there: Tensor | None) -> Tensor:
        assert there is not None
        return block @ there

    return add_up(rows, term, point)


def gram(rows: Rows, centre: Tensor | None = None, add_up: Sum = add_up) -> Tensor:
    r""":math:`G_{ij} = \langle u_i - c, u_j - c \rangle`, ``[m, m]``, with c = 0 or a vector ``[D]``."""

    def term(block: Tensor, there: Tensor | None) -> Tensor:
        if there is not None:
            block -= there
        return _products(block)

    return _symmetric(add_up(rows, term, centre), len(rows))


def gram_of_squares(rows: Rows, add_up: Sum = add_up) -> Tensor:
    r""":math:`\sum_k u_{ik}^2 u_{jk}^2`, ``[m, m]``: the Gram matrix of the rows with every entry squared."""

    def term(block: Tensor, _: Tensor | None) -> Tensor:
        block *= block
        return _products(block)

    return _symmetric(add_up(rows, term, None), len(rows))


def _products(block: Tensor) -> Tensor:
    """Inner products of the rows of a block, ``[m, m]``; of many rows those of `_halves`, one behind the other."""
    if len(block) <= _SQUARE:
        return block @ block.T
    halves, sizes = _halves(len(block))
    products = block.new_empty(sum(sizes))
    for here, part in zip(halves, products.split(sizes), strict=True):
        torch.mm(block[here], block[: here.stop].T, out=part.view(-1, here.stop))
    return products


def _symmetric(products: Tensor, count: int) -> Tensor:
    """The matrix ``[m, m]`` of the sum of what `_products` make of m rows."""
    if count <= _SQUARE:
        return products
    lower = products.new_zeros(count, count)
    halves, sizes = _halves(count)
    for here, part in zip(halves, products.split(sizes), strict=True):
        lower[here, : here.stop] = part.view(-1, here.stop)
    return lower.tril() + lower.tril(-1).T


def _halves(count: int) -> tuple[list[slice], list[int]]:
    """Some of m rows after the others, and how many products each has with all rows up to its last: half of all."""
    halves = [slice(start, min(start + _SQUARE, count)) for start in range(0, count, _SQUARE)]
    return halves, [(here.stop - here.start) * here.stop for here in halves]


def gram_times(rows: Rows, weights: Tensor, add_up: Sum = add_up) -> Tensor:
    r""":math:`G w`, that is :math:`\langle u_i, \sum_j w_j u_j \rangle`, ``[m]``, with m times less work than G."""
    weights = weights.to(rows[0].device, torch.float64)
    return add_up(rows, lambda block, _: block @ (weights @ block), None)


def combined(rows: Rows, rule: Callable[[Tensor], Tensor]) -> Tensor:
    """A rule from ``[m, c]`` to ``[c]`` on every block, as ``[D]`` in the dtype of the rows."""
    result = torch.empty_like(rows[0])
    for where, block in blocks(rows):
        result[where] = rule(block)
    return result
