"""What a guarded server remembers of its participants: contributions with an interval, and who confirms whom."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.functional import contribution
from rffl_pl.functional.reputation import moving_average, relative_quota
from rffl_pl.servers.switches import Switches


class Contributions:
    r"""How similar everybody's uploads have been, relative to the mean of those who were scored.

    With similarities :math:`\tilde r_i^t` and their mean :math:`m^t` over the scored of a round:

    .. math::
        b_i = \frac{\sum_t 0.9^{T - t} \, \tilde r_i^t}{\sum_t 0.9^{T - t} \, m^t}

    over the rounds in which i was scored: 1 for the average member, 0 for noise. A round whose mean is small, late in a
    run, hardly moves it; one whose mean is not positive tells nothing and is left out.

    Args:
        participants: P.
        confidence: Of the upper bound.
    """

    least: ClassVar[float] = 0.1
    """Whose upper bound is below this contributes too little: twelve examples among hundreds measured 0.2."""
    against: ClassVar[float] = -0.5
    """Whose upper bound is below this works against the others. A shard that its owner has learnt by heart does not:
    what the others send draws its model away, and its updates back, which measured -0.2."""
    memory: ClassVar[float] = 0.9
    """Weight of the past per round."""

    def __init__(self, participants: int, confidence: float) -> None:
        self.confidence = confidence
        self.sums = torch.zeros(2, participants, dtype=torch.float64)
        self.squares = torch.zeros(3, participants, dtype=torch.float64)
        self.weights = torch.zeros(2, participants, dtype=torch.float64)

    def add(self, similarities: Tensor, scored: Tensor) -> None:
        """Take in the similarities ``[P]`` of a round; ``scored`` says whose count."""
        own = torch.where(scored, similarities, 0.0)
        mean = own.sum() / scored.sum()
        if not mean > 0:
            return
        mean = mean.expand_as(own)
        ones = torch.ones_like(own)
        self.sums = torch.where(scored, self.memory * self.sums + torch.stack([own, mean]), self.sums)
        products = torch.stack([own.square(), own * mean, mean.square()])
        self.squares = torch.where(scored, self.memory**2 * self.squares + products, self.squares)
        faded = torch.tensor([[self.memory], [self.memory**2]], dtype=torch.float64) * self.weights
        self.weights = torch.where(scored, faded + torch.stack([ones, ones]), self.weights)

    def bound(self) -> tuple[Tensor, Tensor]:
        """Everybody's contribution so far, NaN before the first round, and its upper bound; ``[P]`` each."""
        return contribution.ratio_bound(self.sums, self.squares, self.weights, self.confidence)


