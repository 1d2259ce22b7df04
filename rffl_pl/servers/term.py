"""Tilted empirical risk minimisation (Li et al. 2021, https://openreview.net/forum?id=K5YasWXZT3O)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class TERM(Consensus):
    r"""Tilts the mean towards whoever has a high loss, or away from it.

    With :math:`F_i` the mean loss of participant i's training examples before its local training:

    .. math::
        w \leftarrow w + \frac{\sum_i n_i e^{t F_i} u_i}{\sum_i n_i e^{t F_i}}

    which goes down the tilted loss :math:`\frac{1}{t} \log \frac{1}{n} \sum_i n_i e^{t F_i}`, the paper's equation 4
    with participants for groups and no tilt within them, by local training for its gradient. In float64.

    Args:
        tilt: t. 0 is the mean by examples; the larger, the closer it comes to the participant with the highest loss
            alone; below 0 high losses count less, as of outliers.

    Raises:
        UserError: If `tilt` is not finite.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    hears_losses: ClassVar[bool] = True

    def __init__(self, *, tilt: float = 1.0) -> None:
        super().__init__()
        if not math.isfinite(tilt):
            raise UserError(f"Expected --server.tilt to be a finite number, but got {tilt}; 0 is the mean.")
        self.tilt = tilt

    def weigh(self, evidence: Evidence) -> Tensor:
        assert evidence.losses is not None
        most = torch.finfo(torch.float64).max / 4  # so that differences are finite, whatever somebody reports
        return (evidence.examples.log() + (self.tilt * evidence.losses).clamp(-most, most)).softmax(0)
