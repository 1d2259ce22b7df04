"""Coordinate-wise median (Yin et al. 2018, https://arxiv.org/abs/1803.01498)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from rffl_pl.functional.order import coordinate_median
from rffl_pl.servers.consensus import Consensus


class Median(Consensus):
    r"""The median of the uploads in every coordinate.

    :math:`w_k \leftarrow w_k + \mathrm{median}_i u_{ik}`, unweighted; for even m the mean of the middle two.

    Where members miss rounds, it withstands fewer bad uploads than half of those that are asked, not of all.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return coordinate_median(block)
