"""SignSGD from local updates over votes of one bit to steps, against a float64 loop over rounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rffl_pl.servers import SignSGD, Verdict
from tests.functional.reference import SIGN_ROWS, close, permuted, reference_vote, uploads
from tests.servers.tasks import (
    assert_equal,
    assert_refused,
    downloads,
    every_kind,
    finite_fraction,
    shards,
    spoil,
    task,
    through_file,
)

SETTINGS: dict[str, dict[str, Any]] = {
    "tuned": {"step_size": 0.01, "momentum": 0.8, "weight_decay": 1e-4},
    "literal": {"step_size": 0.15, "momentum": 0.8, "weight_decay": 0.977},
}


@dataclass
class Reference:
    """All participants and the server of one run, from the definition alone."""

    weights: np.ndarray
    step_size: float
    momentum: float
    weight_decay: float
    step_decay: float = 0.977
    round: int = 0
    past: dict[int, np.ndarray] = field(default_factory=dict)
    votes: dict[int, int] = field(default_factory=dict)

    def vote(self, sender: int, update: Sequence[float]) -> np.ndarray:
        """Signs of the momentum; for exact zeros up in the participant's 1st, 3rd, ... vote and down in the others."""
        old = self.past.get(sender, np.zeros(len(update)))
        self.past[sender] = self.momentum * old + (1 - self.momentum) * np.asarray(update, dtype=np.float64)
        self.votes[sender] = self.votes.get(sender, 0) + 1
        zero = 1.0 if self.votes[sender] % 2 == 1 else -1.0
        return np.array([math.copysign(1, v) if v != 0 else zero for v in self.past[sender]])

    def step(self, votes: Sequence[Sequence[float]]) -> np.ndarray:
        """The step of this round; none without votes."""
        step = np.zeros(len(self.weights))
        if votes:
            rate = self.step_size * self.step_decay**self.round
            step = rate * (reference_vote(votes) - self.weight_decay * self.weights)
        self.weights = self.weights + step
        self.round += 1
        return step


class Federation:
    """A server and what its participants remember."""

    def __init__(self, participants: int, initial: Tensor, **settings: Any) -> None:
        self.server = SignSGD(**settings)
        self.server.start(task(shards(participants), [len(initial)], initial=initial))
        self.memories: list[dict[str, Tensor]] = [{} for _ in range(participants)]

    def send(self, updates: Tensor, senders: Sequence[int]) -> Tensor:
        """The payloads of those who send."""
        rows = [self.server.outgoing(updates[i], self.memories[i], torch.zeros_like(updates[i])) for i in senders]
        return torch.stack([self.server.pack(row) for row in rows])

    def receive(self, updates: Tensor, senders: Sequence[int]) -> Tensor:
        """The votes that arrive of those who send."""
        return torch.stack([self.server.unpack(payload, updates.shape[1]) for payload in self.send(updates, senders)])

    def play(self, updates: Tensor, senders: Sequence[int] | None = None) -> Verdict:
        """One round from updates to verdict."""
        senders = range(len(self.memories)) if senders is None else senders
        return self.server.step(self.receive(updates, senders), list(senders))


def initial_weights(entries: int, seed: int = 0) -> Tensor:
    """Weights that every participant starts from."""
    return torch.randn(entries, generator=torch.Generator().manual_seed(seed))


def sparse_updates(participants: int, entries: int, seed: int) -> Tensor:
    """Updates with zeros: some of the entries nobody ever moves, others only some participants."""
    rows = uploads(participants, entries, seed)
    never = torch.arange(entries) % 4 == 0
    some = (torch.arange(entries)[None, :] + torch.arange(participants)[:, None]) % 5 == 0
    return rows.masked_fill(never | some, 0)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("participants", "entries"), [(1, 9), (2, 8), (5, 53), (12, 53)])
