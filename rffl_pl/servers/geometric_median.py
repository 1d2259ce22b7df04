"""The geometric median of RFA (Pillutla, Kakade and Harchaoui 2022, https://arxiv.org/abs/1912.13445)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from rffl_pl.functional.aggregation import geometric_median_weights
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class GeometricMedian(Consensus):
    r"""The point with the smallest sum of distances to all uploads.

    :math:`w \leftarrow w + \arg\min_z \sum_i \|u_i - z\|`, a mean whose weights fall with the distance:
    `rffl_pl.functional.aggregation.geometric_median_weights`, iterated to the end instead of RFA's three steps. Every
    upload counts the same; RFA weighs them by the examples that their senders claim.

    Where members miss rounds, it withstands less than half of those that are asked, not of all.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def weigh(self, evidence: Evidence) -> Tensor:
        return geometric_median_weights(evidence.centred_gram)
