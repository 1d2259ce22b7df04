"""Centered clipping (Karimireddy, He and Jaggi 2021, https://arxiv.org/abs/2012.10333)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import check_positive
from rffl_pl.functional.aggregation import clip_factors
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class CenteredClipping(Consensus):
    r"""The last step, moved towards every upload by no more than a radius.

    .. math::
        v \leftarrow v + \frac{1}{m} \sum_i (u_i - v) \min\left(1, \frac{\tau}{\|u_i - v\|}\right), \qquad
        w \leftarrow w + v

    v is 0 before the first round. One iteration a round, which is what the reference uses.

    Args:
        radius: :math:`\tau`; by default the median of the round's distances :math:`\|u_i - v\|`, of an even number the
            lower of the middle two, so that it needs no knowledge of how long updates are. The reference takes a
            constant.

    Raises:
        UserError: If the radius is not positive.

    Attributes:
        centre: v, ``[d]``, of the coordinates that are here.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model", "centre")

    def __init__(self, *, radius: float | None = None) -> None:
        super().__init__()
        if radius is not None:
            check_positive("--server.radius", radius)
        self.radius = radius
        self.centre = torch.empty(0)
        self._left = 1.0

    def start(self, task: Task) -> None:
        super().start(task)
        self.centre = torch.zeros_like(task.initial)

    def weigh(self, evidence: Evidence) -> Tensor:
        distances = evidence.squared_distances_to(self.centre).sqrt()
        radius = distances.median() if self.radius is None else self.radius
        weights = clip_factors(distances, radius) / len(distances)
        self._left = 1 - float(weights.sum())
        return weights

    def stride(self, combined: Tensor) -> Tensor:
        self.centre = combined + self._left * self.centre.to(combined)
        return self.centre

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"centre": self.centre.cpu()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.centre = state["centre"]
