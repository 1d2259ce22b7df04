"""Robust and Fair Federated Learning (Xu & Lyu 2021, https://arxiv.org/abs/2011.10464, Algorithm 1)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional import reputation, sparsify
from rffl_pl.servers.base import Server, Task, Verdict


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """The switches of RFFL that paper and released code set differently."""

    clip: bool
    normalise: bool
    first_weights: Literal["examples", "uniform"]
    threshold: Literal["members", "participants"]
    removal_from: int
    quota: Literal["layer", "vector"]
    altruism: bool
    subtract_own: bool


_RELEASED: dict[str, Any] = {
    "clip": True,
    "normalise": False,
    "first_weights": "examples",
    "threshold": "members",
    "removal_from": 10,
    "quota": "layer",
    "altruism": False,
    "subtract_own": False,
}
_PAPER: dict[str, Any] = {
    "clip": False,
    "normalise": True,
    "first_weights": "uniform",
    "threshold": "participants",
    "removal_from": 0,
    "quota": "vector",
    "altruism": False,
    "subtract_own": True,
}
_PRESETS = {"released": _RELEASED, "paper": _PAPER, "altruism": {**_RELEASED, "altruism": True}}


class RFFL(Server):
    r"""Reputation-weighted aggregation, removal, and downloads that are sparse in proportion to reputation.

    One round over the members R, with last round's reputations :math:`r`:

    .. math::
        \Delta_g = \sum_{i \in R} r_i \Delta_i, \quad
        r_i \leftarrow \alpha r_i + (1 - \alpha) \cos(\Delta_g, \Delta_i), \quad
        r \leftarrow r / \sum_R r, \quad
        q_i = r_i / \max_j r_j

    then whoever is below the threshold leaves R for ever, and participant i downloads the share :math:`q_i` of the
    entries of :math:`\Delta_g` that are largest in magnitude.

    The text and the authors' code differ; `preset` chooses, and every switch below overrides it (None: as the preset
    says). `released` reproduces the tables.

    Args:
        gamma: Norm bound :math:`\gamma` of uploads: 0.5 for MNIST, 0.15 for CIFAR-10, 1 for text.
        alpha: Weight :math:`\alpha` of the past in the moving average.
        preset: ``released``, the authors' code; ``paper``, Algorithm 1; ``altruism``, `released` with quotas
            :math:`\tanh(2 q_i) / \tanh(2)` as named in the code's public issue #4.
        clip: Clip uploads to norm :math:`\gamma` before they are sent and applied (released: yes, paper: no).
        normalise: Scale every upload to norm :math:`\gamma` in the aggregate, Eq. 1 (released: no, paper: yes).
        first_weights: Weights of the first round: shard sizes, with reputations that start at 0 (``examples``,
            released), or 1/P for both (``uniform``, paper).
        threshold: Removal below 1/(3|R|) with R before the round's removals (``members``, released), or below 1/(3P)
            (``participants``, paper, which writes N; a server cannot tell the honest from the others).
        removal_from: First round, counted from 0, in which anyone is removed (released: 10, paper: 0), or ``never``.
        quota: Cut the aggregate inside every layer, rounding up (``layer``, released), or over the whole vector,
            rounding down (``vector``, paper).
        altruism: Raise the quotas by the tanh above.
        subtract_own: Subtract :math:`r_i \Delta_i` from the download of i, which makes it dense (released: no,
            paper: yes).

    Raises:
        UserError: If `gamma` is not positive, `alpha` not in [0, 1] or `removal_from` negative.

    Undefined cases: where no positive sum of reputations is left, the last valid ones stay (a warning, once); an
    upload of zeros has similarity 0; one with a NaN or an infinity has similarity 0 and weight 0; without members
    everybody trains alone.
    """

    def __init__(
        self,
        *,
        gamma: float = 0.5,
        alpha: float = 0.95,
        preset: Literal["released", "paper", "altruism"] = "released",
        clip: bool | None = None,
        normalise: bool | None = None,
        first_weights: Literal["examples", "uniform"] | None = None,
        threshold: Literal["members", "participants"] | None = None,
        removal_from: int | Literal["never"] | None = None,
        quota: Literal["layer", "vector"] | None = None,
        altruism: bool | None = None,
        subtract_own: bool | None = None,
    ) -> None:
        super().__init__()
        if not gamma > 0:
            raise UserError(f"Expected --server.gamma to be positive, but got {gamma}; MNIST takes 0.5.")
        if not 0 <= alpha <= 1:
            raise UserError(f"Expected --server.alpha to lie in [0, 1], but got {alpha}; the paper takes 0.95.")
        if isinstance(removal_from, int) and removal_from < 0:
            raise UserError(f"Expected --server.removal_from to be a round from 0 on or never, but got {removal_from}.")
        chosen = {
            "clip": clip,
            "normalise": normalise,
            "first_weights": first_weights,
            "threshold": threshold,
            "removal_from": None if removal_from == "never" else removal_from,
            "quota": quota,
            "altruism": altruism,
            "subtract_own": subtract_own,
        }
        self.gamma, self.alpha = gamma, alpha
        self.removes = removal_from != "never"
        self.steps = _Steps(**_PRESETS[preset] | {name: value for name, value in chosen.items() if value is not None})
        self.reputations: Tensor | None = None  # None before the first round
        self._warned: set[str] = set()

    def start(self, task: Task) -> None:
        super().start(task)
        self.reputations = None

    def outgoing(self, updates: Tensor, memories: Sequence[dict[str, Tensor]]) -> Tensor:
        return self.kept(updates)

    def kept(self, updates: Tensor) -> Tensor:
        return reputation.clip(updates, self.gamma) if self.steps.clip else updates

    def rule(self, uploads: Tensor, senders: Tensor, sound: Tensor) -> Verdict:
        weights = self._weights()
        row_weights = torch.where(sound, weights[senders], 0.0)
        scale = (
            reputation.unit_scale(uploads, self.gamma).cpu() if self.steps.normalise else torch.ones_like(row_weights)
        )
        aggregate = reputation.weighted_sum(uploads, torch.where(sound, row_weights * scale, 0.0).to(uploads.device))
        cosines = torch.where(sound, reputation.cosine_to(uploads, aggregate).cpu(), 0.0)

        updated = self._updated(weights, senders, cosines)
        members, updated = self._remove(updated)
        if not members.any():
            self._warn_once("every participant has been removed: from now on everybody trains alone")
        self.reputations = updated
        quotas = self._quotas(updated, members)
        ranks = sparsify.magnitude_ranks(aggregate, self._groups(aggregate))
        own = {int(i): uploads[row] for row, i in enumerate(senders) if sound[row]}

        def download(participant: int) -> Tensor:
            groups = self._groups(aggregate)
            if not members[participant]:
                return torch.zeros_like(aggregate)
            counts = sparsify.group_counts(float(quotas[participant]), groups, round_up=self.steps.quota == "layer")
            kept = sparsify.keep_largest(aggregate, ranks, counts, groups)
            if self.steps.subtract_own and participant in own:
                kept -= float(weights[participant]) * own[participant]
            return kept

        everyone = torch.zeros_like(weights)
        return Verdict(
            weights=everyone.scatter(0, senders, row_weights),
            similarities=torch.full_like(weights, torch.nan).scatter(0, senders, cosines),
            reputations=updated,
            quotas=quotas,
            members=members,
            download=download,
        )

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"reputations": self.reputations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.reputations = state["reputations"]

    def _weights(self) -> Tensor:
        """Last round's reputations, or the weights that stand for them in the first round, ``[P]``."""
        if self.reputations is not None:
            return self.reputations
        if self.steps.first_weights == "examples":
            return self.examples / self.examples.sum()
        return torch.full_like(self.examples, 1 / len(self.examples))

    def _updated(self, weights: Tensor, senders: Tensor, cosines: Tensor) -> Tensor:
        """Reputations after the moving average, normalised over the members, ``[P]``."""
        starts_at_zero = self.reputations is None and self.steps.first_weights == "examples"
        previous = torch.zeros_like(weights) if starts_at_zero else weights
        similarities = torch.zeros_like(weights).scatter(0, senders, cosines)  # 0 for a member that did not send
        averaged = reputation.moving_average(previous, similarities, self.alpha) * self.members
        normalised = reputation.normalise(averaged)
        if normalised is None:
            if self.members.any():
                self._warn_once("no positive sum of reputations is left: the last valid ones stay")
            return weights * self.members
        return normalised

    def _remove(self, reputations: Tensor) -> tuple[Tensor, Tensor]:
        """Members and reputations after this round's removals."""
        size = int(self.members.sum()) if self.steps.threshold == "members" else len(self.members)
        if not self.removes or self.round < self.steps.removal_from or size == 0:
            return self.members, reputations
        members = self.members & (reputations >= 1 / (3 * size))
        left = reputations * members
        normalised = reputation.normalise(left)
        return members, left if normalised is None else normalised

    def _quotas(self, reputations: Tensor, members: Tensor) -> Tensor:
        quotas = reputation.relative_quota(reputations * members)
        quotas = reputation.altruistic(quotas) if self.steps.altruism else quotas
        # Equal reputations differ by the rounding of a single-precision aggregate; that must not cost an entry.
        return torch.where(quotas > 0.5, quotas.round(decimals=7), quotas)

    def _groups(self, aggregate: Tensor) -> list[int]:
        return list(self.layers) if self.steps.quota == "layer" else [aggregate.numel()]

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(f"Round {self.round}: {message}.", stacklevel=2)
