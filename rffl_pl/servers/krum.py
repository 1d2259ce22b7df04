"""Multi-Krum (Blanchard et al. 2017, https://arxiv.org/abs/1703.02757)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional.aggregation import krum_scores, smallest
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus


class MultiKrum(Consensus):
    r"""The unweighted mean of the m uploads with the smallest Krum scores.

    The score is the sum of the :math:`P - f - 2` smallest *squared* distances to others; m = 1 is Krum, m = P the mean.

    Args:
        byzantine: Number f of uploads to tolerate; by default :math:`\lfloor 0.2 P \rfloor`, the paper's clip ratio.
        selected: Number m of uploads averaged; by default P - f.

    Raises:
        UserError: If f is negative or 2f + 2 < P does not hold, or m does not lie in 1 .. P; before the first round.

    With uploads set aside, f and m shrink to what the rest allows.
    """

    def __init__(self, *, byzantine: int | None = None, selected: int | None = None) -> None:
        super().__init__()
        self.byzantine = byzantine
        self.selected = selected

    def start(self, task: Task) -> None:
        super().start(task)
        total = len(task.examples)
        f = math.floor(0.2 * total) if self.byzantine is None else self.byzantine
        if f < 0 or 2 * f + 2 >= total:
            raise UserError(
                f"Expected --server.byzantine f with f >= 0 and 2f + 2 < P, but got f = {f} and P = {total} "
                f"participants; give at most {max(0, (total - 3) // 2)} or take more participants."
            )
        if self.selected is not None and not 1 <= self.selected <= total:
            raise UserError(f"Expected --server.selected to lie in 1 .. {total}, but got {self.selected}.")

    def aggregate(self, uploads: Tensor, senders: Tensor) -> tuple[Tensor, Tensor]:
        total, here = len(self.members), len(senders)
        f = math.floor(0.2 * total) if self.byzantine is None else self.byzantine
        f = max(0, min(f, (here - 3) // 2))
        m = min(here, self.selected if self.selected is not None else here - f)
        chosen = smallest(krum_scores(uploads, f), m) if here > 2 else torch.arange(here, device=uploads.device)
        weights = torch.zeros(here, dtype=torch.float64)
        weights[chosen.cpu()] = 1 / len(chosen)
        return uploads[chosen].mean(0), weights
