"""Federated averaging (McMahan et al. 2017, https://arxiv.org/abs/1602.05629)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from rffl_pl.functional.reputation import weighted_sum
from rffl_pl.servers.consensus import Consensus


class FedAvg(Consensus):
    r""":math:`w \leftarrow w + \sum_i p_i u_i` with :math:`p_i = n_i / \sum_j n_j` over this round's uploads.

    Args:
        variant: ``fedavg``; or ``released``, what the authors of RFFL ran under this name: everybody adds the aggregate
            on top of its own update, :math:`w_i \leftarrow w_i + u_i + \sum_j p_j u_j`.
    """

    def __init__(self, *, variant: Literal["fedavg", "released"] = "fedavg") -> None:
        super().__init__()
        self.variant = variant

    def kept(self, updates: Tensor) -> Tensor:
        return updates if self.variant == "released" else super().kept(updates)

    def aggregate(self, uploads: Tensor, senders: Tensor) -> tuple[Tensor, Tensor]:
        weights = self.examples[senders] / self.examples[senders].sum()
        return weighted_sum(uploads, weights.to(uploads.device)), weights
