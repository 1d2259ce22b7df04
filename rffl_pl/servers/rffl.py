"""Robust and Fair Federated Learning (Xu & Lyu 2021, https://arxiv.org/abs/2011.10464, Algorithm 1)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rffl_pl.errors import UserError, check_share
from rffl_pl.functional import contribution, reputation
from rffl_pl.functional.rounding import tells_nothing
from rffl_pl.servers.base import Server, Task, Verdict
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.rewards import largest_parts
from rffl_pl.servers.switches import Switches
from rffl_pl.servers.trust import Trust


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
    says). `released` reproduces the tables. `guarded` is for a federation of one's own: the others pay adversaries, and
    may remove every honest participant in place of one (``docs/takeover.md`` has the measurements).

    Args:
        gamma: Norm bound :math:`\gamma` of uploads: 0.5 for MNIST, 0.15 for CIFAR-10, 1 for text.
        alpha: Weight :math:`\alpha` of the past in the moving average.
        preset: ``released``, the authors' code; ``paper``, Algorithm 1; ``altruism``, `released` with quotas
            :math:`\tanh(2 q_i) / \tanh(2)` as named in the code's public issue #4; ``guarded``, `released` with lengths
            normalised, uniform first weights, removal from the first round and all guards below but ``earned``.
        clip: Clip uploads to norm :math:`\gamma` before they are sent and applied (released: yes, paper: no).
        normalise: Scale every upload to norm :math:`\gamma` in the aggregate, Eq. 1 (released: no, paper: yes).
        first_weights: Weights of the first round: shard sizes, with reputations that start at 0 (``examples``,
            released), or 1/P for both (``uniform``, paper).
        threshold: Removal below 1/(3|R|) with R before the round's removals (``members``, released), or below 1/(3P)
            (``participants``, paper, which writes N; a server cannot tell the honest from the others).
        removal_from: First round, counted from 0, in which anyone is removed (released: 10, paper: 0), or ``never``.
            In the first two, or three, one upload that cannot be computed with is enough where reputations start at 0.
        quota: Cut the aggregate inside every layer, rounding up (``layer``, released), or over the whole vector,
            rounding down (``vector``, paper).
        altruism: Raise the quotas by the tanh above, after all that the guards allow.
        subtract_own: Subtract :math:`r_i \Delta_i` from the download of i, which makes it dense (released: no,
            paper: yes); from that of a quota of 0 too, so that whoever the guards hold back goes against its own step.
        similarity: Cosine to the aggregate, in which one's own upload counts (``own_included``), or to the aggregate of
            the others, :math:`\cos(\Delta_i, \Delta_g - r_i \Delta_i)` at the lengths at which uploads enter the
            aggregate (``leave_one_out``, guarded), which is 0 for noise however long or heavy it is
            (`rffl_pl.functional.contribution.leave_out`).
        duplicates: Whether uploads that repeat each other count ``each`` or together ``once`` (guarded): their weights
            are divided by their number, and with ``leave_one_out`` they are left out of each other's similarity.
        probation: Nobody downloads before so many rounds with an upload of its own, the present one among them, and
            before the others' uploads have confirmed it (`rffl_pl.servers.trust.Confirmations`); 0 asks for neither
            (guarded: 1).
        confirmed_by: By which share of the others: a third if None. Then the honest are enough for one another beside
            nearly twice as many adversaries, but clones that differ are as well from about half as many as the honest
            on. With 0.5 no minority confirms itself; of a majority, clones that differ have all honest removed.
        removal_confidence: Remove only whose contribution of late, relative to the mean member's, is below a tenth with
            this confidence (`rffl_pl.servers.trust.Contributions`; guarded: 0.999), whatever `threshold` says; or
            ``off``. Members below a tenth download nothing; with `probation`, one that was once confirmed is removed
            only if the bound is below minus a half.
        short_memory: Weight of the past in a second, faster average of similarities: a quota is at most what that would
            give, so that reputation earned long ago pays for nothing (guarded: 0.5), or ``off``. With it, whoever has
            told nothing in more rounds than it was scored in downloads nothing.
        earned: Quotas are at most one's similarities, negative ones as 0, added up since the beginning over the
            largest such sum, so that nobody is paid ahead of what it contributed.

    Raises:
        UserError: If `gamma` is not positive, or infinite where lengths are normalised, `alpha` not in [0, 1] or 1
            where reputations start at 0, `removal_from` or `probation` negative, `confirmed_by` not in (0, 1] or given
            without `probation`, `removal_confidence` not between 0.5 and 1, or `short_memory` not in [0, 1).

    The guards need the inner products of all uploads, :math:`m^2 D` operations in place of :math:`m D`, twice while a
    sender is not confirmed; a checkpoint has 2 P numbers for each member that is not.

    Undefined cases: where negative reputations leave a sum of less than a tenth of all their magnitudes, the last valid
    ones stay (a warning, once); an upload with a NaN or an infinity, or of zeros from whoever never told anything, has
    similarity 0 and weight 0, and neither confirms nor denies anybody; without members everybody trains alone.

    Late rounds: an update at the level of rounding of its own model (`rffl_pl.functional.rounding`) is sent as zeros.
    It tells nothing: whoever told something before is not scored and keeps its reputation and, within `short_memory`,
    its downloads. Where nobody's upload tells anything the round changes nothing (a warning, once); with
    ``leave_one_out`` nor does one in which a single upload does, or duplicates alone: there is no other to be like.

    Participants clip their own updates; an upload that is longer than :math:`\gamma` all the same is clipped here.

    Where members miss rounds (``--federation.participation``), whoever is not asked keeps its reputation exactly, and
    the scored share the mass that they had before; reputations start at the weights of the first round, the weights of
    a round are renormalised over those that are asked, and a round counts towards `removal_from` for whoever was scored
    in it.
    """

    by_coordinate: ClassVar[Sequence[str]] = ()

    def __init__(
        self,
        *,
        gamma: float = 0.5,
        alpha: float = 0.95,
        preset: Literal["released", "paper", "altruism", "guarded"] = "released",
        clip: bool | None = None,
        normalise: bool | None = None,
        first_weights: Literal["examples", "uniform"] | None = None,
        threshold: Literal["members", "participants"] | None = None,
        removal_from: int | Literal["never"] | None = None,
        quota: Literal["layer", "vector"] | None = None,
        altruism: bool | None = None,
        subtract_own: bool | None = None,
        similarity: Literal["own_included", "leave_one_out"] | None = None,
        duplicates: Literal["each", "once"] | None = None,
        probation: int | None = None,
        confirmed_by: float | None = None,
        removal_confidence: float | Literal["off"] | None = None,
        short_memory: float | Literal["off"] | None = None,
        earned: bool | None = None,
    ) -> None:
        super().__init__()
        if not gamma > 0:
            raise UserError(f"Expected --server.gamma to be positive, but got {gamma}; MNIST takes 0.5.")
        check_share("--server.alpha", alpha, "the paper takes 0.95")
        self.gamma, self.alpha = gamma, alpha
        self.switches = Switches.of(
            preset,
            clip=clip,
            normalise=normalise,
            first_weights=first_weights,
            threshold=threshold,
            removal_from=removal_from,
            quota=quota,
            altruism=altruism,
            subtract_own=subtract_own,
            similarity=similarity,
            duplicates=duplicates,
            probation=probation,
            confirmed_by=confirmed_by,
            removal_confidence=removal_confidence,
            short_memory=short_memory,
            earned=earned,
        )
        if alpha == 1 and self.switches.first_weights == "examples":
            raise UserError(
                "Expected --server.alpha below 1 with --server.first_weights examples, where reputations start at 0 "
                "and would stay there, but got 1; the paper takes 0.95."
            )
        self.steps_by_updates = not self.switches.subtract_own
        if self.switches.normalise and gamma == float("inf"):
            raise UserError("Expected --server.gamma to be finite where lengths are normalised, but got inf.")
        self.trust = Trust(self.switches, 0)
        self.reputations: Tensor | None = None  # None before the first round, unless members miss rounds
        self.told = torch.empty(0, dtype=torch.bool)  # who has ever sent anything but zeros
        self.times_scored = torch.empty(0, dtype=torch.int64)
        self._warned: set[str] = set()

    def start(self, task: Task) -> None:
        super().start(task)
        self.reputations = self._first_weights() if task.participation < 1 else None
        self.trust = Trust(self.switches, len(self.members))
        self.told = torch.zeros_like(self.members)
        self.times_scored = torch.zeros(len(self.members), dtype=torch.int64)
        self._warned.clear()
        if self.switches.similarity == "leave_one_out" and task.participation < 1 and task.asked < 3:
            self._warn_once(
                f"--federation.participation asks {task.asked} in a round: who is compared with one other, or none, "
                "cannot be told from a free-rider; ask three at least"
            )

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        return torch.zeros_like(update) if tells_nothing(update, model) else self.kept(update)

    def kept(self, update: Tensor) -> Tensor:
        return reputation.clip(update, self.gamma) if self.switches.clip else update

    def rule(self, evidence: Evidence) -> Verdict:
        senders, squares = evidence.senders, evidence.squared_norms
        weights = self._weights(evidence.asked)
        same = self._same(evidence)
        shares = weights[senders] / same.sum(1)
        terms = shares * self._scale(squares)
        similarities = torch.full_like(weights, torch.nan)
        similarities[evidence.asked] = 0.0  # where an upload is set aside, or zeros from the start
        resting = evidence.silent[self.told[evidence.silent]]
        similarities[resting] = torch.nan
        similarities[senders] = torch.nan
        if self._comparable(same):
            similarities[senders] = self._similarities(evidence, terms, same)
            self.trust.rest(resting)
        self.told = self.told.index_fill(0, senders, True)

        if self.trust.confirmations is not None and len(senders):
            if self.trust.confirmations.confirmed[senders].all():  # products that nobody asks for are not made
                self.trust.confirmations.count(senders)
            else:
                agreements = contribution.agreements(evidence.gram, evidence.gram_of_squares)
                self.trust.confirmations.add(senders, agreements, same)
        members, reputations, reasons = self.decide(weights, similarities)
        self.trust.forget(~members)
        quotas = self._quotas(reputations, members)
        shared = evidence.spread(shares, 0.0)
        return Verdict(
            weights=shared,
            similarities=similarities,
            reputations=reputations,
            quotas=quotas,
            members=members,
            download=self._download(evidence, terms, shared, torch.where(members, quotas, torch.nan)),
            reasons=reasons,
        )

    def decide(self, weights: Tensor, similarities: Tensor) -> tuple[Tensor, Tensor, dict[int, str]]:
        """Take a round's similarities into the reputations, and remove whoever falls below the threshold.

        Args:
            weights: Weights of the uploads in the aggregate, ``[P]``.
            similarities: ``[P]``, NaN for whoever is not scored.

        Returns:
            Members ``[P]``, reputations ``[P]``, and why whoever was removed was.
        """
        scored = self.members & ~similarities.isnan()
        self.trust.add(similarities, scored)
        updated = self._updated(weights, similarities, scored)
        judged = self._judged(scored)
        members = self.members & ~(judged & self._too_low(updated))
        self.times_scored = self.times_scored + scored
        kept = torch.where(members, updated, 0.0)
        self.reputations = self._left(kept, scored & members) if judged.any() else updated
        if not members.any():
            self._warn_once("every participant has been removed: from now on everybody trains alone")
        hint = _hint(similarities) if self.switches.similarity == "own_included" else ""
        reasons = {
            i: f"{self._why(i, updated)} (similarity {similarities[i]:.3f}, weight {weights[i]:.3f}).{hint}"
            for i in (self.members & ~members).nonzero().flatten().tolist()
        }
        return members, self.reputations, reasons

    def state_dict(self) -> dict[str, Any]:
        memory = {"reputations": self.reputations, "told": self.told, "times_scored": self.times_scored}
        return super().state_dict() | memory | {"trust": self.trust.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.reputations, self.told, self.times_scored = (
            state[name] for name in ("reputations", "told", "times_scored")
        )
        self.trust.load_state_dict(state.get("trust", {}))

    def _scale(self, squares: Tensor) -> Tensor:
        """What every upload is multiplied by, ``[m]``, from their squared norms."""
        if self.switches.normalise:
            return reputation.unit_scale(squares, self.gamma)
        if not self.switches.clip:
            return torch.ones_like(squares)
        # A participant's own clipping, in single precision, is not clipped again.
        excess = squares.sqrt() > self.gamma * 1.001
        return torch.where(excess, reputation.unit_scale(squares, self.gamma), 1.0)

    def _same(self, evidence: Evidence) -> Tensor:
        """Which uploads count as one, ``[m, m]`` bool; everyone as itself, ``[m, 1]`` if nobody asks more."""
        if self.switches.duplicates == "once":
            return contribution.duplicates(evidence.gram)
        count = len(evidence.senders)
        if self.switches.similarity == "own_included" and not self.switches.probation:
            return torch.ones(count, 1, dtype=torch.bool)
        return torch.eye(count, dtype=torch.bool)

    def _comparable(self, same: Tensor) -> bool:
        """Whether there is something to score uploads by; who alone still learns is not scored by what is not there."""
        return not same.all() if self.switches.similarity == "leave_one_out" else len(same) > 0

    def _similarities(self, evidence: Evidence, terms: Tensor, same: Tensor) -> Tensor:
        """Of every sender, ``[m]``: to the aggregate, or to what the others make of it."""
        if self.switches.similarity == "leave_one_out":
            return contribution.leave_out(evidence.gram, terms, same)
        return reputation.cosines(evidence.squared_norms, evidence.gram_times(terms), terms)

    def _judged(self, scored: Tensor) -> Tensor:
        """Who may be removed in this round, ``[P]`` bool."""
        first = self.switches.removal_from
        return torch.zeros_like(scored) if first == "never" else scored & (self.times_scored >= first)

    def _too_low(self, updated: Tensor) -> Tensor:
        """Whose reputation is below the threshold, or whose contribution surely is, ``[P]`` bool."""
        if self.trust.contributions is None:
            return updated < self._threshold()
        return self.trust.contributions.bound()[1] < self.trust.limits()

    def _why(self, participant: int, updated: Tensor) -> str:
        if self.trust.contributions is None:
            return f"its reputation {updated[participant]:.4f} fell below the threshold {self._threshold():.4f}"
        contributed, bound = (values[participant] for values in self.trust.contributions.bound())
        return (
            f"it contributed {contributed:.3f} of what the mean member does, at most {bound:.3f} with a confidence of "
            f"{self.switches.removal_confidence}, and less than {self.trust.limits()[participant]:g} is too little"
        )

    def _first_weights(self) -> Tensor:
        if self.switches.first_weights == "examples":
            return self.examples / self.examples.sum()
        return torch.full_like(self.examples, 1 / len(self.examples))

    def _weights(self, asked: Tensor) -> Tensor:
        """Last round's reputations, or what stands for them in the first round, over those who are asked, ``[P]``."""
        weights = self._first_weights() if self.reputations is None else self.reputations
        here = torch.zeros_like(self.members).scatter(0, asked, True)
        mass = reputation.total(weights[here]) if (self.members & ~here).any() else None
        return weights if mass is None else weights / mass

    def _updated(self, weights: Tensor, similarities: Tensor, scored: Tensor) -> Tensor:
        """Reputations ``[P]`` after the moving average, shared out among the scored."""
        last = weights if self.reputations is None else self.reputations
        if not scored.any():
            if self.members.any():
                few = "nobody's upload" if self.switches.similarity == "own_included" else "one upload at most"
                self._warn_once(f"{few} tells anything: rounds like this one change nothing")
            return last * self.members
        starts_at_zero = self.reputations is None and self.switches.first_weights == "examples"
        previous = torch.zeros_like(last) if starts_at_zero else last
        averaged = reputation.moving_average(previous, similarities.nan_to_num(0.0), self.alpha)
        shared = reputation.share_out(torch.where(scored, averaged, previous) * self.members, scored)
        if shared is None:
            self._warn_once("next to no positive sum of reputations is left: the last valid ones stay")
            return last * self.members
        return shared

    @staticmethod
    def _left(reputations: Tensor, scored: Tensor) -> Tensor:
        """Reputations ``[P]`` after removals: what the removed had goes to the scored, without any to all others."""
        for heirs in (scored, reputations != 0):
            if (shared := reputation.share_out(reputations, heirs)) is not None:
                return shared
        return reputations

    def _threshold(self) -> float:
        size = int(self.members.sum()) if self.switches.threshold == "members" else len(self.members)
        return 1 / (3 * max(size, 1))

    def _quotas(self, reputations: Tensor, members: Tensor) -> Tensor:
        quotas = reputation.relative_quota(reputations * members)
        quotas = self.trust.capped(quotas, members, self.times_scored)
        return reputation.settled(reputation.altruistic(quotas) if self.switches.altruism else quotas)

    def _download(self, evidence: Evidence, terms: Tensor, weights: Tensor, quotas: Tensor) -> Callable[[int], Tensor]:
        """What cuts the aggregate to each participant's quota, ``[P]``; NaN for whoever is no member."""
        aggregate = evidence.combined(reputation.weighted_sum, terms)
        groups = list(self.layers) if self.switches.quota == "layer" else [evidence.dimension]
        cut = largest_parts(aggregate, quotas, groups, self.coordinates, round_up=self.switches.quota == "layer")
        if not self.switches.subtract_own:
            return cut
        own = dict(zip(evidence.senders.tolist(), evidence.uploads, strict=True))

        def download(participant: int) -> Tensor:
            kept = cut(participant)
            if participant in own and not quotas[participant].isnan():
                kept -= float(weights[participant]) * own[participant]
            return kept

        return download

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(f"Round {self.round + 1}: {message}.", stacklevel=2)


def _hint(similarities: Tensor) -> str:
    r"""Why somebody honest may be removed, where that is so; by similarities to the whole aggregate.

    The squared cosines of orthogonal vectors to their sum add up to 1, those of m like ones to m; where one of them
    has it all, the sum is its vector.
    """
    similarities = similarities.nan_to_num(0.0)
    total = float(similarities.square().sum())
    if not total < 1.2:
        return ""
    if float(similarities.max()) > 0.9:
        return (
            f" The aggregate is almost participant {int(similarities.argmax())}'s upload alone: whoever uploads at "
            "full length while the others' updates shrink takes over, a free-rider too. --server.preset guarded keeps "
            "everybody from it."
        )
    return (
        f" The uploads are almost orthogonal (squared similarities add up to {total:.2f}), as with word embeddings: an "
        "upload is then like the aggregate only by its own weight in it, and whoever began with few examples stays "
        "light. --server.removal_from never keeps everybody."
    )
