"""Coordinate-wise median (Yin et al. 2018, https://arxiv.org/abs/1803.01498)."""

from __future__ import annotations

import torch
from torch import Tensor

from rffl_pl.functional.aggregation import coordinate_median
from rffl_pl.servers.consensus import Consensus


class Median(Consensus):
    r""":math:`w_k \leftarrow w_k + \mathrm{median}_i u_{ik}`, unweighted; for even m the mean of the middle two."""

    def aggregate(self, uploads: Tensor, senders: Tensor) -> tuple[Tensor, Tensor]:
        return coordinate_median(uploads), torch.full((len(senders),), 1 / len(senders), dtype=torch.float64)
