"""Nearest-neighbour mixing (Allouah et al. 2023, https://arxiv.org/abs/2302.01772)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional.aggregation import nearest_mixing
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.foolsgold import FoolsGold
from rffl_pl.servers.median import Median
from rffl_pl.servers.q_ffl import QFFL
from rffl_pl.servers.sign_sgd import SignSGD

MIXABLE = ("CenteredClipping", "FedAvg", "GeometricMedian", "Median", "MultiKrum", "TrimmedMean")
"""The package's rules that go by what mixing leaves: FoolsGold's histories, q-FFL's losses and signs are not mixed."""


class NNM(Consensus):
    r"""Another rule on uploads of which each is replaced by the mean of those nearest to it.

    .. math::
        \bar u_i = \frac{1}{m - f} \sum_{j \in N_i} u_j, \quad w \leftarrow w + R(\bar u_1, \dots, \bar u_m)

    with R the other rule and :math:`N_i` the :math:`m - f` uploads nearest to :math:`u_i`, itself among them. Where
    honest uploads differ, as participants' data does, a robust rule alone throws honest ones away or is drawn aside;
    mixed ones lie close together.

    Args:
        rule: What combines the mixed uploads: `MultiKrum`, `Median` (by default), `TrimmedMean`, `GeometricMedian`,
            `CenteredClipping`, `FedAvg`, or a `Consensus` of your own.
        tolerated: Number f of bad uploads; by default :math:`\lfloor 0.2 P \rfloor`, the paper's clip ratio.

    Raises:
        UserError: If the rule is none that can be mixed for, f is negative or 2f < P does not hold, or the rule's own
            options do not fit; before the first round.

    Where members miss rounds, P is the number of those that are asked in one. With uploads set aside or of zeros, f
    shrinks to what the rest allows. The m mixed uploads are never held: distances and weights follow from inner
    products, and blocks of coordinates are mixed one after another.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model", "rule_vectors")

    def __init__(self, *, rule: Consensus | None = None, tolerated: int | None = None) -> None:
        super().__init__()
        self.inner = Median() if rule is None else rule
        if isinstance(self.inner, FoolsGold | QFFL | SignSGD | NNM):
            raise UserError(
                f"Expected --server.rule to be one of {', '.join(MIXABLE)} or a Consensus of your own, but got "
                f"{type(self.inner).__name__}, for which uploads cannot be mixed."
            )
        self.tolerated = tolerated
        self._asked = 0
        self._mixing, self._weights = torch.empty(0), torch.empty(0)
        self._measured: dict[str, Tensor] = {}

    def start(self, task: Task) -> None:
        super().start(task)
        self._asked = total = task.asked
        f = self._bad()
        if f < 0 or 2 * f >= total:
            raise UserError(
                f"Expected --server.tolerated f with f >= 0 and 2f < P, but got f = {f} and P = {total} participants "
                f"that are asked; give at most {(total - 1) // 2}."
            )
        if self.inner.by_coordinate is None and self.coordinates.size < sum(self.layers):
            raise UserError(
                f"Expected --server.rule to be one that ranks can share under --exchange sharded, but got "
                f"{type(self.inner).__name__}, whose by_coordinate is None; give --exchange central."
            )
        try:
            self.inner.start(task)
        except UserError as error:
            raise UserError(str(error).replace("--server.", "--server.rule.")) from error
        self.model, self.inner.model = self.inner.model, None  # if the rule has one, it is kept here

    def kept(self, update: Tensor) -> Tensor:
        return self.inner.kept(update)

    def weigh(self, evidence: Evidence) -> Tensor:
        here = len(evidence.senders)
        mixing = nearest_mixing(evidence.squared_distances, here - min(self._bad(), (here - 1) // 2))
        mixed = Mixed.of(evidence, mixing)
        weights = self.inner.weigh(mixed).cpu()
        self._measured = self.inner.measures(mixed, weights)
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

    def _bad(self) -> int:
        return math.floor(0.2 * self._asked) if self.tolerated is None else self.tolerated


@dataclass(frozen=True, kw_only=True)
class Mixed(Evidence):
    r"""Evidence of mixed uploads :math:`\bar U = M U`, from that of the uploads U; every row of M adds up to 1.

    Attributes:
        mixing: M, ``[m, m]`` float64.
        unmixed: Evidence of the uploads themselves.
    """

    mixing: Tensor
    unmixed: Evidence

    @classmethod
    def of(cls, evidence: Evidence, mixing: Tensor) -> Mixed:
        """The evidence of some uploads, mixed."""
        known = {one.name: getattr(evidence, one.name) for one in fields(evidence)}
        # With v_i = u_i - c and c the shortest upload |u|^2 = |v|^2 + 2 <v, c> + |c|^2, mixed or not.
        squares, centred, least = evidence.squared_norms, evidence.centred_gram, evidence.squared_norms.min()
        twice = squares - centred.diagonal() - least
        lengths = (mixing @ centred @ mixing.T).diagonal() + mixing @ twice + least
        return cls(**known | {"squared_norms": lengths.clamp_min(0)}, mixing=mixing, unmixed=evidence)

    @cached_property
    def gram(self) -> Tensor:
        return self.mixing @ self.unmixed.gram @ self.mixing.T

    @cached_property
    def centred_gram(self) -> Tensor:
        return self.mixing @ self.unmixed.centred_gram @ self.mixing.T

    def squared_distances_to(self, point: Tensor) -> Tensor:
        def term(block: Tensor, there: Tensor | None) -> Tensor:
            assert there is not None
            return (self.mixing.to(block) @ block).sub_(there).square_().sum(1)

        return self.coordinates.add_up(self.uploads, term, point)

    def gram_times(self, weights: Tensor) -> Tensor:
        return self.gram @ weights
