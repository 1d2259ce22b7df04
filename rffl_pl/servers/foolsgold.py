"""FoolsGold (Fung et al. 2020, https://arxiv.org/abs/1808.04866)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rffl_pl.errors import check_positive
from rffl_pl.functional.aggregation import foolsgold_weights
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class FoolsGold(Consensus):
    r"""Weights uploads by how little their accumulated direction resembles anybody else's.

    :math:`H_i \leftarrow H_i + u_i / \max(1, \|u_i\|)` by participant, weights
    `rffl_pl.functional.aggregation.foolsgold_weights`, and :math:`w \leftarrow w + \sum_i a_i u_i / \sum_i a_i`.

    Uploads are shortened as in the authors' code. All entries count alike: the paper's Algorithm 1 weighs them by how
    much they tell of the output.

    Args:
        confidence: :math:`\kappa` of the logit.
        scale: ``mean`` as above; ``sum`` leaves out the division, as the official code does: :math:`\sum_i a_i`
            times longer steps, at most P.

    Raises:
        UserError: If `confidence` is no positive number.

    Where all directions are equal, or no weight is left, everybody weighs the same (a warning, once). The histories are
    as large as all uploads together, by definition. Where members miss rounds, histories differ in length, and only
    those of whoever is asked in the same round are compared: Sybils who take turns are not seen.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model", "history")

    def __init__(self, *, confidence: float = 1.0, scale: Literal["mean", "sum"] = "mean") -> None:
        super().__init__()
        check_positive("--server.confidence", confidence, "the paper takes 1")
        self.confidence, self.scale = confidence, scale
        self.steps_by_updates = scale == "mean"
        self.history: dict[int, Tensor] = {}
        self._warned = False

    def start(self, task: Task) -> None:
        super().start(task)
        self.history, self._warned = {}, False

    def weigh(self, evidence: Evidence) -> Tensor:
        senders = evidence.senders.tolist()
        lengths = evidence.squared_norms.sqrt().clamp_min(1).tolist()
        for participant, upload, length in zip(senders, evidence.uploads, lengths, strict=True):
            past = self.history.get(participant)
            self.history[participant] = upload / length if past is None else past.to(upload.device) + upload / length
        weights = foolsgold_weights(evidence.gram_of([self.history[i] for i in senders]), self.confidence)
        if weights is None or not weights.sum() > 0:
            if not self._warned:
                warnings.warn(
                    f"Round {self.round + 1}: FoolsGold cannot tell uploads apart; all weigh the same.", stacklevel=2
                )
                self._warned = True
            weights = torch.ones(len(senders), dtype=torch.float64)
        return weights / weights.sum() if self.scale == "mean" else weights

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"history": dict(self.history)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.history = dict(state["history"])
