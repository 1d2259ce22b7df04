"""Divide and conquer (Shejwalkar and Houmansadr 2021, https://doi.org/10.14722/ndss.2021.24498)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from rffl_pl.errors import UserError, check_positive
from rffl_pl.functional.aggregation import mean_of, smallest, spectral_scores
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class DnC(Consensus):
    r"""The unweighted mean of the uploads that stand out least along the direction in which they differ most.

    .. math::
        s_i = \langle u_i - \bar u, v \rangle^2, \quad v = \arg\max_{\|v\| = 1} \sum_i \langle u_i - \bar u, v \rangle^2

    The :math:`\lceil c f \rceil` uploads with the largest :math:`s_i` are left out. Shejwalkar and Houmansadr, NDSS
    2021, Algorithm 2, which looks at some coordinates drawn at random, a few times, so that v can be computed. Here it
    follows from inner products, of all coordinates at once, and nothing is drawn.

    Args:
        byzantine: Number f of uploads to tolerate; by default as of `MultiKrum`.
        filtering: c, how many are left out for each of them; the paper has 1.

    Raises:
        UserError: If c is not positive, or f is negative or 2f < P or :math:`\lceil c f \rceil < P` does not hold; the
            last ones before the first round.

    Where members miss rounds, P is the number of those that are asked in one, and f how many of *them* may be bad. With
    uploads set aside or of zeros, f shrinks to less than half of the rest, and one is always left.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def __init__(self, *, byzantine: int | None = None, filtering: float = 1.0) -> None:
        super().__init__()
        check_positive("--server.filtering", filtering)
        self.byzantine = byzantine
        self.filtering = filtering
        self._tolerated = 0

    def start(self, task: Task) -> None:
        super().start(task)
        self._tolerated = f = task.tolerating(self.byzantine, (task.asked - 1) // 2, "f >= 0 and 2f < P")
        if self._left_out(f) >= task.asked:
            raise UserError(
                f"Expected --server.filtering times f = {f} to be less than {task.counted}, but got {self.filtering}; "
                "give less."
            )

    def weigh(self, evidence: Evidence) -> Tensor:
        here = len(evidence.senders)
        out = self._left_out(min(self._tolerated, (here - 1) // 2))
        return mean_of(smallest(spectral_scores(evidence.centred_gram), max(1, here - out)), here)

    def _left_out(self, byzantine: int) -> int:
        return math.ceil(self.filtering * byzantine - 1e-9)  # 1.1 of 10 are 11
