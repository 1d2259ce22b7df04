"""Coordinate-wise trimmed mean (Yin et al. 2018, https://arxiv.org/abs/1803.01498)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional.order import trimmed_mean
from rffl_pl.servers.consensus import Consensus


class TrimmedMean(Consensus):
    r"""The mean of the uploads in every coordinate, without the smallest and the largest ones.

    Of m values the :math:`\lfloor \beta m \rfloor` smallest and as many of the largest are left out; the others
    count the same.

    Args:
        trim: :math:`\beta`, the share left out on either side; it has to be at least the share of bad uploads.

    Raises:
        UserError: If :math:`\beta` does not lie in [0, 0.5).

    Where members miss rounds, :math:`\beta` is a share of those that are asked in one.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def __init__(self, *, trim: float = 0.2) -> None:
        super().__init__()
        if not 0 <= trim < 0.5:
            raise UserError(
                f"Expected --server.trim to lie in [0, 0.5), but got {trim}; at 0.5 it would be the median."
            )
        self.trim = trim

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        out = int(self.trim * len(block) + 1e-9)  # 0.29 of 100 are 29
        return trimmed_mean(block, min(out, (len(block) - 1) // 2))
