"""Coordinate-wise trimmed mean (Yin et al. 2018, https://arxiv.org/abs/1803.01498)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional.order import trimmed_mean
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus


class TrimmedMean(Consensus):
    r"""The mean of the uploads in every coordinate, without the smallest and the largest ones.

    Of m values the :math:`\lfloor \beta m \rfloor` smallest and as many of the largest are left out; the others
    count the same.

    Args:
        trim: :math:`\beta`, the share left out on either side; it has to be at least the share of bad uploads. By
            default 0.2; with ``--federation.tolerated f`` just f are left out on either side, of few uploads as many as
            leave one.

    Raises:
        UserError: If :math:`\beta` does not lie in [0, 0.5); before the first round, if f is not less than half of the
            uploads that the rule is given.

    Where members miss rounds, :math:`\beta` is a share of those that are asked in one.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def __init__(self, *, trim: float | None = None) -> None:
        super().__init__()
        if trim is not None and not 0 <= trim < 0.5:
            raise UserError(
                f"Expected --server.trim to lie in [0, 0.5), but got {trim}; at 0.5 it would be the median."
            )
        self.trim = 0.2 if trim is None else trim
        self._given = trim
        self._tolerated: int | None = None

    def start(self, task: Task) -> None:
        super().start(task)
        self._tolerated = f = task.tolerated if self._given is None else None
        if f is not None and 2 * f >= task.asked:
            raise UserError(
                f"Expected --federation.tolerated f with 2f < P, but got f = {f} and {task.counted}; give at most "
                f"{(task.asked - 1) // 2}, or --server.trim."
            )

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        share = int(self.trim * len(block) + 1e-9)  # 0.29 of 100 are 29
        out = share if self._tolerated is None else self._tolerated
        return trimmed_mean(block, min(out, (len(block) - 1) // 2))

    def settings(self, prefix: str = "") -> dict[str, str]:
        """As of every server; what nobody gave is said to be the share that is left out, as it always was."""
        decided = {} if self._tolerated is not None else {f"{prefix}.trim": str(self.trim)}
        return super().settings(prefix) | decided
