"""Rules that shorten uploads to a bound and add noise to the step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import check_number
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class Noised(Consensus):
    r"""Base of the rules that add noise :math:`\mathcal N(0, \sigma^2 I)` to the step.

    It is a round's and ``--seed_everything``'s, whoever is there and however many ranks share the server.

    Args:
        factor: How much noise, in multiples of what a rule says; 0 is without.
        option: How it is typed.

    Attributes:
        deviation: :math:`\sigma`, which `weigh` decides for its round.

    Raises:
        UserError: If the factor is negative or not finite.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def __init__(self, factor: float, option: str) -> None:
        super().__init__()
        check_number(option, factor, 0, 1e6)
        self.steps_by_updates = factor == 0
        self.deviation = 0.0

    @abstractmethod
    def weigh(self, evidence: Evidence) -> Tensor:
        """As of any `Consensus`; it also decides `deviation`."""

    def stride(self, combined: Tensor) -> Tensor:
        if not self.deviation:
            return combined
        # Of all coordinates, on the CPU: the same whichever of them are here, and on whatever device.
        noise = torch.randn(sum(self.layers), generator=self._stream_of_round(self.round))
        return combined + self.deviation * self.coordinates.of(noise).to(combined)
