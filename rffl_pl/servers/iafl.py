"""Incentive-aware rewards while training (Wu et al. 2024, https://openreview.net/forum?id=FlY7WQ2hWS)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import UserError, check_share
from rffl_pl.functional.reputation import weighted_sum
from rffl_pl.servers.base import Server, Task, Verdict
from rffl_pl.servers.coordinates import moved
from rffl_pl.servers.evidence import Evidence


class IAFL(Server):
    r"""Everybody is sent the mean of its own upload and of as many others as its contribution earns.

    "Incentive-Aware Federated Learning with Training-Time Model Rewards": with contributions :math:`p_i` and m uploads,

    .. math::
        \gamma_i = \Big(\frac{p_i}{\max_j p_j}\Big)^{1 - \kappa}, \quad
        n_i = \lceil \gamma_i (m - 1) \rceil, \quad
        w_i \leftarrow w_i + \frac{1}{n_i + 1} \Big(u_i + \sum_{j \in S_i} u_j\Big)

    with :math:`S_i` drawn anew in every round, :math:`n_i` of the others. A reference model takes the steps of whoever
    has the largest :math:`\gamma`; before every round each participant starts over from it with probability q, so that
    models that were sent little do not part from the others for good. Nobody is removed or scored.

    Args:
        contributions: :math:`p`, a positive number for every participant, adversaries too; by default their numbers of
            training examples, as in the authors' code. Accuracies of models that were trained alone are another.
        sharing: :math:`\kappa` in [0, 1]: 0 rewards in proportion, 1 sends everybody everything.
        recovery: q in [0, 1]. Above 0 the server keeps the reference model.

    Raises:
        UserError: If κ or q does not lie in [0, 1]; before the first round, if there is no positive and finite
            contribution for every participant.

    As in the authors' code, κ and q are 0 by default, and the largest contribution is worth everything. Where members
    miss rounds, there the absent are rewarded all the same; here nobody hears from them. An upload that is set aside or
    zeros is drawn by nobody. Every download is a mean of its own: for P participants that is :math:`P m D` operations.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("reference",)

    gives_all: bool = True

    def __init__(
        self, *, contributions: Sequence[float] | None = None, sharing: float = 0.0, recovery: float = 0.0
    ) -> None:
        super().__init__()
        check_share("--server.sharing", sharing)
        check_share("--server.recovery", recovery)
        self.contributions, self.sharing, self.recovery = contributions, sharing, recovery
        self.hands_models = recovery > 0
        self.reference: Tensor | None = None  # the model [d], where somebody may start over from it
        self._relative = torch.empty(0)

    def start(self, task: Task) -> None:
        super().start(task)
        told = self.examples if self.contributions is None else self._told(len(self.examples))
        self._relative = told / told.max()
        self.reference = task.initial.clone() if self.recovery > 0 else None

    def kept(self, update: Tensor) -> Tensor:
        return torch.zeros_like(update)

    def rule(self, evidence: Evidence) -> Verdict:
        rates = self._relative ** (1 - self.sharing)
        shares = self._drawn(evidence, rates)

        @lru_cache(maxsize=1)  # of neighbours that are sent everything
        def mean(used: tuple[float, ...]) -> Tensor:
            return evidence.combined(weighted_sum, torch.tensor(used, dtype=torch.float64))

        def download(participant: int) -> Tensor:
            return mean(tuple(shares[participant].tolist()))

        weights = torch.zeros_like(rates)
        if len(evidence.asked):
            first = int(evidence.asked[rates[evidence.asked].argmax()])
            weights = evidence.spread(shares[first], 0.0)
            if self.reference is not None:
                self.reference = moved(self.reference, download(first))
        return Verdict(
            weights=weights,
            similarities=torch.full_like(weights, torch.nan),
            reputations=self._relative,
            quotas=rates,
            members=self.members,
            download=download,
        )

    def model_for(self, participant: int) -> Tensor | None:
        starts_over = self._lot("recovery", self.round, participant).random() < self.recovery
        return self.reference if starts_over and self.round > 0 else None

    def state_dict(self) -> dict[str, Any]:
        kept = {} if self.reference is None else {"reference": self.reference.cpu()}
        return super().state_dict() | kept

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave.

        Raises:
            UserError: If there is a reference model here and was none there.
        """
        super().load_state_dict(state)
        if self.reference is not None and "reference" not in state:
            raise UserError(
                f"Expected --server.recovery 0, as in the checkpoint at --ckpt_path, which has no reference model, but "
                f"got {self.recovery}."
            )
        self.reference = state.get("reference") if self.recovery > 0 else None

    def _drawn(self, evidence: Evidence, rates: Tensor) -> Tensor:
        """The weight of every upload in what everybody is sent, ``[P, m]`` float64; nothing for who was not asked."""
        senders = evidence.senders.tolist()
        places = {sender: place for place, sender in enumerate(senders)}
        shares = torch.zeros(evidence.participants, len(senders), dtype=torch.float64)
        for i in evidence.asked.tolist():
            others = [sender for sender in senders if sender != i]
            # To nine decimals: 0.07 of 100 others are 7, not 8.
            count = math.ceil(round(float(rates[i]) * len(others), 9))
            chosen = self._lot("rewards", evidence.round, i).sample(others, count) + [i] * (i in places)
            if chosen:
                shares[i, [places[j] for j in chosen]] = 1 / len(chosen)
        return shares

    def _lot(self, what: str, number: int, participant: int) -> random.Random:
        """A participant's own lots in a round, the same on every rank that serves."""
        return random.Random(f"{self._task_seed} {what} {number} {participant}")

    def _told(self, participants: int) -> Tensor:
        told = torch.tensor(self.contributions, dtype=torch.float64)
        if len(told) != participants or not ((told > 0) & told.isfinite()).all():
            raise UserError(
                f"Expected --server.contributions to be a positive number for each of {participants} participants, "
                f"adversaries too, but got {list(self.contributions or ())}."
            )
        return told
