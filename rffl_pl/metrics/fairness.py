"""What participants get for what they bring."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class _Comparison(Metric):
    """Base of metrics of standalone against final accuracies over the honest participants."""

    full_state_update: bool = False
    higher_is_better: bool = True
    standalone: list[Tensor]
    final: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(sync_on_compute=False, **kwargs)
        self.add_state("standalone", [], dist_reduce_fx=None)
        self.add_state("final", [], dist_reduce_fx=None)

    def update(self, standalone: Tensor, final: Tensor) -> None:
        """Add participants: their standalone and their final accuracies, ``[n]`` each."""
        self.standalone.append(standalone)
        self.final.append(final)

    def _pairs(self) -> tuple[Tensor, Tensor]:
        """All standalone and all final accuracies, ``[N]`` float64 each."""
        standalone, final = (torch.cat(some or [torch.empty(0)]).double() for some in (self.standalone, self.final))
        return standalone, final


class Fairness(_Comparison):
    r"""Pearson's correlation of what participants bring and what they get (Xu & Lyu 2021, Definition 1).

    .. math::
        \rho = \frac{\sum_i (x_i - \bar x)(y_i - \bar y)}{\sqrt{\sum_i (x_i - \bar x)^2 \sum_i (y_i - \bar y)^2}}

    with x the standalone accuracies and y the final accuracies of the honest participants, on the same test set each.
    Undefined, NaN, with fewer than two participants or where either is constant.

    Example:
        >>> fairness = Fairness()
        >>> fairness.update(torch.tensor([0.7, 0.8, 0.9]), torch.tensor([0.90, 0.92, 0.94]))
        >>> round(fairness.compute().item(), 4)
        1.0
        >>> fairness.reset()
        >>> fairness.update(torch.tensor([0.7, 0.8, 0.9]), torch.tensor([0.9, 0.9, 0.9]))
        >>> fairness.compute()
        tensor(nan)
    """

    def compute(self) -> Tensor:
        """The correlation, a scalar in [-1, 1] or NaN."""
        x, y = self._pairs()
        return _pearson(x, y)


class RankFairness(_Comparison):
    r"""Spearman's correlation of standalone and final accuracies: Pearson's of their ranks, equal ones averaged.

    It asks only whether the order is kept. Undefined, NaN, where `Fairness` is.

    Example:
        >>> fairness = RankFairness()
        >>> fairness.update(torch.tensor([0.1, 0.8, 0.9]), torch.tensor([0.50, 0.51, 0.94]))
        >>> round(fairness.compute().item(), 4)
        1.0
    """

    def compute(self) -> Tensor:
        """The correlation, a scalar in [-1, 1] or NaN."""
        x, y = self._pairs()
        return _pearson(_ranks(x), _ranks(y))


class CollaborationGain(_Comparison):
    r"""Mean and standard deviation of the gains :math:`b_i = y_i - x_i` over training alone.

    The mean collaboration gain :math:`\frac{1}{N} \sum_i b_i` and its spread :math:`\sqrt{\frac{1}{N} \sum_i (b_i -
    \bar b)^2}` (Tastan et al. 2025, https://arxiv.org/abs/2501.12344), in shares of the test set. NaN without
    participants.

    Example:
        >>> gain = CollaborationGain()
        >>> gain.update(torch.tensor([0.7, 0.8]), torch.tensor([0.9, 0.9]))
        >>> [round(value.item(), 4) for value in gain.compute()]
        [0.15, 0.05]
    """

    def compute(self) -> tuple[Tensor, Tensor]:
        """The mean and the spread, two scalars."""
        x, y = self._pairs()
        gains = y - x
        return gains.mean().float(), gains.std(correction=0).float() if len(gains) else torch.tensor(torch.nan)


def _pearson(x: Tensor, y: Tensor) -> Tensor:
    """The correlation of two vectors, NaN where it is undefined."""
    if len(x) < 2 or bool((x == x[0]).all()) or bool((y == y[0]).all()):
        return torch.tensor(torch.nan)
    x, y = x - x.mean(), y - y.mean()
    return ((x * y).sum() / (x.square().sum() * y.square().sum()).sqrt()).clamp(-1, 1).float()


def _ranks(x: Tensor) -> Tensor:
    """Ranks from 1 on, equal values sharing the mean of theirs; NaN where there is one."""
    _, which, counts = x.unique(return_inverse=True, return_counts=True)  # ascending, NaN last
    ranks = (counts.cumsum(0) - (counts.double() - 1) / 2)[which]
    return torch.where(x.isnan(), torch.nan, ranks)
