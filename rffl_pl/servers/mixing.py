"""Rules that hand another rule combinations of the uploads in their place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.foolsgold import FoolsGold
from rffl_pl.servers.median import Median
from rffl_pl.servers.q_ffl import QFFL
from rffl_pl.servers.sign_sgd import SignSGD

MIXABLE = (
    "ARC", "Bucketing", "CenteredClipping", "FedAvg", "GeometricMedian", "Median", "MultiKrum", "NNM", "TrimmedMean",
)  # fmt: skip
"""The package's rules that go by what mixing leaves: FoolsGold's histories, q-FFL's losses and signs are not mixed."""


class Mixing(Consensus):
    r"""Base of the rules that replace uploads by combinations of them before another rule sees those.

    .. math::
        \bar u_i = \sum_{j=1}^m M_{ij} u_j, \quad w \leftarrow w + R(\bar u_1, \dots, \bar u_b)

    with R the other rule and M what `mixing` decides. One may be the other rule of another. Mixed uploads are never
    held: distances and weights follow from inner products, and blocks of coordinates are mixed one after another.

    Args:
        rule: R: `MultiKrum`, `Median` (by default), `TrimmedMean`, `GeometricMedian`, `CenteredClipping`, `FedAvg`,
            another kind of mixing, or a `Consensus` of your own.

    Raises:
        UserError: If the rule is none that can be mixed for; before the first round, if its own options do not fit.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model", "rule_vectors")

    def __init__(self, *, rule: Consensus | None = None) -> None:
        super().__init__()
        self.inner = Median() if rule is None else rule
        if isinstance(self.inner, FoolsGold | QFFL | SignSGD | type(self)):
            fit = [name for name in MIXABLE if name != type(self).__name__]
            raise UserError(
                f"Expected --server.rule to be one of {', '.join(fit)} or a Consensus of your own, but got "
                f"{type(self.inner).__name__}, for which uploads cannot be mixed."
            )
        self._mixing, self._weights = torch.empty(0), torch.empty(0)
        self._measured: dict[str, Tensor] = {}

    def start(self, task: Task) -> None:
        super().start(task)
        if self.inner.by_coordinate is None and self.coordinates.size < sum(self.layers):
            raise UserError(
                f"Expected --server.rule to be one that ranks can share under --exchange sharded, but got "
                f"{type(self.inner).__name__}, whose by_coordinate is None; give --exchange central."
            )
        try:
            self.inner.start(self.told(task))
        except UserError as error:
            raise UserError(str(error).replace("--server.", "--server.rule.")) from error
        self.model, self.inner.model = self.inner.model, None  # if the rule has one, it is kept here

    def told(self, task: Task) -> Task:
        """What the rule is told of its task: by default the same."""
        return task

    @abstractmethod
    def mixing(self, evidence: Evidence) -> Tensor:
        """M, ``[b, m]`` float64 on the CPU, for the m uploads of a round; m at least 1."""

    def senders_of(self, senders: Tensor, mixing: Tensor) -> Tensor:
        """The participant that stands for each mixed upload ``[b]``, of those behind the uploads ``[m]``."""
        return senders

    def kept(self, update: Tensor) -> Tensor:
        return self.inner.kept(update)

    def weigh(self, evidence: Evidence) -> Tensor:
        mixing = self.mixing(evidence)
        mixed = Mixed.of(evidence, mixing, self.senders_of(evidence.senders, mixing))
        weights = self.inner.weigh(mixed).cpu()
        place = torch.searchsorted(evidence.senders, mixed.senders)
        self._measured = {
            name: torch.full((len(evidence.senders),), torch.nan, dtype=torch.float64).scatter(
                0, place, values.double()
            )
            for name, values in self.inner.measures(mixed, weights).items()
        }
        shares = weights @ mixing
        used = weights != 0
        self._mixing, self._weights = mixing[used][:, shares != 0], weights[used]
        return shares

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return self.inner.combine(self._mixing.to(block) @ block, self._weights.to(block.device))

    def stride(self, combined: Tensor) -> Tensor:
        return self.inner.stride(combined)

    def measures(self, evidence: Evidence, weights: Tensor) -> dict[str, Tensor]:
        return self._measured

    def state_dict(self) -> dict[str, Any]:
        inner = self.inner.state_dict()
        vectors = {name: inner.pop(name) for name in [*inner] if name in (self.inner.by_coordinate or ())}
        return super().state_dict() | {"rule": inner, "rule_vectors": vectors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.inner.load_state_dict(state["rule"] | state["rule_vectors"])


class Tolerant(Mixing):
    r"""Base of the mixing that goes by how many uploads may be bad.

    Args:
        rule: As of `Mixing`.
        tolerated: Their number f; by default :math:`\lfloor 0.2 P \rfloor`, the paper's clip ratio.

    Raises:
        UserError: As `Mixing`; before the first round, if f is negative or 2f < P does not hold.
    """

    def __init__(self, *, rule: Consensus | None = None, tolerated: int | None = None) -> None:
        super().__init__(rule=rule)
        self.tolerated = tolerated
        self._usual = 0

    def start(self, task: Task) -> None:
        self._usual, total = task.bad, task.asked
        f = self._bad()
        if f < 0 or 2 * f >= total:
            whom = "mixed uploads" if task.uploads else "participants that are asked"
            raise UserError(
                f"Expected --server.tolerated f with f >= 0 and 2f < P, but got f = {f} and P = {total} {whom}; "
                f"give at most {(total - 1) // 2}."
            )
        super().start(task)

    def bad_among(self, count: int) -> int:
        """How many of so many uploads may be bad: f, or where some are set aside, or zeros, what the rest allows."""
        return min(self._bad(), (count - 1) // 2)

    def _bad(self) -> int:
        return self._usual if self.tolerated is None else self.tolerated


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
        along = _along_centre(evidence)
        sums = mixing.sum(1)
        centred = (mixing @ evidence.centred_gram @ mixing.T).diagonal()
        lengths = centred + 2 * sums * (mixing @ along) + sums * sums * centre
        here = {"senders": senders, "squared_norms": lengths.clamp_min(0)}
        return cls(**known | here, mixing=mixing, unmixed=evidence)

    @cached_property
    def gram(self) -> Tensor:
        return self.mixing @ self.unmixed.gram @ self.mixing.T

    @cached_property
    def centred_gram(self) -> Tensor:
        # Of M v + (s - 1) c, with v the uploads less the shortest one c, and s the sums of the rows of M.
        beyond = self.mixing.sum(1) - 1
        across = (self.mixing @ _along_centre(self.unmixed)).outer(beyond)
        centred = self.mixing @ self.unmixed.centred_gram @ self.mixing.T
        return centred + across + across.T + beyond.outer(beyond) * self.unmixed.squared_norms.min()

    def squared_distances_to(self, point: Tensor) -> Tensor:
        def term(block: Tensor, there: Tensor | None) -> Tensor:
            assert there is not None
            return (self.mixing.to(block) @ block).sub_(there).square_().sum(1)

        return self.coordinates.add_up(self.uploads, term, point)

    def gram_times(self, weights: Tensor) -> Tensor:
        return self.gram @ weights


def _along_centre(evidence: Evidence) -> Tensor:
    r""":math:`\langle u_i - c, c \rangle`, ``[m]``, with c the shortest upload."""
    squares = evidence.squared_norms
    return (squares - evidence.centred_gram.diagonal() - squares.min()) / 2
