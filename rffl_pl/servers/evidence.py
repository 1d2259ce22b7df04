"""What a server may know of a round: statistics of its uploads to decide by, and a way to combine them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional import blocks
from rffl_pl.functional.aggregation import squared_distances
from rffl_pl.functional.fingerprints import described
from rffl_pl.servers.coordinates import Coordinates


@dataclass(frozen=True, kw_only=True)
class Evidence:
    r"""The m uploads :math:`u_i` of a round that can be computed with and are not zeros.

    A rule decides from what is m-sized here; the uploads themselves are read block of coordinates after block, so that
    nobody ever holds a second copy of them.

    Attributes:
        round: The round, counted from 0.
        asked: The a participants that were asked, ``[a]`` int64; those whose upload is set aside, or zeros, among them.
        silent: The s of them whose upload is zeros, ``[s]`` int64.
        senders: The participant behind every upload, ``[m]`` int64, ascending.
        examples: Their numbers of training examples, ``[m]`` float64.
        squared_norms: :math:`\|u_i\|^2`, ``[m]`` float64.
        losses: The losses they reported, ``[m]`` float64, if the server hears them.
        uploads: m rows ``[d]``: all D coordinates, or under ``--exchange sharded`` those that this rank serves.
        participants: P.
        dimension: D.
        coordinates: Which they are; statistics are always those of all.
        combining: Called before uploads are combined; from there on a rule works on coordinates.
    """

    round: int
    asked: Tensor
    silent: Tensor
    senders: Tensor
    examples: Tensor
    squared_norms: Tensor
    losses: Tensor | None
    uploads: blocks.Rows
    participants: int
    dimension: int
    coordinates: Coordinates
    combining: Callable[[], None]

    @cached_property
    def gram(self) -> Tensor:
        r"""Inner products :math:`G_{ij} = \langle u_i, u_j \rangle`, ``[m, m]`` float64; computed when asked for."""
        return self.gram_of(self.uploads)

    @cached_property
    def gram_of_squares(self) -> Tensor:
        r""":math:`\sum_k u_{ik}^2 u_{jk}^2`, ``[m, m]`` float64; computed when asked for."""
        if not len(self.uploads):
            return torch.zeros(0, 0, dtype=torch.float64)
        return blocks.gram_of_squares(self.uploads, self.coordinates.add_up)

    @cached_property
    def centred_gram(self) -> Tensor:
        """Inner products of the uploads less the shortest of them, ``[m, m]`` float64; computed when asked for.

        Not less their mean: that could be ruined by one huge attacker.
        """
        return blocks.gram(self.uploads, self.uploads[int(self.squared_norms.argmin())], self.coordinates.add_up)

    @cached_property
    def along_shortest(self) -> Tensor:
        r""":math:`\langle u_i - c, c \rangle`, ``[m]`` float64, with c the shortest upload; computed when asked for.

        Not by lengths and distances, whose difference would lose it beside one huge attacker.
        """
        one = torch.zeros_like(self.squared_norms)
        one[self.squared_norms.argmin()] = 1
        return self.gram_times(one) - self.squared_norms.min()

    @cached_property
    def squared_distances(self) -> Tensor:
        r""":math:`\|u_i - u_j\|^2`, ``[m, m]`` float64, infinity on the diagonal; computed when asked for."""
        return squared_distances(self.centred_gram)

    def gram_of(self, rows: blocks.Rows) -> Tensor:
        """Inner products of other rows ``[d]`` of the same coordinates, float64."""
        if not len(rows):
            return torch.zeros(0, 0, dtype=torch.float64)
        return blocks.gram(rows, add_up=self.coordinates.add_up)

    def squared_distances_to(self, point: Tensor) -> Tensor:
        r""":math:`\|u_i - p\|^2` for a vector ``[d]``, ``[m]`` float64."""
        if not len(self.uploads):
            return self.squared_norms
        return blocks.squared_distances_to(self.uploads, point, self.coordinates.add_up)

    def products_with(self, point: Tensor) -> Tensor:
        r""":math:`\langle u_i, p \rangle` for a vector ``[d]``, ``[m]`` float64."""
        if not len(self.uploads):
            return self.squared_norms
        return blocks.products_with(self.uploads, point, self.coordinates.add_up)

    def gram_times(self, weights: Tensor) -> Tensor:
        r""":math:`G w` for weights ``[m]``: :math:`\langle u_i, \sum_j w_j u_j \rangle`, ``[m]`` float64."""
        if not len(self.uploads):
            return self.squared_norms
        return blocks.gram_times(self.uploads, weights, self.coordinates.add_up)

    def combined(
        self,
        rule: Callable[[Tensor, Tensor], Tensor],
        weights: Tensor,
        *,
        used: Tensor | None = None,
        whole: bool = False,
    ) -> Tensor:
        """The vector ``[d]`` that a rule makes of the uploads; zeros without any.

        Args:
            rule: Makes ``[c]`` of a block ``[k, c]`` of k uploads and their weights ``[k]``.
            weights: ``[m]``.
            used: Of which uploads, ``[m]`` bool; by default those whose weight is not 0.
            whole: Whether one block has all coordinates that are here, in a second copy of the uploads.

        Raises:
            UserError: If it makes something else of one.
        """
        those = (weights != 0 if used is None else used).nonzero().flatten().tolist()
        if not those:
            here = self.coordinates.size
            return self.uploads[0].new_zeros(here) if len(self.uploads) else torch.zeros(here)
        self.combining()
        rows = self.uploads if len(those) == len(weights) else [self.uploads[i] for i in those]
        weights = weights[those].to(rows[0].device)

        def made(block: Tensor) -> Tensor:
            return entries_of(block, rule(block, weights), "what evidence.combined is given to make")

        if whole:
            return made(torch.stack([*rows])).to(rows[0])
        return self.coordinates.combined(rows, made)

    def spread(self, values: Tensor, elsewhere: float) -> Tensor:
        """Values ``[m]`` by participant, ``[P]``, with a value of their own for those who sent nothing."""
        everyone = torch.full((self.participants,), elsewhere, dtype=values.dtype)
        return everyone.scatter(0, self.senders, values.cpu())


def entries_of(block: Tensor, made: object, expected: str) -> Tensor:
    """Check that ``made`` is the ``[c]`` of a block ``[k, c]``, and return it.

    Args:
        block: The block.
        made: What a rule has made of it.
        expected: Whose rule, for the message.

    Raises:
        UserError: If it is no tensor ``[c]``.
    """
    if not isinstance(made, Tensor) or made.shape != block.shape[1:]:
        raise UserError(
            f"Expected {expected} shape {list(block.shape[1:])} of a block {list(block.shape)}, but got "
            f"{described(made)}."
        )
    return made
