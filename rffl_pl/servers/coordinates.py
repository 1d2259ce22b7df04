"""The coordinates that a server has of all vectors, and what it takes to decide as if it had all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rffl_pl.functional import blocks


def moved(model: Tensor, step: Tensor) -> Tensor:
    """A model ``[d]`` after a step, with the participants' bits: they add their own kept update of 0 first."""
    return model.to(step.device) + 0.0 + step


class Coordinates:
    """All D coordinates, in one place.

    `rffl_pl.sharded.Part` are those of one rank of several, with the same results to the bit.

    Args:
        dimension: D.

    Attributes:
        where: The coordinates ``[d]`` that are here.
    """

    def __init__(self, dimension: int) -> None:
        self.where = slice(0, dimension)

    @property
    def size(self) -> int:
        """The number d of coordinates that are here."""
        return int(self.where.stop - self.where.start)

    def squared_norms(self, rows: blocks.Rows) -> Tensor:
        r""":math:`\|u_i\|^2` over all coordinates of m rows ``[d]``, ``[m]`` float64."""
        return blocks.squared_norms(rows)

    def add_up(self, rows: blocks.Rows, term: blocks.Term, beside: Tensor | None = None) -> Tensor:
        """As `rffl_pl.functional.blocks.add_up` of m rows and perhaps a vector ``[d]``, over all coordinates."""
        return blocks.add_up(rows, term, beside)

    def combined(self, rows: blocks.Rows, rule: Callable[[Tensor], Tensor]) -> Tensor:
        """As `rffl_pl.functional.blocks.combined`, ``[d]``."""
        return blocks.combined(rows, rule)

    def sizes(self, groups: Sequence[int]) -> list[int]:
        """How many entries of every group are here, of groups that follow each other and make up D."""
        ends = torch.tensor(groups).cumsum(0).tolist()
        start, stop = self.where.start, self.where.stop
        return [max(0, min(end, stop) - max(end - size, start)) for end, size in zip(ends, groups, strict=True)]

    def largest(self, vector: Tensor, ranks: Tensor, groups: Sequence[int], counts: Tensor) -> Tensor:
        """How many of the largest entries of every group are here.

        Args:
            vector: ``[d]``.
            ranks: `rffl_pl.functional.sparsify.magnitude_ranks` of what is here, ``[d]``.
            groups: Sizes of G groups that make up D.
            counts: How many are the largest, for each of P participants, ``[P, G]`` int64; ties go to those in front.

        Returns:
            ``[P, G]`` int64.
        """
        return counts

    def gathered(self, vector: Tensor) -> Tensor:
        """A vector ``[d]`` with all coordinates, ``[D]``, on rank 0 and on the CPU; nothing elsewhere."""
        return vector.cpu()

    def of(self, vector: Tensor) -> Tensor:
        """What is here ``[d]`` of a vector ``[D]``."""
        return vector