class Confirmations:
    r"""Whom the others' uploads have confirmed: once, and for good.

    Two participants agree when the sum of their `rffl_pl.functional.contribution.agreements` over the n rounds in which
    both sent, those in which they were duplicates as 0, divided by :math:`\sqrt n`, exceeds the normal quantile of the
    confidence. Whoever agrees with at least a share of the others is confirmed; duplicates of its own upload do not
    count, and those of another count as one. With a share f, n who agree with each other are confirmed among P where
    :math:`n - 1 \ge f (P - 1)`.

    The confidence is that of one look at one pair, for noise that is new in every round. Over the rounds, and where one
    other is enough, more noise is confirmed: of free-riders beside two and three honest participants 1.8 and 2.5 %
    within 30 rounds, beside five none. Of those that send the same noise in every round more are: honest uploads
    resemble those of the round before, and the sum of such agreements grows as n does.

    Sums are kept for members who have sent and are not confirmed: those of others say nothing any more.

    Args:
        participants: P.
        confidence: Of each agreement.
        share: Of the others, f.

    Attributes:
        confirmed: Who is, ``[P]`` bool.
        uploads: How many everybody has sent, ``[P]``.
        waiting: Who has sent and is not confirmed, ``[u]`` int64, ascending.
        totals: The sums of agreements with them, ``[u, P]``.
        rounds: In how many rounds both sent, ``[u, P]``.
    """

    def __init__(self, participants: int, confidence: float, share: float = 1 / 3) -> None:
        self.share = share
        self.above = float(torch.special.ndtri(torch.tensor(confidence, dtype=torch.float64)))
        self.confirmed = torch.zeros(participants, dtype=torch.bool)
        self.uploads = torch.zeros(participants, dtype=torch.int64)
        self.waiting = torch.empty(0, dtype=torch.int64)
        self.totals = torch.empty(0, participants, dtype=torch.float64)
        self.rounds = torch.empty(0, participants, dtype=torch.int32)

    def count(self, senders: Tensor) -> None:
        """Take in that participants ``[m]`` sent an upload each, which is all that counts once they are confirmed."""
        self.uploads = self.uploads.index_add(0, senders, torch.ones_like(senders))

    def add(self, senders: Tensor, agreements: Tensor, same: Tensor) -> None:
        """Take in a round.

        Args:
            senders: The participant behind every upload, ``[m]``.
            agreements: ``[m, m]``.
            same: Which uploads are duplicates, ``[m, m]`` bool.
        """
        self.count(senders)
        asking = ~self.confirmed[senders]
        whose = senders[asking]
        self._keep(torch.cat([self.waiting, whose]).unique())
        here = torch.searchsorted(self.waiting, whose).unsqueeze(1), senders.unsqueeze(0)
        one = self.rounds.new_ones(len(whose), len(senders))
        self.totals = self.totals.index_put(here, torch.where(same, 0.0, agreements)[asking], accumulate=True)
        self.rounds = self.rounds.index_put(here, one, accumulate=True)
        agree = self.totals[here] / self.rounds[here].double().sqrt() > self.above
        others = torch.where(same, 0.0, 1 / same.sum(1).double())[asking]
        votes = (others * agree).sum(1)
        enough = (votes > 0) & (votes > self.share * others.sum(1) - 1e-6)
        self.confirmed = self.confirmed.index_fill(0, whose[enough], True)
        self._keep(self.waiting[~self.confirmed[self.waiting]])

    def forget(self, gone: Tensor) -> None:
        """Keep no sums for whoever has been removed, ``[P]`` bool."""
        self._keep(self.waiting[~gone[self.waiting]])

    def after(self, uploads: int) -> Tensor:
        """Who is confirmed and has sent so many uploads, ``[P]`` bool."""
        return self.confirmed & (self.uploads >= uploads)

    def keep_of_older(self) -> None:
        """After an older checkpoint, whose sums are those of all P with all: keep of them what is kept now."""
        self.uploads = self.rounds.diagonal().to(torch.int64)
        self.rounds = self.rounds.to(torch.int32)
        self.waiting = torch.arange(len(self.uploads))
        self._keep((~self.confirmed & (self.uploads > 0)).nonzero().flatten())

    def _keep(self, waiting: Tensor) -> None:
        """Have so many wait, ``[u]`` ascending, with new sums for whoever had none: in a matrix of their own."""
        if torch.equal(waiting, self.waiting):
            return
        before = torch.isin(self.waiting, waiting)
        rows = torch.searchsorted(waiting, self.waiting[before])
        for name in ("totals", "rounds"):
            sums = getattr(self, name)
            kept = sums.new_zeros(len(waiting), sums.shape[1])
            kept[rows] = sums[before]
            setattr(self, name, kept)
        self.waiting = waiting


