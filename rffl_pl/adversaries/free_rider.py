"""Free-riders want the model without the work."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.adversaries.base import Adversary, Situation
from rffl_pl.errors import UserError


class FreeRider(Adversary):
    r"""Does not train and uploads noise, uniform in :math:`[-s, s]` in every entry (Xu & Lyu 2021, Section 4).

    Args:
        scale: :math:`s`; 1 in the paper. Small noise is as long as an honest update and shorter than any norm bound.

    Raises:
        UserError: If `scale` is not positive.
    """

    trains: ClassVar[bool] = False

    def __init__(self, *, scale: float = 1.0) -> None:
        if not scale > 0:
            raise UserError(f"Expected {type(self).__name__}'s scale to be positive, but got {scale}; the paper has 1.")
        self.scale = scale

    def upload(self, situation: Situation) -> Tensor:
        return noise(situation.update, situation.generator, self.scale)


class OnOff(FreeRider):
    r"""Earns a reputation honestly, then rides free on it.

    It trains and uploads its update in the first rounds; after them it is a `FreeRider`, except in the first round of
    every period, if there is one. A moving average of weight :math:`\alpha` on the past forgets the honest rounds in
    about :math:`1 / (1 - \alpha)` others.

    Args:
        honest: Number of honest rounds at the beginning.
        period: Length of a period thereafter; None for no honest round any more.
        scale: As the free-rider's.

    Raises:
        UserError: If `honest` is negative, `period` not positive, or `scale` not.
    """

    trains: ClassVar[bool] = True

    def __init__(self, *, honest: int = 15, period: int | None = None, scale: float = 1.0) -> None:
        super().__init__(scale=scale)
        if honest < 0 or (period is not None and period < 1):
            raise UserError(
                f"Expected OnOff's honest to be 0 or more rounds and its period 1 or more, but got {honest} and {period}."
            )
        self.honest, self.period = honest, period

    def trains_in(self, round_index: int) -> bool:
        return round_index < self.honest or (
            self.period is not None and (round_index - self.honest) % self.period == self.period - 1
        )

    def upload(self, situation: Situation) -> Tensor:
        return situation.update if self.trains_in(situation.round) else super().upload(situation)


class Sybil(Adversary):
    r"""One free-rider under many names: all of them upload the same noise, and so agree with each other.

    Uniform in :math:`[-1, 1]` and the same for all in every round, plus noise of their own that is ``jitter`` times as
    long. Two of them have a cosine of :math:`1 / (1 + j^2)`, where honest noise has 0.

    Args:
        jitter: :math:`j`; 0 are exact clones.

    Raises:
        UserError: If `jitter` is negative.
    """

    trains: ClassVar[bool] = False

    def __init__(self, *, jitter: float = 0.0) -> None:
        if not jitter >= 0:
            raise UserError(f"Expected Sybil's jitter to be 0 or more, but got {jitter}.")
        self.jitter = jitter

    def upload(self, situation: Situation) -> Tensor:
        agreed = torch.Generator().manual_seed(situation.round)
        shared = noise(situation.update, agreed)
        return shared + noise(situation.update, situation.generator, self.jitter) if self.jitter else shared


def noise(like: Tensor, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    """Uniform in [-scale, scale], shaped like an update; drawn on the CPU, so that every device gets the same."""
    drawn = torch.rand(like.shape, generator=generator, dtype=like.dtype)
    return drawn.mul_(2).sub_(1).mul_(scale).to(like.device)