def test_rounds_are_the_reference(participants: int, entries: int, setting: Any) -> None:
    """Votes or weights of some round differ, with zeros, and with somebody missing from the second round on."""
    for seed in range(3):
        federation = Federation(participants, initial_weights(entries, seed), setting=setting)
        reference = Reference(initial_weights(entries, seed).double().numpy(), **SETTINGS[setting])
        weights = initial_weights(entries, seed)
        for now in range(8):
            updates = sparse_updates(participants, entries, 100 * seed + now)
            missing = (now + seed) % participants if participants > 1 and now else -1
            senders = [i for i in range(participants) if i != missing]
            payloads = federation.send(updates, senders)
            assert payloads.dtype == torch.uint8
            assert payloads.shape == (len(senders), 1 + -(-entries // 8))
            votes = [reference.vote(i, updates[i].tolist()).tolist() for i in senders]
            received = torch.stack([federation.server.unpack(payload, entries) for payload in payloads])
            assert received.tolist() == votes
            verdict = federation.server.step(received, senders)
            close(verdict.download(0), reference.step(votes))
            weights = weights + verdict.download(0)
            close(weights, reference.weights)
            assert federation.server.model is not None
            assert torch.equal(federation.server.model, weights)
            close(verdict.weights[senders], [1 / len(senders)] * len(senders), 1e-12)
            assert verdict.weights.count_nonzero() == len(senders)


@pytest.mark.parametrize("settings", [{"momentum": 0.0}, {"weight_decay": 0.0}, {"step_size": 0.5, "step_decay": 1.0}])
@pytest.mark.parametrize("setting", SETTINGS)
def test_given_values_come_before_the_settings(setting: Any, settings: dict[str, Any]) -> None:
    """A value that was given, and be it 0, is overruled by the setting."""
    federation = Federation(5, initial_weights(53), setting=setting, **settings)
    reference = Reference(initial_weights(53).double().numpy(), **(SETTINGS[setting] | settings))
    for now in range(4):
        updates = uploads(5, 53, seed=now)
        expected = reference.step([reference.vote(i, row).tolist() for i, row in enumerate(updates.tolist())])
        close(federation.play(updates).download(0), expected)


def test_golden_vote() -> None:
    """The worked example (servers.md 4.8): a zero votes up where signs are given, as they are, to the server."""
    server = SignSGD(step_size=1.0, weight_decay=0.0)
    server.start(task([1, 1, 1], [4]))
    assert server.step(torch.tensor(SIGN_ROWS), [0, 1, 2]).download(0).tolist() == [1, -1, -1, 1]


def test_literal_setting_multiplies_weights() -> None:
    """The paper's numbers, read literally, are not eta = 0.15 with a decay of 0.977: from 1 up to 0.85345 + 0.15."""
    federation = Federation(3, torch.tensor([1.0, 1.0, -2.0]), setting="literal")
    updates = torch.tensor([[1.0, -1.0, 1.0], [1.0, -1.0, -1.0], [1.0, 1.0, 1.0]])
    close(federation.play(updates).download(0), [0.15 * 0.023, 0.15 * -1.977, 0.15 * 2.954], 1e-6)


def test_decay_is_decoupled() -> None:
    """Decay enters the vote or the momentum, or counts in a round without a majority only with it."""
    initial, updates = initial_weights(53), uploads(1, 53, seed=1).repeat(2, 1)
    updates[1] *= -1
    federation = Federation(2, initial, step_size=0.1, weight_decay=0.5, step_decay=1.0)
    expected = initial.double()
    for _ in range(5):
        close(federation.play(updates).download(0), -0.05 * expected)
        expected = 0.95 * expected
    close(federation.memories[0]["momentum"], (1 - 0.8**5) * updates[0].double())


def test_ties_move_nothing() -> None:
    """As many votes up as down move an entry."""
    federation = Federation(4, initial_weights(53), weight_decay=0.0)
    for now in range(3):
        half = uploads(2, 53, seed=now)
        assert not federation.play(torch.cat([half, -half])).download(0).any()


def test_lengths_of_updates_do_not_count() -> None:
    """Somebody is heard louder for larger updates: bits change with a factor that stays over the rounds."""
    one, other = (Federation(5, initial_weights(53)) for _ in range(2))
    factors = 2.0 ** torch.tensor([-20, 0, 3, 17, 40])[:, None]
    for now in range(6):
        updates = sparse_updates(5, 53, seed=now)
        assert_equal(one.play(updates), other.play(factors * updates))


def test_participants_are_equal() -> None:
    """The order of participants, or the sizes of their shards, change the step."""
    order = permuted(7, seed=1)
    one, other = (Federation(7, initial_weights(53)) for _ in range(2))
    other.server.start(task([1] * 7, [53], initial=initial_weights(53)))
    for now in range(5):
        updates = uploads(7, 53, seed=now)
        assert torch.equal(one.play(updates).download(0), other.play(updates[order]).download(0))


def test_a_majority_is_deaf_to_the_others() -> None:
    """A loud minority turns an entry on which all others agree."""
    honest = uploads(1, 53, seed=1).repeat(4, 1)
    federation = Federation(7, torch.zeros(53), weight_decay=0.0)
    for now in range(3):
        liars = -1e6 * uploads(3, 53, seed=now)
        step = federation.play(torch.cat([honest, liars])).download(0)
        assert torch.equal(step.sign(), honest[0].sign())


def test_momentum_is_the_participants_own() -> None:
    """The past of an update does not count as 0.8, it is another's, or it is lost while its owner is missing."""
    federation = Federation(2, torch.zeros(2), weight_decay=0.0)
    big, small = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), torch.tensor([[-0.3, 0.3], [0.3, -0.3]])
    assert federation.receive(big, [0, 1]).tolist() == [[1, -1], [-1, 1]]
    # 0.8 * 0.2 * 1 - 0.2 * 0.3 > 0: the first round still decides; three rounds later it does not.
    assert federation.receive(small, [0]).tolist() == [[1, -1]]
    assert federation.receive(small, [1]).tolist() == [[-1, 1]]
    for _ in range(4):
        votes = federation.receive(small, [0])
    assert votes.tolist() == [[-1, 1]]
    assert federation.receive(0 * small, [1]).tolist() == [[-1, 1]]
    close(federation.memories[1]["momentum"], 0.8 * (0.8 * 0.2 * big[1] + 0.2 * small[1]).double())


def test_updates_are_not_changed() -> None:
    """Making votes of updates changes them, which participants still need."""
    updates = uploads(5, 53, seed=1)
    Federation(5, torch.zeros(53)).play(updates)
    assert torch.equal(updates, uploads(5, 53, seed=1))


def test_zeros_vote_in_turn() -> None:
    """Entries that nobody moves drift, or a round in which somebody was unfit or missing counts as its turn."""
    federation = Federation(3, torch.zeros(9), weight_decay=0.0)
    little = torch.zeros(3, 9)
    little[:, 8] = 1.0
    way = torch.zeros(8)
    for now in range(20):
        step = federation.play(little).download(0)[:8]
        assert (step.sign() == (1 if now % 2 == 0 else -1)).all()
        way += step
        assert (way.abs() <= 0.01 + 1e-6).all()
    federation.send(spoil(little, [1], "NaN"), [1])
    assert (federation.receive(little, [0, 1, 2]) == 1).all()
    federation.send(little, [0])
    assert federation.receive(little, [0, 1, 2])[:, 0].tolist() == [1, -1, -1]


def test_who_has_nothing_to_send_does_not_vote() -> None:
    """A momentum of zeros votes up and down in turn and so decides where the others are divided."""
    federation, absent = (Federation(3, initial_weights(53)) for _ in range(2))
    for now in range(4):
        updates = uploads(3, 53, seed=now)
        updates[1] = 0
        verdict = federation.play(updates)
        assert verdict.silent == (1,)
        assert_equal(verdict, absent.play(updates, [0, 2]))
    federation.play(uploads(3, 53, seed=9))
    assert federation.play(torch.zeros(3, 53)).silent == ()  # the momentum votes on


@pytest.mark.parametrize("kind", ["NaN", "one NaN", "Inf", "-Inf"])
def test_unfit_updates_leave_no_trace(kind: str) -> None:
    """An update that is not finite votes, is not named, or is remembered: later votes are others than without it."""
    spoiled, absent = (Federation(5, initial_weights(53)) for _ in range(2))
    for now in range(6):
        updates = uploads(5, 53, seed=now)
        bad = [] if now in (2, 5) else [1, 3]
        good = [i for i in range(5) if i not in bad]
        verdict = spoiled.play(spoil(updates, bad, kind))
        assert verdict.set_aside == tuple(bad)
        assert finite_fraction(verdict) == 1
        assert_equal(verdict, absent.play(updates, good))
    for one, other in zip(spoiled.memories, absent.memories, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", ["NaN", "one NaN", "Inf", "-Inf"])
def test_nothing_but_unfit_updates(kind: str) -> None:
    """A round without any vote moves weights, even by their decay, or does not end."""
    federation = Federation(5, initial_weights(53), setting="literal")
    verdict = federation.play(spoil(uploads(5, 53, seed=1), range(5), kind))
    assert verdict.set_aside == (0, 1, 2, 3, 4)
    assert torch.equal(downloads(verdict), torch.zeros(5, 53))
    assert verdict.members.all()
    assert federation.server.model is not None
    assert torch.equal(federation.server.model, initial_weights(53))
    assert federation.memories == [{}] * 5


def test_enormous_updates_do_not_vote() -> None:
    """An update that is too long to compute with votes, is not named, or stays in its sender's momentum."""
    server = Federation(5, initial_weights(53))
    verdict = server.play(spoil(uploads(5, 53, seed=1), [1, 3], "1e38"))
    assert verdict.set_aside == (1, 3)
    assert [bool(memory) for memory in server.memories] == [True, False, True, False, True]


@every_kind
def test_uploads_that_are_no_signs(kind: str) -> None:
    """Whatever an adversary puts in place of signs makes a step that is no number, or is not named."""
    server, absent = (Federation(5, initial_weights(53)).server for _ in range(2))
    rows = uploads(5, 53, seed=1)
    verdict = server.step(spoil(rows, [0, 2], kind), range(5))
    assert verdict.set_aside == (0, 2)
    assert finite_fraction(verdict) == 1
    assert_equal(verdict, absent.step(rows[[1, 3, 4]], [1, 3, 4]))


@pytest.mark.parametrize("setting", SETTINGS)
def test_resumes_to_the_same_bits(setting: Any) -> None:
    """A run that was interrupted after any round goes on otherwise: momentum, turns, model or rate are lost."""
    whole = Federation(5, initial_weights(53), setting=setting)
    saved, verdicts = [], []
    for now in range(6):
        saved.append(through_file({"server": whole.server.state_dict(), "memories": whole.memories}))
        verdicts.append(whole.play(sparse_updates(5, 53, seed=now)))
    for done in range(6):
        resumed = Federation(5, initial_weights(53), setting=setting)
        resumed.server.load_state_dict(saved[done]["server"])
        resumed.memories = saved[done]["memories"]
        for now in range(done, 6):
            assert_equal(resumed.play(sparse_updates(5, 53, seed=now)), verdicts[now])


def test_saved_state_stays() -> None:
    """A state that is kept in memory moves on with the run."""
    federation = Federation(5, initial_weights(53))
    federation.play(uploads(5, 53, seed=1))
    state = federation.server.state_dict()
    before = {name: value.clone() if isinstance(value, Tensor) else value for name, value in state.items()}
    federation.play(uploads(5, 53, seed=2))
    assert torch.equal(state["model"], before["model"])
    assert state["round"] == before["round"] == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("step_size", 0.0),
        ("step_size", -0.1),
        ("step_size", math.nan),
        ("step_decay", 0.0),
        ("step_decay", -1.0),
        ("step_decay", math.nan),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("step_size", float("inf")),
        ("weight_decay", float("inf")),
        ("momentum", math.nan),
        ("weight_decay", -1e-4),
        ("weight_decay", math.nan),
    ],
)
def test_refuses(option: str, value: float) -> None:
    """A value without a meaning gets through to the first round, or the message does not name the option."""
    settings: dict[str, Any] = {option: value}
    assert_refused(lambda: SignSGD(**settings), f"--server.{option}", str(value))
