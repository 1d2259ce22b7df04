"""Multi-Krum (Blanchard et al. 2017, https://arxiv.org/abs/1703.02757)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional.aggregation import krum_scores, mean_of, smallest
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class MultiKrum(Consensus):
    r"""The unweighted mean of the m uploads with the smallest Krum scores.

    The score is the sum of the :math:`P - f - 2` smallest *squared* distances to others; m = 1 is Krum, m = P the mean.

    Args:
        byzantine: Number f of uploads to tolerate; by default ``--federation.tolerated``, and without it
            :math:`\lfloor 0.2 P \rfloor`, the paper's clip ratio, or of buckets as many as it can tolerate.
        selected: Number m of uploads averaged; by default P - f. More than that averages bad ones too.

    Raises:
        UserError: If P is below 3, f is negative or 2f + 2 < P does not hold, or m does not lie in 1 .. P; before the
            first round.

    Where members miss rounds, P is the number of those that are asked in one, and f how many of *them* may be bad: a
    draw with more of them is not withstood. With uploads set aside or of zeros, f and m shrink to what the rest allows.
    One or two have no scores and are all averaged, whatever m is.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def __init__(self, *, byzantine: int | None = None, selected: int | None = None) -> None:
        super().__init__()
        self.byzantine = byzantine
        self.selected = selected
        self._tolerated = self._asked = 0

    def start(self, task: Task) -> None:
        super().start(task)
        self._asked = total = task.asked
        if total < 3:
            raise UserError(
                f"Expected P = 3 uploads in a round or more for {type(self).__name__}, which scores each by its "
                f"neighbours, but got {task.counted}; {task.more}."
            )
        self._tolerated = task.tolerating(self.byzantine, (total - 3) // 2, "f >= 0 and 2f + 2 < P")
        if self.selected is not None and not 1 <= self.selected <= total:
            raise UserError(
                f"Expected --server.selected to lie in 1 .. {total}, but got {self.selected} and {task.counted}; give "
                f"one of these, or {task.more}."
            )

    def weigh(self, evidence: Evidence) -> Tensor:
        here = len(evidence.senders)
        f = max(0, min(self._tolerated, (here - 3) // 2))
        selected = here - f if self.selected is None else self.selected
        m = min(selected, here - f if selected <= self._asked - self._tolerated else here)
        # One or two have no neighbours to be scored by.
        best = smallest(krum_scores(evidence.squared_distances, f), m) if here > 2 else slice(None)
        return mean_of(best, here)
