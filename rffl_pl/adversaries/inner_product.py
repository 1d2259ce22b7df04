"""Inner-product manipulation (Xie et al. 2019, https://arxiv.org/abs/1903.03936)."""

from __future__ import annotations

import math

from torch import Tensor

from rffl_pl.adversaries.base import OmniscientAdversary, Situation
from rffl_pl.errors import UserError


class InnerProduct(OmniscientAdversary):
    r"""Knows the honest uploads and sends the opposite of their mean.

    All adversaries upload :math:`-\epsilon \mu`, with :math:`\mu` the mean of the honest uploads.

    Args:
        epsilon: :math:`\epsilon`; 0.1 hides, much more than 1 is loud.

    Raises:
        UserError: If `epsilon` is no finite number.
    """

    def __init__(self, *, epsilon: float = 2.0) -> None:
        if not math.isfinite(epsilon):
            raise UserError(f"Expected {self._option('epsilon')} to be a finite number, but got {epsilon}.")
        self.epsilon = epsilon

    def collude(self, situation: Situation) -> Tensor:
        assert situation.honest is not None
        return -self.epsilon * situation.honest.mean(0)
