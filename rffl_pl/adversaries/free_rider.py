"""Free-riders want the model without the work."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.adversaries.base import Adversary, Situation
from rffl_pl.errors import UserError


class FreeRider(Adversary):
    r"""Does not train and uploads noise, uniform in :math:`[-s, s]` in every entry (Xu & Lyu 2021, Section 4).

    Args:
        scale: :math:`s`; 1 in the paper. The noise is about :math:`s \sqrt{D / 3}` long; scaled down to the length of
            an honest update it passes under any norm bound.

    Raises:
        UserError: If `scale` is not positive and finite.
    """

    trains: ClassVar[bool] = False

    def __init__(self, *, scale: float = 1.0) -> None:
        if not 0 < scale < math.inf:
            name = type(self).__name__
            raise UserError(f"Expected {name}'s scale to be positive and finite, but got {scale}; the paper has 1.")
        self.scale = scale

    def upload(self, situation: Situation) -> Tensor:
        return uniform_noise(situation.update, situation.generator, self.scale)


class OnOff(FreeRider):
    r"""Earns a reputation honestly, then rides free on it.

    It trains and uploads its update in the first rounds; after them it is a `FreeRider`, except in the last round of
    every period, if there is one. Aimed at reputations that are a moving average: one with the weight :math:`\alpha` on
    the past takes about :math:`1 / (1 - \alpha)` rounds to forget.

    Args:
        honest: Number of honest rounds at the beginning.
        period: Length in rounds of every period after them; None for no honest round any more.
        scale: As the free-rider's.

    Raises:
        UserError: If `honest` is negative, `period` below 2, or `scale` not positive and finite.
    """

    trains: ClassVar[bool] = True

    def __init__(self, *, honest: int = 15, period: int | None = None, scale: float = 1.0) -> None:
        super().__init__(scale=scale)
        if honest < 0:
            raise UserError(f"Expected OnOff's honest to be a number of rounds, 0 or more, but got {honest}.")
        if period is not None and period < 2:
            raise UserError(f"Expected OnOff's period to be 2 or more rounds, but got {period}; 1 would be honest.")
        self.honest, self.period = honest, period

    def trains_in(self, round_index: int) -> bool:
        beyond = round_index - self.honest
        return beyond < 0 or (self.period is not None and (beyond + 1) % self.period == 0)

    def upload(self, situation: Situation) -> Tensor:
        return situation.update if self.trains_in(situation.round) else super().upload(situation)


class Sybil(Adversary):
    r"""One free-rider under many names: all of them upload the same noise, and so agree with each other.

    Uniform in :math:`[-1, 1]` and the same for all in every round, plus noise of their own that is :math:`j` times as
    long. Two of them have a cosine of about :math:`1 / (1 + j^2)`, where unrelated noise has 0.

    Args:
        jitter: :math:`j`; 0 are exact clones.

    Raises:
        UserError: If `jitter` is negative or not finite.
    """

    trains: ClassVar[bool] = False

    def __init__(self, *, jitter: float = 0.0) -> None:
        if not 0 <= jitter < math.inf:
            raise UserError(
                f"Expected Sybil's jitter to be 0 or more and finite, but got {jitter}; 0 are exact clones."
            )
        self.jitter = jitter

    def upload(self, situation: Situation) -> Tensor:
        shared = uniform_noise(situation.update, situation.agreed)
        return shared + uniform_noise(situation.update, situation.generator, self.jitter) if self.jitter else shared


def uniform_noise(like: Tensor, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    """Uniform in [-scale, scale], shaped like an update; drawn on the CPU, so that every device gets the same."""
    drawn = torch.rand(like.shape, generator=generator, dtype=like.dtype)
    return drawn.mul_(2).sub_(1).mul_(scale).to(like.device)
