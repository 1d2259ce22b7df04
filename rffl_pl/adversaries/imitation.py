"""Adversaries who send back what they were sent, and look like contributors to whoever measures by cosine."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.adversaries.base import Adversary, Situation
from rffl_pl.adversaries.free_rider import uniform_noise
from rffl_pl.errors import check_not_negative, check_share


class Replay(Adversary):
    """Does not train; uploads its first download in every round after it.

    The first is the first that has an entry other than 0. Before it there is noise, as of a `FreeRider`. Aimed at any
    reward by cosine: an early aggregate is the direction in which the honest go, and a later one is not far from it.
    """

    trains: ClassVar[bool] = False
    keeps_download: ClassVar[bool] = True

    def upload(self, situation: Situation) -> Tensor:
        recorded = situation.memory.get("recorded", situation.download)
        if recorded is None or not recorded.any():
            return uniform_noise(situation.update, situation.generator)
        situation.memory.setdefault("recorded", recorded)
        return recorded.clone()


class DeltaWeights(Adversary):
    r"""Does not train; uploads what it was sent since its last upload.

    The delta-weights free-rider (Lin, Du & Liu 2019, https://arxiv.org/abs/1911.12560): with the model :math:`w^t`
    that it holds before round t,

    .. math::
        u^t = w^t - w^{t-1} + \sigma \, \frac{\|w^t - w^{t-1}\|}{\sqrt D} \, \epsilon, \quad \epsilon \sim N(0, I)

    While its model does not change it uploads noise, as a `FreeRider` does.

    Args:
        noise: :math:`\sigma`, about the length of the Gaussian noise over that of the difference; 0 is the plain
            attack, more is the authors' advanced one.

    Raises:
        UserError: If `noise` is negative or not finite.
    """

    trains: ClassVar[bool] = False

    def __init__(self, *, noise: float = 0.0) -> None:
        check_not_negative(self._option("noise"), noise, "0 is none")
        self.noise = noise

    def upload(self, situation: Situation) -> Tensor:
        before = situation.memory.get("model", situation.model)
        change = situation.model - before
        situation.memory["model"] = situation.model.clone()
        if not change.any():
            return uniform_noise(situation.update, situation.generator)
        if self.noise:
            drawn = torch.randn(change.shape, generator=situation.generator, dtype=change.dtype).to(change.device)
            change += self.noise * change.norm() / change.numel() ** 0.5 * drawn
        return change


class Imitation(Adversary):
    r"""Trains, but uploads mostly its last download, so that its contribution looks larger.

    After ACE (Xu et al., USENIX Security 2024, https://arxiv.org/abs/2405.20975), which predicts the next global update
    from past ones and sends it for its own; here the guess is the last download d, made as long as the own update u:

    .. math::
        (1 - \lambda) \, u + \lambda \, \frac{\|u\|}{\|d\|} \, d

    Without a download it uploads its update.

    Args:
        share: :math:`\lambda`, the guess's share of the upload; 0 is honest.

    Raises:
        UserError: If `share` does not lie in [0, 1].
    """

    keeps_download: ClassVar[bool] = True

    def __init__(self, *, share: float = 0.8) -> None:
        check_share(self._option("share"), share, "0 is honest")
        self.share = share

    def upload(self, situation: Situation) -> Tensor:
        update, download = situation.update, situation.download
        if download is None or not download.any():
            return update
        mixed: Tensor = (1 - self.share) * update + (self.share * update.norm() / download.norm()) * download
        return mixed
