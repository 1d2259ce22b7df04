"""Servers of one's own that decide by what their state_dict does not have, which an interruption would show."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.round.restored import same_verdicts
from rffl_pl.servers import NNM, RFFL, Consensus, Evidence, FedAvg, Server, Verdict
from tests.runs import federate


class Remembering(Consensus):
    """Goes by its last weights, where it forgets what its option says."""

    hands_models = True

    def __init__(self, *, what: str) -> None:
        super().__init__()
        self.what = what
        self.past: Tensor | None = None
        self.handed = torch.zeros(())
        self.scratch = torch.zeros(())

    def weigh(self, evidence: Evidence) -> Tensor:
        self.scratch = evidence.squared_norms.sqrt()  # which every round makes anew
        weights = self.scratch / self.scratch.sum()
        last = weights if self.past is None else self.past
        self.past = 0.9 * last + 0.1 * weights
        return weights if self.what == "late" and evidence.round < 5 else self.past

    def stride(self, combined: Tensor) -> Tensor:
        self.handed = self.handed + combined
        return combined / self.scratch.mean()

    def model_for(self, participant: int) -> Tensor | None:
        return self.handed + 0.01 if self.handed.dim() else None

    def state_dict(self) -> dict[str, Any]:
        memory = {"memory": self.past, "models": [self.handed]}
        if self.what in ("weights", "late"):
            del memory["memory"]
        if self.what == "models":
            del memory["models"]
        return super().state_dict() | memory

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if self.what == "itself":
            raise KeyError("memories")
        self.past = state.get("memory", self.past)
        self.handed = state.get("models", [self.handed])[0]


def told_of(server: Server, rounds: int) -> list[str]:
    """What is said of lost state in so many rounds."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        federate(server, rounds=rounds)
    return [str(one.message) for one in caught if "state_dict" in str(one.message)]


FORGOTTEN = "decides otherwise where it goes on from its state_dict, as after an interruption, since its"


@pytest.mark.parametrize(
    ("what", "rounds", "named"),
    [("weights", 2, None), ("weights", 3, "past"), ("models", 3, "handed"), ("late", 10, None), ("late", 11, "past")],
)
def test_state_that_is_forgotten(what: str, rounds: int, named: str | None) -> None:
    """A run that is interrupted goes on as another, and nobody says so."""
    expected = f"--server Remembering {FORGOTTEN} {named} is another; have state_dict and load_state_dict keep it."
    assert told_of(Remembering(what=what), rounds) == ([] if named is None else [expected])


class Beginning(FedAvg):
    """Makes in its first round what it works with in all others."""

    first: Tensor

    def weigh(self, evidence: Evidence) -> Tensor:
        if evidence.round == 0:
            self.first = super().weigh(evidence)
        return self.first


def test_state_that_a_first_round_made() -> None:
    """Without it the rule cannot decide at all, which would end a run that nobody has interrupted."""
    expected = f"--server Beginning {FORGOTTEN} first is another; have state_dict and load_state_dict keep it."
    assert told_of(Beginning(), 3) == [expected]


def test_state_that_is_forgotten_behind_mixing() -> None:
    """Likewise."""

    class Behind(Remembering):
        hands_models = False

    (told,) = told_of(NNM(rule=Behind(what="weights"), tolerated=1), 3)
    assert f"{FORGOTTEN} past is another" in told


def test_state_that_is_kept() -> None:
    """Under whatever name; what a round makes anew, and what nobody can copy, says nothing."""
    assert told_of(Remembering(what="nothing"), 11) == []
    locked = Remembering(what="weights")
    locked.lock = threading.Lock()  # type: ignore[attr-defined]  # as one's own may have
    assert told_of(locked, 3) == []
    assert told_of(RFFL(), 3) == []


def test_state_that_is_not_taken_back() -> None:
    """It is found when the run is interrupted, and the checkpoint called damaged."""
    with pytest.raises(
        UserError, match=r"Remembering to take back what its state_dict gives, but KeyError: 'memories'"
    ):
        federate(Remembering(what="itself"), rounds=3)


@pytest.mark.parametrize("measures", [{}, {"trust": torch.tensor([0.1, 0.3])}, {"trusted": torch.tensor([0.1, 0.2])}])
def test_measures_of_a_servers_own_are_looked_at(measures: dict[str, Tensor]) -> None:
    """What is drawn and kept of every round would be another after an interruption, and nobody told."""
    ones = torch.ones(2)
    verdict = Verdict(
        weights=ones, similarities=ones, reputations=ones, quotas=ones, members=ones.bool(), download=lambda _: ones,
        measures={"trust": torch.tensor([0.1, 0.2])},
    )  # fmt: skip
    assert same_verdicts([0, 1], verdict, replace(verdict))
    assert not same_verdicts([0, 1], verdict, replace(verdict, measures=measures))
