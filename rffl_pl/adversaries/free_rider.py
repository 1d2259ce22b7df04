"""Free-riders want the model without the work."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.adversaries.base import Adversary, Situation


class FreeRider(Adversary):
    """Does not train and uploads noise, uniform in [-1, 1] in every entry (Xu & Lyu 2021, Section 4)."""

    trains: ClassVar[bool] = False

    def upload(self, situation: Situation) -> Tensor:
        update = situation.update
        noise = torch.rand(update.shape, generator=situation.generator, dtype=update.dtype)
        return noise.mul_(2).sub_(1).to(update.device)
