"""The server in parts: every rank serves some coordinates of all uploads, and all decide alike.

Statistics of the uploads are added up block after block in the order of coordinates, as `rffl_pl.functional.blocks`
does in one place: each rank adds its own blocks to what the ranks before it have, and the total goes to all. A block
that lies across a border is read whole by both sides. So the bits are those of one server, on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

import torch
from torch import Tensor

from rffl_pl.exchange import Ranks
from rffl_pl.functional import blocks, sparsify
from rffl_pl.servers.coordinates import Coordinates

_READY = 1 << 22
"""Numbers of a statistic's terms that a rank has ready when its turn comes: 32 MiB."""


class Part(Coordinates):
    """The coordinates of one rank; every rank has to ask for the same statistics in the same order.

    Args:
        dimension: D.
        ranks: The ranks that share them.

    Attributes:
        shards: The coordinates of every rank.
    """

    def __init__(self, dimension: int, ranks: Ranks) -> None:
        super().__init__(dimension)
        self.dimension = dimension
        self.ranks = ranks
        self.shards = blocks.shards(dimension, ranks.count)
        self.where = self.shards[ranks.rank]

    def squared_norms(self, rows: blocks.Rows) -> Tensor:
        if not len(rows):
            return torch.empty(0, dtype=torch.float64)
        memory = rows[0].new_empty(blocks.SPAN, dtype=torch.float64)
        spans = [[*blocks.span_norms(row, memory)] for row in rows]
        terms = [torch.stack(one) for one in zip(*spans, strict=True)]
        return self._in_turn(rows[0].new_zeros(len(rows), dtype=torch.float64), iter(terms))

    def add_up(self, rows: blocks.Rows, term: blocks.Term, beside: Tensor | None = None) -> Tensor:
        count = len(rows)
        beside = None if beside is None else beside.to(rows[0])
        every = [*rows] if beside is None else [*rows, beside]
        memory = blocks.block_memory(rows, self.dimension, torch.float64)

        def terms() -> Iterator[Tensor]:
            for where, here in self._read(every, count):
                if where.start >= self.where.start:
                    block = memory[: here[:count].numel()].view(count, -1).copy_(here[:count])
                    yield term(block, None if beside is None else here[count].double())

        return self._in_turn(blocks.zero(rows, term, beside), terms())

    def combined(self, rows: blocks.Rows, rule: Callable[[Tensor], Tensor]) -> Tensor:
        result = torch.empty_like(rows[0])
        memory = blocks.block_memory(rows, self.dimension)
        start, stop = self.where.start, self.where.stop
        for where, here in self._read([*rows], len(rows)):
            made = rule(memory[: here.numel()].view(here.shape).copy_(here))
            first, last = max(where.start, start), min(where.stop, stop)
            result[first - start : last - start] = made[first - where.start : last - where.start]
        return result

    def largest(self, vector: Tensor, ranks: Tensor, groups: Sequence[int], counts: Tensor) -> Tensor:
        counts = counts.to(vector.device)
        keys = sparsify.sorted_magnitudes(vector, ranks, self.sizes(groups))

        def as_large(patterns: Tensor) -> Tensor:
            return sparsify.count_as_large(keys, patterns, self.sizes(groups))

        patterns = sparsify.largest_pattern(counts, lambda patterns: self.ranks.all_reduce_sum(as_large(patterns)))
        larger = as_large(patterns + 1)
        equal = as_large(patterns) - larger
        # Ties go to those in front: to the ranks before this one first.
        theirs = counts.new_zeros(2, self.ranks.count, *counts.shape)
        theirs[:, self.ranks.rank] = torch.stack([larger, equal])
        theirs = self.ranks.all_reduce_sum(theirs)
        left = counts - theirs[0].sum(0) - theirs[1, : self.ranks.rank].sum(0)
        return larger + left.clamp_min(0).minimum(equal)

    def gathered(self, vector: Tensor) -> Tensor:
        sizes = [where.stop - where.start for where in self.shards]
        nothing = [0] * self.ranks.count
        received = sizes if self.ranks.rank == 0 else nothing
        return self.ranks.all_to_all(vector, [len(vector), *nothing[1:]], received).cpu()

    def of(self, vector: Tensor) -> Tensor:
        return vector[self.where].clone()

    def _in_turn(self, zero: Tensor, terms: Iterator[Tensor]) -> Tensor:
        """The sum of every rank's terms, in the order of ranks; the first of them are made before it is one's turn."""
        ready = [*islice(terms, max(1, _READY // zero.numel()))]

        def added(total: Tensor) -> Tensor:
            for one in chain(ready, terms):
                total += one
            return total

        return self.ranks.in_turn(zero, added).cpu()

    def _read(self, rows: Sequence[Tensor], count: int) -> Iterator[tuple[slice, Tensor]]:
        """Every block in which coordinates of this rank are, whole, and where in D it lies.

        Args:
            rows: k vectors ``[d]``.
            count: The number of rows that the width of blocks goes by.
        """
        width = blocks.block_width(count)
        reach = self._reach(self.where, width)
        before, behind = self._margins(rows, width)
        parts: list[tuple[int, Sequence[Tensor] | Tensor]] = [
            (reach.start, before),
            (self.where.start, rows),
            (self.where.stop, behind),
        ]
        for start in range(reach.start, reach.stop, width):
            where = slice(start, min(start + width, reach.stop))
            here = [_within(where, offset, part) for offset, part in parts]
            there = [part for part in here if part.shape[1]]
            yield where, there[0] if len(there) == 1 else torch.cat(there, dim=1)

    def _margins(self, rows: Sequence[Tensor], width: int) -> tuple[Tensor, Tensor]:
        """What blocks at this rank's borders have of other ranks' coordinates: ``[k, n]`` before them and behind."""
        ends = [self._reach(where, width) for where in self.shards]
        mine, rank = ends[self.ranks.rank], self.ranks.rank
        theirs = [_overlap(self.where, end) if other != rank else slice(0, 0) for other, end in enumerate(ends)]
        received = [_overlap(mine, where) if other != rank else slice(0, 0) for other, where in enumerate(self.shards)]
        sent = torch.cat([_within(where, self.where.start, rows).T for where in theirs])
        lengths = [[where.stop - where.start for where in part] for part in (theirs, received)]
        margins = self.ranks.all_to_all(sent, *lengths).to(rows[0].device)
        before = self.where.start - mine.start
        return margins[:before].T, margins[before:].T

    def _reach(self, where: slice, width: int) -> slice:
        """The coordinates of all blocks in which some of a shard's are."""
        if where.start == where.stop:
            return where
        return slice(where.start // width * width, min(-(-where.stop // width) * width, self.dimension))


def _overlap(one: slice, other: slice) -> slice:
    """What is in both."""
    start = max(one.start, other.start)
    return slice(start, max(start, min(one.stop, other.stop)))


def _within(where: slice, offset: int, rows: Sequence[Tensor] | Tensor) -> Tensor:
    """Of rows that begin at an offset what lies in a place, ``[k, n]``."""
    start, stop = max(where.start - offset, 0), max(where.stop - offset, 0)
    return rows[:, start:stop] if isinstance(rows, Tensor) else torch.stack([row[start:stop] for row in rows])
