"""Collaborative fairness."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class Fairness(Metric):
    r"""Pearson's correlation of what participants bring and what they get (Xu & Lyu 2021, Definition 1).

    .. math::
        \rho = \frac{\sum_i (x_i - \bar x)(y_i - \bar y)}{\sqrt{\sum_i (x_i - \bar x)^2 \sum_i (y_i - \bar y)^2}}

    with x the standalone accuracies and y the final accuracies of the honest participants on the same test set.
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

    def compute(self) -> Tensor:
        """The correlation, a scalar in [-1, 1] or NaN."""
        nobody = torch.empty(0)
        x, y = torch.cat([nobody, *self.standalone]).double(), torch.cat([nobody, *self.final]).double()
        if len(x) < 2 or bool((x == x[0]).all()) or bool((y == y[0]).all()):
            return torch.tensor(torch.nan)
        x, y = x - x.mean(), y - y.mean()
        return ((x * y).sum() / (x.square().sum() * y.square().sum()).sqrt()).clamp(-1, 1).float()
