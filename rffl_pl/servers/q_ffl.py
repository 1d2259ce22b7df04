"""q-FFL by q-FedAvg (Li et al. 2020, https://openreview.net/forum?id=ByexElSYDr)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rffl_pl.errors import UserError, check_not_negative, check_positive, check_share
from rffl_pl.functional.aggregation import q_fair_weights
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class QFFL(Consensus):
    r"""Raises the weight of whoever still has a high loss.

    With :math:`F_i` the mean loss of participant i's training examples before its local training and
    :math:`L = 1/\eta`:

    .. math::
        w \leftarrow w + \frac{\sum_i p_i F_i^q u_i}{\sum_i p_i (q F_i^{q-1} L \|u_i\|^2 + F_i^q)}

    which are the paper's :math:`\Delta_i = F_i^q G_i` and :math:`h_i = q F_i^{q-1} \|G_i\|^2 + L F_i^q` of
    :math:`G_i = -L u_i`, divided by L. q = 0 is the mean. In float64, with :math:`10^{-10}` added to every loss; one
    below 0, which a loss of one's own may be, counts as 0, and for q below 1 leaves next to nothing of the step. Where
    members miss rounds, the sums go over those that are asked: a high loss is only heard when its owner is.

    Args:
        q: Degree of fairness, 0 or more; Xu & Lyu take 0.1.
        weights: ``full``, everybody counts with :math:`p_i = n_i / \sum_j n_j`; ``sampled``, as the official code
            does, participants are drawn with probability :math:`p_i` and then count the same (:math:`p_i = 1`).
        sampling_ratio: Share of the uploads drawn by ``sampled``, at least one; Xu & Lyu take 0.8.
        step_rate: :math:`\eta`, the learning rate tuned at q = 0; by default the participants' initial one, which says
            little under Adam and its like: theirs is a length per entry, and 1/L of it makes next to no step.

    Raises:
        UserError: If `q` is negative, `sampling_ratio` not in (0, 1] or `step_rate` not positive and finite.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    steps_by_updates = False

    hears_losses: ClassVar[bool] = True

    def __init__(
        self,
        *,
        q: float = 0.1,
        weights: Literal["full", "sampled"] = "full",
        sampling_ratio: float = 0.8,
        step_rate: float | None = None,
    ) -> None:
        super().__init__()
        check_not_negative("--server.q", q, "0 is the mean of all uploads")
        check_share("--server.sampling_ratio", sampling_ratio, within="(0, 1]")
        if step_rate is not None:
            check_positive("--server.step_rate", step_rate)
        self.q, self.weights, self.sampling_ratio, self.step_rate = q, weights, sampling_ratio, step_rate
        self._rate = 0.0

    def start(self, task: Task) -> None:
        super().start(task)
        self._rate = task.learning_rate if self.step_rate is None else self.step_rate
        if not self._rate > 0:
            raise UserError(
                f"Expected a positive learning rate for QFFL, whose L is its inverse, but --model.optimizer has "
                f"{self._rate}; give --server.step_rate."
            )
        if self.q > 0 and self.step_rate is None and task.optimizer != "SGD":
            warnings.warn(
                f"QFFL's L is 1/{self._rate:g} of {task.optimizer}'s learning rate, which multiplies no gradient: its "
                "steps may come to next to nothing; --server.step_rate 0.1 is nearer to a rate of SGD.",
                stacklevel=2,
            )

    def weigh(self, evidence: Evidence) -> Tensor:
        assert evidence.losses is not None
        shares = evidence.examples if self.weights == "full" else self._drawn(evidence)
        return q_fair_weights(evidence.losses, evidence.squared_norms, shares, self.q, 1 / self._rate)

    def _drawn(self, evidence: Evidence) -> Tensor:
        """1 for whoever is drawn in this round, 0 for the others."""
        count = max(1, round(self.sampling_ratio * len(evidence.examples)))
        drawn = torch.multinomial(evidence.examples, count, generator=self._stream_of_round(evidence.round))
        return torch.zeros_like(evidence.examples).scatter(0, drawn, 1.0)