class Trust:
    """All that a guarded server goes by beside reputations.

    Args:
        switches: Of the server.
        participants: P.
    """

    def __init__(self, switches: Switches, participants: int) -> None:
        self.switches = switches
        confidence = switches.removal_confidence
        self.contributions = Contributions(participants, confidence) if confidence != "off" else None
        sure = _SURE if confidence == "off" else confidence
        self.confirmations = Confirmations(participants, sure, switches.confirmed_by) if switches.probation else None
        self.recent = torch.zeros(participants, dtype=torch.float64)
        self.earned = torch.zeros(participants, dtype=torch.float64)
        self.rested = torch.zeros(participants, dtype=torch.int64)

    def add(self, similarities: Tensor, scored: Tensor) -> None:
        """Take in the similarities ``[P]`` of a round; ``scored`` says whose count."""
        if self.contributions is not None:
            self.contributions.add(similarities, scored)
        now = torch.where(scored, similarities, 0.0)
        self.earned = self.earned + now.clamp_min(0)
        if self.switches.short_memory != "off":
            averaged = moving_average(self.recent, now, self.switches.short_memory)
            self.recent = torch.where(scored, averaged, self.recent)

    def rest(self, silent: Tensor) -> None:
        """Take in who told nothing, by number ``[s]``, in a round in which others did."""
        self.rested = self.rested.index_add(0, silent, torch.ones_like(silent))

    def forget(self, gone: Tensor) -> None:
        """Keep no sums of agreements with whoever has been removed, ``[P]`` bool."""
        if self.confirmations is not None:
            self.confirmations.forget(gone)

    def limits(self) -> Tensor:
        """Below what contribution everybody is removed, ``[P]``: lower for whoever was confirmed as no free-rider."""
        assert self.contributions is not None
        limits = torch.full_like(self.recent, self.contributions.least)
        if self.confirmations is not None:
            limits[self.confirmations.confirmed] = self.contributions.against
        return limits

    def capped(self, quotas: Tensor, members: Tensor, rounds: Tensor) -> Tensor:
        """The quotas ``[P]``, at most what the switches allow everybody by what it did of late, and so far.

        Args:
            quotas: What reputations give, ``[P]``.
            members: Who is a member, ``[P]`` bool.
            rounds: In how many rounds everybody was scored, ``[P]``.
        """
        if self.switches.short_memory != "off":
            # An average that began at 0 has not seen a whole round.
            seen = 1 - self.switches.short_memory ** rounds.double()
            # A shard learnt by heart is silent too, late; one round of work and silence ever after is no contribution.
            working = members & (self.rested <= rounds)
            quotas = torch.minimum(quotas, relative_quota(torch.where(seen > 0, self.recent / seen, 0.0) * working))
        if self.contributions is not None:
            quotas = torch.where(self.contributions.bound()[1] < self.contributions.least, 0.0, quotas)
        if self.switches.earned:
            quotas = torch.minimum(quotas, relative_quota(self.earned * members))
        if self.confirmations is not None:
            quotas = torch.where(self.confirmations.after(self.switches.probation), quotas, 0.0)
        return quotas

    def state_dict(self) -> dict[str, Tensor]:
        """What must survive an interruption."""
        return {name: getattr(owner, name.rsplit(".")[-1]) for name, owner in self._owners().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` gave; what an older checkpoint does not have stays as it begins."""
        for name, owner in self._owners().items():
            if name in state:
                setattr(owner, name.rsplit(".")[-1], state[name])
        if self.confirmations is not None and "confirmations.totals" in state and "confirmations.uploads" not in state:
            self.confirmations.keep_of_older()

    def _owners(self) -> dict[str, object]:
        """Every tensor that lasts, by its name in a checkpoint, with the object it belongs to."""
        owners: dict[str, object] = dict.fromkeys(("recent", "earned", "rested"), self)
        if self.contributions is not None:
            owners |= dict.fromkeys(
                ("contributions.sums", "contributions.squares", "contributions.weights"), self.contributions
            )
        if self.confirmations is not None:
            kept = ("confirmed", "uploads", "waiting", "totals", "rounds")
            owners |= dict.fromkeys((f"confirmations.{name}" for name in kept), self.confirmations)
        return owners


_SURE = 0.999
"""Confidence of an agreement where removal asks for none."""
