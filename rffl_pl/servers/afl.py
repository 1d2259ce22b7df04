"""Agnostic federated learning (Mohri, Sivek and Suresh 2019, https://arxiv.org/abs/1902.00146)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import check_not_negative
from rffl_pl.functional.aggregation import onto_simplex
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence

_MOST = 1e100


class AFL(Consensus):
    r"""Trains for the mixture of everybody's data on which the model is worst.

    With :math:`F_i` the mean loss of participant i's training examples before its local training:

    .. math::
        w \leftarrow w + \sum_i \lambda_i u_i, \qquad
        \lambda \leftarrow \Pi_\Delta(\lambda + \eta F)

    :math:`\lambda` is the mixture, at first :math:`\lambda_i = n_i / \sum_j n_j`, and :math:`\Pi_\Delta` the Euclidean
    projection onto the simplex: Algorithm 1 of the paper with the whole simplex for :math:`\Lambda`, the exact
    gradient F for the mixture, local training for the model's, and the last model for the mean of all. In float64.

    Where members miss rounds, or an upload is set aside, weights are the others' :math:`\lambda_i` over their sum; so
    they are moved and projected, and their sum stays: whoever was not heard keeps its :math:`\lambda_i`. Where the sum
    is 0 the step is 0, and nothing moves.

    Args:
        rate: :math:`\eta`, how fast the mixture turns to whoever has a high loss; 0 is the mean by examples.

    Raises:
        UserError: If `rate` is negative or not finite.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    hears_losses: ClassVar[bool] = True

    def __init__(self, *, rate: float = 0.1) -> None:
        super().__init__()
        check_not_negative("--server.rate", rate, "0 is the mean")
        self.rate = rate
        self.mixture = torch.empty(0, dtype=torch.float64)

    def start(self, task: Task) -> None:
        super().start(task)
        self.mixture = self.examples / self.examples.sum()

    def weigh(self, evidence: Evidence) -> Tensor:
        assert evidence.losses is not None
        here = self.mixture[evidence.senders]
        mass = here.sum()
        if not mass > 0:
            return here
        weights = here / mass
        # Bounded, so that sums are finite, whatever somebody reports: further apart than this nothing changes.
        moved = mass * onto_simplex(weights + (self.rate * evidence.losses).clamp(-_MOST, _MOST))
        self.mixture = self.mixture.scatter(0, evidence.senders, moved)
        return weights

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"mixture": self.mixture}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.mixture = state["mixture"]
