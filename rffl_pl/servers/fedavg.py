"""Federated averaging (McMahan et al. 2017, https://arxiv.org/abs/1602.05629)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import Tensor

from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class FedAvg(Consensus):
    r"""The mean of the uploads, each weighted by its sender's number of examples.

    :math:`w \leftarrow w + \sum_i p_i u_i` with :math:`p_i = n_i / \sum_j n_j` over this round's uploads.

    Args:
        variant: ``fedavg``; or ``released``, what the authors of RFFL ran under this name: everybody adds the aggregate
            on top of its own update, :math:`w_i \leftarrow w_i + u_i + \sum_j p_j u_j`.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def __init__(self, *, variant: Literal["fedavg", "released"] = "fedavg") -> None:
        super().__init__()
        self.variant = variant

    def start(self, task: Task) -> None:
        super().start(task)
        if self.variant == "released":
            self.model = None  # everybody has its own

    def kept(self, update: Tensor) -> Tensor:
        return update if self.variant == "released" else super().kept(update)

    def weigh(self, evidence: Evidence) -> Tensor:
        return evidence.examples / evidence.examples.sum()
