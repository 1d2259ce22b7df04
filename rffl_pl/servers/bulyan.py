"""Bulyan (El Mhamdi, Guerraoui and Rouault 2018, https://arxiv.org/abs/1802.07927)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from rffl_pl.functional.aggregation import mean_of, selected_by_krum
from rffl_pl.functional.order import mean_around_median
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class Bulyan(Consensus):
    r"""In every coordinate the mean of the values closest to the median, of uploads that Krum has selected.

    Krum selects :math:`\theta = P - 2f` uploads one after another, each by the scores of those that are left; of their
    values in a coordinate the :math:`\beta = \theta - 2f` closest to the median are averaged. El Mhamdi et al., ICML
    2018, Section 4.

    Args:
        byzantine: Number f of uploads to tolerate. By default ``--federation.tolerated``, and without it
            :math:`\lfloor 0.2 P \rfloor`, or :math:`\lfloor (P - 3) / 4 \rfloor` if that is less: 0 below seven.

    Raises:
        UserError: If f is negative or :math:`4f + 3 \le P` does not hold; before the first round. With f = 0 it is the
            mean of any number.

    Where members miss rounds, P is the number of those that are asked in one, and f how many of *them* may be bad. With
    uploads set aside or of zeros, f shrinks to what the rest allows.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def __init__(self, *, byzantine: int | None = None) -> None:
        super().__init__()
        self.byzantine = byzantine
        self._tolerated = self._bad = 0

    def start(self, task: Task) -> None:
        super().start(task)
        self._tolerated = task.tolerating(self.byzantine, _most(task.asked), "f = 0, or f > 0 and 4f + 3 <= P")

    def weigh(self, evidence: Evidence) -> Tensor:
        here = len(evidence.senders)
        self._bad = f = min(self._tolerated, _most(here))
        selected = selected_by_krum(evidence.squared_distances, f, here - 2 * f) if f else slice(None)
        return mean_of(selected, here)

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return mean_around_median(block, len(block) - 2 * self._bad)


def _most(uploads: int) -> int:
    """How many bad ones the rule can tolerate of so many uploads."""
    return max(0, (uploads - 3) // 4)
