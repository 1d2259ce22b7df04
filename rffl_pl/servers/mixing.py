"""Rules that mix the uploads before another rule sees them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional.fingerprints import described
from rffl_pl.functional.reputation import weighted_sum
from rffl_pl.servers.around import Around
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.foolsgold import FoolsGold
from rffl_pl.servers.median import Median

MIXABLE = (
    "ARC", "Bucketing", "Bulyan", "CenteredClipping", "DnC", "FedAvg", "FedMGDA", "GeometricMedian", "Median",
    "MultiKrum", "NNM", "NormBound", "TrimmedMean",
)  # fmt: skip
"""The package's rules that go by what mixing leaves: histories, losses and signs are not mixed."""

_NOTHING = 1e-12
"""A sum this small relative to its terms is 0 but for rounding."""


class Mixing(Around):
    r"""Base of the rules that replace uploads by combinations of them before another rule sees those.

    .. math::
        \bar u_i = \sum_{j=1}^m M_{ij} u_j, \quad w \leftarrow w + R(\bar u_1, \dots, \bar u_b)

    with R the other rule and M what `mixing` decides. One may be the other rule of another. Mixed uploads are never
    held: distances and weights follow from inner products, and blocks of coordinates are mixed one after another.

    Args:
        rule: R: `MultiKrum`, `Bulyan`, `Median` (by default), `TrimmedMean`, `GeometricMedian`, `CenteredClipping`,
            `NormBound`, `DnC`, `FedAvg`, `FedMGDA`, another kind of mixing, or a `Consensus` of your own.

    Raises:
        UserError: Before the first round, if the rule is none that can be mixed for, or its own options do not fit.

    The rule decides by statistics of the mixed uploads; ``uploads`` of its evidence, and what it combines of them, are
    still those that were sent. An upload weighs what its shares add up to; one whose shares cancel is combined all the
    same.
    """

    _of_every_server: ClassVar[frozenset[str]] = Around._of_every_server | {
        "_mixing",
        "_weights",
        "_used",
        "_counted",
        "_measured",
    }

    def __init__(self, *, rule: Consensus | None = None) -> None:
        super().__init__(Median() if rule is None else rule)
        self._mixing, self._weights = torch.empty(0), torch.empty(0)
        self._used, self._counted = torch.empty(0, dtype=torch.bool), torch.empty(0, dtype=torch.bool)
        self._measured: dict[str, Tensor] = {}

    def check_rule(self) -> None:
        inner, mixes = self.inner, isinstance(self.inner, Mixing)
        unmixed = isinstance(inner, FoolsGold) or inner.hears_losses or inner.keeps_model
        if unmixed or isinstance(inner, type(self)) or (isinstance(inner, Around) and not mixes):
            fit = ", ".join(kind for kind in MIXABLE if kind != type(self).__name__)
            why = " once more" if mixes else ", for which uploads cannot be mixed"
            raise UserError(
                f"Expected {self.inner.given_by} to be one of {fit} or a Consensus of your own, but got "
                f"{type(inner).__name__}{why}."
            )

    @abstractmethod
    def mixing(self, evidence: Evidence) -> Tensor:
        """M, ``[b, m]`` float64 on the CPU, for the m uploads of a round; m at least 1."""

    def senders_of(self, senders: Tensor, mixing: Tensor) -> Tensor:
        """The participant that stands for each mixed upload ``[b]``, of those behind the uploads ``[m]``."""
        return senders

    def weigh(self, evidence: Evidence) -> Tensor:
        mixing = self._decided_mixing(evidence)
        senders = self.senders_of(evidence.senders, mixing)
        self.check_entries("senders_of", senders, len(mixing), "mixed uploads")
        mixed = Mixed.of(evidence, mixing, senders)
        weights = self.inner.decided(mixed)
        place = torch.searchsorted(evidence.senders, mixed.senders)
        self._measured = {
            name: torch.full((len(evidence.senders),), torch.nan, dtype=torch.float64).scatter(
                0, place, values.double().cpu()
            )
            for name, values in self.inner.checked_measures(mixed, weights).items()
        }
        shares = weights.double() @ mixing
        rows = self.inner.combines(weights)
        # Also where what an upload has in several cancels: a median of these is not their mean.
        self._used = (mixing[rows] != 0).any(0)
        self._counted = shares[self._used] != 0
        self._mixing, self._weights = mixing[rows][:, self._used], weights[rows]
        return shares

    def _decided_mixing(self, evidence: Evidence) -> Tensor:
        """What `mixing` decides, float64 on the CPU.

        Raises:
            UserError: If it is no matrix of as many columns as there are uploads, or not finite.
        """
        mixing: object = self.mixing(evidence)
        count = len(evidence.senders)
        if not isinstance(mixing, Tensor) or mixing.dim() != 2 or not len(mixing) or mixing.shape[1] != count:
            raise UserError(
                f"Expected mixing of {self.given_as} to be a matrix with a column for each of {count} "
                f"uploads and a row for each that is made of them, but got {described(mixing)}."
            )
        self.check_finite("mixing", mixing)
        return mixing.double().cpu()

    def combines(self, weights: Tensor) -> Tensor:
        return self._used

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return self.inner.checked_combine(weighted_sum(block, self._mixing), self._weights.to(block.device))

    def pool(self, statistics: Tensor, weights: Tensor) -> Tensor:
        counted = self._weights != 0
        mixing = self._mixing[counted][:, self._counted]
        sums = mixing.sum(1, keepdim=True)
        if (sums.abs() <= _NOTHING * mixing.abs().sum(1, keepdim=True)).any():
            raise UserError(
                f"Expected the rows of mixing of {self.given_as} to have sums other than 0, which BatchNorm's running "
                f"statistics are divided by, but got {float(sums.abs().min()):g}; override pool, or take another "
                "network."
            )
        # A clipped upload's are not clipped.
        return self.inner.pool(weighted_sum(statistics, mixing / sums), self._weights[counted].to(statistics.device))

    def measures(self, evidence: Evidence, weights: Tensor) -> dict[str, Tensor]:
        return self._measured


