"""Attacks that distort the honest update (Xu & Lyu 2021, Section 4; variants as the paper has them and its code)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from rffl_pl.adversaries.base import Adversary, Situation
from rffl_pl.errors import UserError


class Rescale(Adversary):
    r"""Blows the update up, or turns its sign.

    Args:
        variant: ``released``, every entry times :math:`10 \cdot U[-10, 10]`; ``paper``, the update times -100.
        factor: The update times this number, whatever the variant: -1 is sign flipping, the update of an honest
            participant as long as it is and turned round.

    Raises:
        UserError: If `factor` is not finite.
    """

    def __init__(self, *, variant: Literal["released", "paper"] = "released", factor: float | None = None) -> None:
        if factor is not None and not math.isfinite(factor):
            raise UserError(f"Expected {self._option('factor')} to be finite, but got {factor}; -1 turns the sign.")
        self.variant, self.factor = variant, factor

    def upload(self, situation: Situation) -> Tensor:
        if self.factor is not None:
            return self.factor * situation.update
        if self.variant == "paper":
            return -100 * situation.update
        return situation.update * _uniform(situation).mul(20).sub(10).mul(10)


class SignRandom(Adversary):
    """Gives every entry a random sign."""

    def upload(self, situation: Situation) -> Tensor:
        return torch.where(_uniform(situation) < 0.5, -situation.update, situation.update)


class ValueInvert(Adversary):
    r"""Replaces every entry x, with probability one half, by :math:`1 / (x + 10^{-10})`."""

    def upload(self, situation: Situation) -> Tensor:
        return torch.where(_uniform(situation) < 0.5, 1 / (situation.update + 1e-10), situation.update)


def _uniform(situation: Situation) -> Tensor:
    """Uniform in [0, 1), shaped like the update; drawn on the CPU, so that every device gets the same."""
    update = situation.update
    return torch.rand(update.shape, generator=situation.generator, dtype=update.dtype).to(update.device)
