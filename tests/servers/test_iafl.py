"""IAFL: who is sent what, solved for from the downloads; who starts over, and from what; state and refusals."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.round.play import play
from rffl_pl.servers import IAFL, FedAvg
from tests.cohorts import examples
from tests.functional.reference import close, uploads
from tests.round.test_hostile_uploads import table
from tests.servers.tasks import assert_equal, assert_refused, downloads, shards, task, through_file

LAYERS = [5, 1, 40]
D = sum(LAYERS)


def started(participants: int = 6, participation: float = 1.0, **options: Any) -> IAFL:
    """The server before its first round."""
    server = IAFL(**options)
    server.start(task(shards(participants), LAYERS, participation=participation))
    return server


def shares(download: Tensor, rows: Tensor) -> list[float]:
    """With which weight every row is in a download; there are more entries than rows, so there is one answer."""
    found = torch.linalg.lstsq(rows.double().T, download.double().unsqueeze(1)).solution.flatten()
    close(found @ rows.double(), download, 1e-5)
    return [round(value, 5) + 0.0 for value in found.tolist()]


@pytest.mark.parametrize("participants", [1, 2, 5, 12])
@pytest.mark.parametrize("sharing", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("contributions", [None, 3])
def test_is_the_papers_mean(participants: int, sharing: float, contributions: int | None) -> None:
    """Somebody is sent more or fewer of the others, one of them twice, or its own upload with another weight."""
    told = None if contributions is None else [1 + (contributions * i) % 7 for i in range(participants)]
    server = started(participants, sharing=sharing, contributions=told)
    worth = shards(participants) if told is None else told
    rates = [(value / max(worth)) ** (1 - sharing) for value in worth]
    for now in range(3):
        rows = uploads(participants, D, now)
        verdict = server.step(rows, range(participants))
        close(verdict.quotas, rates, 1e-12)
        close(verdict.reputations, [value / max(worth) for value in worth], 1e-12)
        for i, rate in enumerate(rates):
            sent = shares(verdict.download(i), rows)
            others = math.ceil(round(rate * (participants - 1), 6))
            assert Counter(sent) == Counter({round(1 / (others + 1), 5): others + 1, 0.0: participants - 1 - others})
            assert sent[i] > 0
        assert verdict.members.all()


def test_all_of_everything_is_the_mean() -> None:
    """κ = 1 sends everybody what FedAvg with equal shards would."""
    fedavg = FedAvg()
    fedavg.start(task([10] * 6, LAYERS))
    rows = uploads(6, D, 1)
    verdict, expected = started(sharing=1.0).step(rows, range(6)), fedavg.step(rows, range(6)).download(0)
    assert all(torch.equal(verdict.download(i), verdict.download(0)) for i in range(6))
    close(verdict.download(0), expected, 1e-6)
    assert not started().kept(rows[0]).any()


def test_all_are_drawn_alike() -> None:
    """Some of the others are drawn more often than the rest, or always the same."""
    server, drawn = started(participants=7, contributions=[1, 2, 3, 4, 5, 6, 12]), Counter[int]()
    for now in range(400):
        rows = uploads(7, D, now % 5)
        drawn.update(j for j, share in enumerate(shares(server.step(rows, range(7)).download(1), rows)) if share)
    assert drawn.pop(1) == 400  # one's own
    assert sum(drawn.values()) == 400  # one of six others
    # Six equally likely: a standard deviation is 7.5, and nobody is six of them away.
    assert all(abs(count - 400 / 6) < 45 for count in drawn.values())
    assert len(drawn) == 6


def test_who_cannot_be_computed_with_is_drawn_by_nobody() -> None:
    """NaN or zeros reach somebody, whoever sent them gets nothing of the others, or fewer are left than are drawn."""
    rows = uploads(6, D, 1)
    sent = rows.clone()
    sent[1] = math.nan
    sent[2] = 0
    verdict = started(contributions=[1.0] * 6).step(sent, range(6))
    assert (verdict.set_aside, verdict.silent) == ((1,), (2,))
    good = rows[[0, 3, 4, 5]]
    for i in range(6):
        assert shares(verdict.download(i), good) == [0.25] * 4
    nothing = started().step(torch.zeros(6, D), range(6))
    assert not downloads(nothing).any()
    assert not nothing.weights.any()


def test_missed_rounds() -> None:
    """Who is not asked is sent something, or those who are asked are sent of others than of each other."""
    server = started(participation=0.5)
    rows = uploads(3, D, 1)
    verdict = server.step(rows, [0, 2, 5])
    assert not any(verdict.download(i).any() for i in (1, 3, 4))
    assert shares(verdict.download(5), rows) == pytest.approx([1 / 3] * 3, abs=1e-5)
    assert verdict.weights.nonzero().flatten().tolist() == [0, 2, 5]


def test_the_reference_is_whose_rewards_are_largest() -> None:
    """It goes another way than the largest contributor's model, by one bit, or is not brought back from a file."""
    server = started(recovery=0.5, contributions=[1, 2, 9, 3, 9, 1])
    model = torch.zeros(D)
    for now in range(5):
        verdict = server.step(uploads(6, D, now), range(6))
        model = model + 0.0 + verdict.download(2)
        assert server.reference is not None
        assert torch.equal(server.reference, model)
        again = started(recovery=0.5, contributions=[1, 2, 9, 3, 9, 1])
        again.load_state_dict(through_file(server.state_dict()))
        for i in range(6):
            assert (again.model_for(i) is None) == (server.model_for(i) is None)
        server = again


