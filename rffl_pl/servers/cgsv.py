"""Cosine gradient Shapley value (Xu et al. 2021, https://openreview.net/forum?id=yRfsADObu18)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import check_positive, check_share
from rffl_pl.functional import reputation
from rffl_pl.servers.base import Server, Task, Verdict
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.rewards import largest_parts

_LEAST = 1e-3  # of a reputation before they are shared out, as in the authors' code


class CGSV(Server):
    r"""Every upload weighs, and is rewarded, by its cosine to what all uploads make; nobody is removed.

    "Gradient Driven Rewards to Guarantee Fairness in Collaborative Machine Learning": with last round's reputations
    :math:`r`, uploads :math:`u_i` scaled to length :math:`\Gamma`, and :math:`\Delta = \sum_i r_i u_i`:

    .. math::
        r_i \leftarrow \max(\alpha r_i + (1 - \alpha) \cos(u_i, \Delta), 10^{-3}), \quad
        r \leftarrow r / \sum_j r_j, \quad
        q_i = \tanh(\beta r_i) / \max_j \tanh(\beta r_j)

    :math:`\cos(u_i, \Delta)` stands for the Shapley value of i in the game whose worth is the cosine to
    :math:`\Delta`. Participant i keeps nothing of its own update and downloads, of every layer of n entries, the
    :math:`\lceil n q_i \rceil` of :math:`\Delta` that are largest in magnitude. In the first round uploads weigh
    by shard sizes, and reputations start at 0.

    Args:
        gamma: Length :math:`\Gamma` of uploads in the aggregate: 0.5 for MNIST, 0.15 for CIFAR-10, 1 for text.
        alpha: Weight :math:`\alpha` of the past in the moving average.
        altruism_degree: :math:`\beta`: the larger, the more equal the downloads; the paper takes 0.5 to 2, and
            :math:`10^7` to send everybody everything.

    Raises:
        UserError: If `gamma` or `altruism_degree` is not positive and finite, or `alpha` not in [0, 1].

    Where members miss rounds, whoever is not asked keeps its reputation and the asked share the mass that they had
    before; reputations start at the weights of the first round.

    Layers, rounding up, the least reputation and the weights of the first round are the authors' code; the paper cuts
    the whole vector and rounds down. From the code this differs in one place: of a layer it never sends more than all
    entries but one, and with them whatever equals the last of these.
    """

    by_coordinate: ClassVar[Sequence[str]] = ()

    def __init__(self, *, gamma: float = 0.5, alpha: float = 0.95, altruism_degree: float = 1.0) -> None:
        super().__init__()
        check_positive("--server.gamma", gamma)
        check_positive("--server.altruism_degree", altruism_degree)
        check_share("--server.alpha", alpha, "the paper takes 0.95")
        self.gamma, self.alpha, self.altruism_degree = gamma, alpha, altruism_degree
        self.reputations: Tensor | None = None  # None before the first round, unless members miss rounds

    def start(self, task: Task) -> None:
        super().start(task)
        self.reputations = self._first_weights() if task.participation < 1 else None

    def kept(self, update: Tensor) -> Tensor:
        return torch.zeros_like(update)

    def rule(self, evidence: Evidence) -> Verdict:
        senders, squares = evidence.senders, evidence.squared_norms
        weights = self._weights(evidence.asked)
        terms = weights[senders] * reputation.unit_scale(squares, self.gamma)
        similarities = torch.full_like(weights, torch.nan)
        similarities[evidence.asked] = 0.0  # where an upload is set aside, or zeros
        similarities[senders] = reputation.cosines(squares, evidence.gram_times(terms), terms)
        self.reputations = self._updated(similarities, ~similarities.isnan())
        raised = torch.tanh(self.altruism_degree * self.reputations)
        quotas = reputation.settled(reputation.relative_quota(raised))
        aggregate = evidence.combined(reputation.weighted_sum, terms)
        return Verdict(
            weights=evidence.spread(weights[senders], 0.0),
            similarities=similarities,
            reputations=self.reputations,
            quotas=quotas,
            members=self.members,
            download=largest_parts(aggregate, quotas, list(self.layers), self.coordinates, round_up=True),
        )

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"reputations": self.reputations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.reputations = state["reputations"]

    def _first_weights(self) -> Tensor:
        return self.examples / self.examples.sum()

    def _weights(self, asked: Tensor) -> Tensor:
        """Last round's reputations, or shares of examples in the first, over those who are asked, ``[P]``."""
        weights = self._first_weights() if self.reputations is None else self.reputations
        return weights / weights[asked].sum() if len(asked) < len(weights) else weights

    def _updated(self, similarities: Tensor, scored: Tensor) -> Tensor:
        """Reputations ``[P]`` after the moving average, shared out among the scored."""
        last = torch.zeros_like(similarities) if self.reputations is None else self.reputations
        averaged = reputation.moving_average(last, similarities.nan_to_num(0.0), self.alpha).clamp_min(_LEAST)
        shared = reputation.share_out(torch.where(scored, averaged, last), scored)
        return last if shared is None else shared