class Tolerant(Mixing):
    r"""Base of the mixing that goes by how many uploads may be bad.

    Args:
        rule: As of `Mixing`.
        tolerated: Their number f; by default ``--federation.tolerated``, and without it :math:`\lfloor 0.2 P \rfloor`,
            the paper's clip ratio, or of buckets as many as it can tolerate.

    Raises:
        UserError: As `Mixing`; before the first round, if f is negative or 2f < P does not hold.
    """

    def __init__(self, *, rule: Consensus | None = None, tolerated: int | None = None) -> None:
        super().__init__(rule=rule)
        self.tolerated = tolerated
        self._bad = 0

    def start(self, task: Task) -> None:
        most = (task.asked - 1) // 2
        self._bad = task.tolerating(self.tolerated, most, "f >= 0 and 2f < P", "--server.tolerated")
        super().start(task)

    def bad_among(self, count: int) -> int:
        """How many of so many uploads may be bad: f, or where some are set aside, or zeros, what the rest allows."""
        return min(self._bad, (count - 1) // 2)


@dataclass(frozen=True, kw_only=True)
class Mixed(Evidence):
    r"""Evidence of mixed uploads :math:`\bar U = M U`, from that of the uploads U.

    Attributes:
        mixing: M, ``[b, m]`` float64.
        unmixed: Evidence of the uploads themselves.
    """

    mixing: Tensor
    unmixed: Evidence

    @classmethod
    def of(cls, evidence: Evidence, mixing: Tensor, senders: Tensor) -> Mixed:
        """The evidence of some uploads, mixed or mixed again, for each of which a sender stands, ``[b]``."""
        known = {one.name: getattr(evidence, one.name) for one in fields(Evidence)}
        if len(senders) < len(evidence.senders):
            known["examples"] = (mixing != 0).to(mixing) @ evidence.examples  # of all that are in it
        if isinstance(evidence, Mixed):
            mixing, evidence = mixing @ evidence.mixing, evidence.unmixed
        centre = evidence.squared_norms.min()
        sums = mixing.sum(1)
        centred = (mixing @ evidence.centred_gram @ mixing.T).diagonal()
        lengths = centred + 2 * sums * (mixing @ evidence.along_shortest) + sums * sums * centre
        here = {"senders": senders, "squared_norms": lengths.clamp_min(0), "losses": None}
        return cls(**known | here, mixing=mixing, unmixed=evidence)

    @cached_property
    def gram(self) -> Tensor:
        return self.mixing @ self.unmixed.gram @ self.mixing.T

    @cached_property
    def centred_gram(self) -> Tensor:
        # Of M v + (s - 1) c, with v the uploads less the shortest one c, and s the sums of the rows of M.
        beyond = self.mixing.sum(1) - 1
        across = (self.mixing @ self.unmixed.along_shortest).outer(beyond)
        centred = self.mixing @ self.unmixed.centred_gram @ self.mixing.T
        centred += across + across.T + beyond.outer(beyond) * self.unmixed.squared_norms.min()
        centred.diagonal().clamp_(min=0)  # of what is clipped to just the shortest, rounding is all that is left
        return centred

    @cached_property
    def gram_of_squares(self) -> Tensor:
        def term(block: Tensor, _: Tensor | None) -> Tensor:
            squares = (self.mixing.to(block) @ block).square_()
            return squares @ squares.T

        return self.coordinates.add_up(self.uploads, term, None)

    def squared_distances_to(self, point: Tensor) -> Tensor:
        def term(block: Tensor, there: Tensor | None) -> Tensor:
            assert there is not None
            return (self.mixing.to(block) @ block).sub_(there).square_().sum(1)

        return self.coordinates.add_up(self.uploads, term, point)

    def products_with(self, point: Tensor) -> Tensor:
        return self.mixing @ self.unmixed.products_with(point)

    def gram_times(self, weights: Tensor) -> Tensor:
        return self.gram @ weights.to(self.gram)