@pytest.mark.parametrize("recovery", [0.0, 0.2, 1.0])
def test_how_often_somebody_starts_over(recovery: float) -> None:
    """More or less often than q says, before the first round, or without a reference model."""
    server = started(participants=10, recovery=recovery)
    assert server.hands_models == (recovery > 0)
    assert all(server.model_for(i) is None for i in range(10))
    rows, times = uploads(10, D, 1), 0
    for _ in range(60):
        server.step(rows, range(10))
        handed = [model for model in map(server.model_for, range(10)) if model is not None]
        assert all(model is server.reference for model in handed)
        times += len(handed)
    # Of 600 lots; a standard deviation is 10 where q is 0.2.
    assert abs(times - 600 * recovery) <= (60 if 0 < recovery < 1 else 0)


class Witness(IAFL):
    """Notes the model that everybody starts a round from."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.starts: list[Tensor] = []

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        self.starts.append(model.clone())
        return super().outgoing(update, memory, model)


@pytest.mark.parametrize("recovery", [0.0, 1.0])
def test_a_run(recovery: float) -> None:
    """Nobody is brought the reference model, or everybody is in rounds in which nobody is to be."""
    server = Witness(recovery=recovery, contributions=[1, 1, 2, 3, 4])
    federation = table(server)
    for number in range(3):
        reference = None if server.reference is None else server.reference.clone()
        server.starts.clear()
        play(federation, {i: examples(i, 7) for i in range(5)}, number)
        alike = [torch.equal(start, server.starts[0]) for start in server.starts]
        assert all(alike) == (number == 0 or recovery == 1)
        if reference is not None:
            assert torch.equal(server.starts[0], reference)
    ends = federation.cohort.weights
    assert not torch.equal(ends[0], ends[4])
    if server.reference is not None:
        assert torch.equal(ends[4], server.reference)


def test_starts_afresh() -> None:
    """A server that starts afresh remembers the run before."""
    server = started(recovery=0.5)
    first = server.step(uploads(6, D, 1), range(6))
    server.start(task(shards(6), LAYERS))
    assert_equal(server.step(uploads(6, D, 1), range(6)), first)


def test_refusals() -> None:
    """In one sentence, with the option and what came."""
    assert_refused(lambda: IAFL(sharing=1.5), "--server.sharing", "got 1.5")
    assert_refused(lambda: IAFL(recovery=-0.1), "--server.recovery", "got -0.1")
    assert_refused(lambda: IAFL(recovery=math.nan), "--server.recovery", "got nan")
    for told in ([1.0] * 5, [1.0] * 5 + [0.0], [1.0] * 5 + [-1.0], [1.0] * 5 + [math.inf], []):
        expected = ("--server.contributions", "6 participants", f"got {told}")
        assert_refused(partial(started, contributions=told), *expected)
    without = started().state_dict()
    assert_refused(
        lambda: started(recovery=0.3).load_state_dict(without), "--server.recovery 0, as in the checkpoint", "got 0.3"
    )


def test_everybody_has_a_lot_of_its_own() -> None:
    """All start over together, at the right rate."""
    server = IAFL(recovery=0.5)
    server.start(task(shards(10), [40]))
    seen = []
    for now in range(10):
        server.step(uploads(10, 40, now), range(10))
        seen.append(sum(server.model_for(i) is not None for i in range(10)))
    assert any(0 < count < 10 for count in seen)
