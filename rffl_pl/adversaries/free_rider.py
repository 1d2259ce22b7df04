"""Free-riders want the model without the work."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.adversaries.base import Adversary, Situation
from rffl_pl.errors import check_not_negative, check_positive


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
        check_positive(self._option("scale"), scale, "the paper has 1")
        self.scale = scale

    def upload(self, situation: Situation) -> Tensor:
        return uniform_noise(situation.update, situation.generator, self.scale)


class Sybil(Adversary):
    r"""One free-rider under many names: all of them upload the same noise, and so agree with each other.

    Sybils are Douceur's (IPTPS 2002), in federated learning Fung et al.'s (2020, https://arxiv.org/abs/1808.04866).

    Uniform in :math:`[-1, 1]` and the same for all in every round, plus noise of their own that is :math:`j` times as
    long. Two of them have a cosine of about :math:`1 / (1 + j^2)`, where unrelated noise has 0.

    Args:
        jitter: :math:`j`; 0 are exact clones.

    Raises:
        UserError: If `jitter` is negative or not finite.
    """

    trains: ClassVar[bool] = False

    def __init__(self, *, jitter: float = 0.0) -> None:
        check_not_negative(self._option("jitter"), jitter, "0 are exact clones")
        self.jitter = jitter

    def upload(self, situation: Situation) -> Tensor:
        shared = uniform_noise(situation.update, situation.agreed)
        return shared + uniform_noise(situation.update, situation.generator, self.jitter) if self.jitter else shared


def uniform_noise(like: Tensor, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    """Uniform in [-scale, scale], shaped like an update; drawn on the CPU, so that every device gets the same."""
    drawn = torch.rand(like.shape, generator=generator, dtype=like.dtype)
    return drawn.mul_(2).sub_(1).mul_(scale).to(like.device)
