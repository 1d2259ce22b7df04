"""Noise that a rule of one's own has its participants add."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback
from torch import Tensor

from rffl_pl.servers import FedAvg
from tests.runs import federate


class Noisy(FedAvg):
    """As for differential privacy."""

    sent: list[Tensor]

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        noise = torch.randn_like(update)
        self.sent = [*getattr(self, "sent", []), noise]
        return update + noise


class Drawing(Callback):
    """Draws from the run's own stream, as whoever else lives in the process may."""

    def on_train_batch_start(self, *args: Any) -> None:
        torch.rand(7)


def test_noise_is_the_participants_own() -> None:
    """It hangs on who shares the process, or is the same for all, or in every round."""
    plain, disturbed = Noisy(), Noisy()
    federate(plain, rounds=2)
    federate(disturbed, (), Drawing(), rounds=2)
    assert len(plain.sent) == 10
    assert all(torch.equal(one, other) for one, other in zip(plain.sent, disturbed.sent, strict=True))
    assert len({tuple(noise.tolist()) for noise in plain.sent}) == 10
