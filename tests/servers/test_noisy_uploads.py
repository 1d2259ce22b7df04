"""Noise that a rule of one's own has its participants add."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from torch import Tensor

from rffl_pl.adversaries import ALIE
from rffl_pl.errors import UserError
from rffl_pl.servers import FedAvg
from tests.runs import Diary, federate


class Noisy(FedAvg):
    """As for differential privacy."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = Diary()

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        noise = torch.randn_like(update)
        self.sent.lines.append(noise)
        return update + noise


class Drawing(Callback):
    """Draws from the run's own stream, as whoever else lives in the process may."""

    def on_train_batch_start(self, *args: Any) -> None:
        torch.rand(7)


def test_noise_is_the_participants_own() -> None:
    """It depends on who shares the process, or is the same for all, or in every round."""
    plain, disturbed = Noisy(), Noisy()
    federate(plain, rounds=2)
    federate(disturbed, (), Drawing(), rounds=2)
    assert len(plain.sent.lines) == 10
    assert all(torch.equal(one, other) for one, other in zip(plain.sent.lines, disturbed.sent.lines, strict=True))
    assert len({tuple(noise.tolist()) for noise in plain.sent.lines}) == 10


@pytest.mark.filterwarnings("ignore:Simulation")
def test_noise_of_an_adversary_that_knows_all() -> None:
    """What it makes of the others' uploads is noised by another stream than an upload that it makes alone."""
    plain, disturbed = Noisy(), Noisy()
    federate(plain, [ALIE()], rounds=2)
    federate(disturbed, [ALIE()], Drawing(), rounds=2)
    assert len(plain.sent.lines) == 2 * (5 + 1 + 1)  # it has an upload of its own before it sees the others'
    assert all(torch.equal(one, other) for one, other in zip(plain.sent.lines, disturbed.sent.lines, strict=True))
    assert len({tuple(noise.tolist()) for noise in plain.sent.lines}) == 2 * (5 + 1)


class Forgetful(FedAvg):
    """Fails at what has been made of the honest uploads, which comes last."""

    def __init__(self) -> None:
        super().__init__()
        self.told = Diary()

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        self.told.lines.append(len(update))
        return update if len(self.told.lines) <= 6 else memory["never"]


@pytest.mark.filterwarnings("ignore:Simulation")
def test_a_mistake_where_an_adversary_knows_all() -> None:
    """It is a traceback, as if it were ours."""
    with pytest.raises(UserError, match="Forgetful to say what a participant sends in round 1, but KeyError: 'never'"):
        federate(Forgetful(), [ALIE()], rounds=1)
