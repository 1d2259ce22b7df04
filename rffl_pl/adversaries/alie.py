"""A little is enough (Baruch, Baruch & Goldberg 2019, https://arxiv.org/abs/1902.06156)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from rffl_pl.adversaries.base import OmniscientAdversary, Situation
from rffl_pl.errors import UserError


class ALIE(OmniscientAdversary):
    r"""Knows the honest uploads and stays within their spread, entry by entry.

    All adversaries upload :math:`\mu - z \sigma`, with :math:`\mu` the mean of the honest uploads and :math:`\sigma`
    their standard deviation, that of a population; it is 0 where there is one upload.

    Args:
        z: :math:`z`. ``paper``: :math:`\Phi^{-1} \left( \frac{n - f - s}{n - f} \right)` with :math:`s = \lfloor n / 2
            \rfloor + 1 - f` for f adversaries among the n that upload in a round: the s honest uploads that lie further
            off and the adversaries are a majority. Where f is small that is no attack, 0 for two of ten, and never less
            here; where the adversaries are a majority already s is 1. 1.5 is what ByzFL takes.

    Raises:
        UserError: If `z` is not finite.
    """

    def __init__(self, *, z: float | Literal["paper"] = 1.5) -> None:
        if z != "paper" and not math.isfinite(z):
            raise UserError(f"Expected {self._option('z')} to be finite, but got {z}; 0 is the honest mean.")
        self.z = z

    def collude(self, situation: Situation) -> Tensor:
        assert situation.honest is not None
        sigma, mu = torch.std_mean(situation.honest, 0, correction=0)
        z = _of_the_paper(len(situation.honest), situation.adversaries) if self.z == "paper" else self.z
        return mu - z * sigma


def _of_the_paper(honest: int, adversaries: int) -> float:
    """The z up to which so many honest uploads lie further off that these and the adversaries are a majority."""
    further = max(1, (honest + adversaries) // 2 + 1 - adversaries)
    return max(0.0, float(torch.special.ndtri(torch.tensor((honest - further) / honest, dtype=torch.float64))))
