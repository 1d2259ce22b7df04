"""CGSV beside the authors' formulas in plain Python: rounds, quotas, missed rounds, state and refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.servers import CGSV
from tests.functional.reference import close, uploads
from tests.servers.reference import cosine, normalise, top_k_layers
from tests.servers.tasks import assert_equal, assert_refused, downloads, shards, task, through_file

LAYERS = [5, 1, 20]


class Reference:
    """CGSV in float64 loops; everybody is asked in every round."""

    def __init__(self, examples: list[int], gamma: float, alpha: float, beta: float) -> None:
        self.weights = [n / sum(examples) for n in examples]
        self.reputations = [0.0] * len(examples)
        self.gamma, self.alpha, self.beta = gamma, alpha, beta

    def step(self, rows: list[list[float]]) -> tuple[list[float], list[list[float]]]:
        """Quotas and downloads."""
        units = [normalise(row, self.gamma) for row in rows]
        aggregate = [math.fsum(w * u[k] for w, u in zip(self.weights, units, strict=True)) for k in range(len(rows[0]))]
        values = [cosine(u, aggregate) for u in units]
        old = self.reputations
        new = [max(self.alpha * r + (1 - self.alpha) * v, 1e-3) for r, v in zip(old, values, strict=True)]
        self.reputations = self.weights = [r / sum(new) for r in new]
        raised = [math.tanh(self.beta * r) for r in self.reputations]
        quotas = [t / max(raised) for t in raised]
        return quotas, [top_k_layers(aggregate, LAYERS, q) for q in quotas]


def started(participants: int = 6, participation: float = 1.0, **options: Any) -> CGSV:
    """The server before its first round."""
    server = CGSV(**options)
    server.start(task(shards(participants), LAYERS, participation=participation))
    return server


def rows_of(participants: int, seed: int) -> Tensor:
    """Uploads that share a direction, one of them turned round."""
    rows = 0.6 * uploads(1, sum(LAYERS), 1) + uploads(participants, sum(LAYERS), seed)
    rows[participants // 2] *= -1
    return rows


@pytest.mark.parametrize("participants", [1, 2, 5, 12])
@pytest.mark.parametrize(("gamma", "alpha", "beta"), [(0.5, 0.95, 1.0), (1.0, 0.5, 2.0), (0.15, 0.0, 1e7)])
def test_is_the_reference(participants: int, gamma: float, alpha: float, beta: float) -> None:
    """Another quota or download than the authors', in some round, or a state that a file does not bring back."""
    server = started(participants, gamma=gamma, alpha=alpha, altruism_degree=beta)
    reference = Reference(shards(participants), gamma, alpha, beta)
    for now in range(12):
        rows = rows_of(participants, now)
        verdict = server.step(rows, range(participants))
        quotas, parts = reference.step(rows.tolist())
        close(verdict.quotas, quotas, 1e-6)
        close(verdict.reputations, reference.reputations, 1e-6)
        close(downloads(verdict), parts, 1e-5)
        assert verdict.members.all()
        again = started(participants, gamma=gamma, alpha=alpha, altruism_degree=beta)
        again.load_state_dict(through_file(server.state_dict()))
        server = again


def test_altruism_sends_everybody_everything() -> None:
    """The largest degree still holds entries back, or the smallest does not."""
    for degree, everything in ((1e7, True), (0.5, False)):
        server = started(altruism_degree=degree)
        for now in range(3):
            verdict = server.step(rows_of(6, now), range(6))
        assert bool((verdict.quotas == 1).all()) == everything


def test_lengths_do_not_matter() -> None:
    """A long upload weighs more than a short one, or a participant keeps some of its own update."""
    rows = rows_of(6, 1)
    lengths = torch.tensor([1e-3, 1, 7, 1e4, 0.2, 3]).unsqueeze(1)
    one, other = (started().step(r, range(6)) for r in (rows, lengths * rows))
    close(one.reputations, other.reputations, 1e-6)
    close(downloads(one), downloads(other), 1e-5)
    assert not started().kept(rows[0]).any()


def test_nobody_is_removed() -> None:
    """Whoever uploads the opposite for 40 rounds is removed, or is sent more than next to nothing."""
    server = started()
    for _ in range(40):
        verdict = server.step(rows_of(6, 1), range(6))
    assert verdict.members.all()
    assert verdict.quotas[3] < 0.02
    assert verdict.reputations.min() > 0


def test_rounds_without_uploads_change_nothing() -> None:
    """A round in which nobody sends anything moves a reputation or sends something."""
    server = started()
    before = server.step(rows_of(6, 1), range(6)).reputations
    for rows, senders in ((torch.zeros(6, sum(LAYERS)), range(6)), (torch.empty(0, sum(LAYERS)), range(0))):
        verdict = server.step(rows, senders)
        close(verdict.reputations, before, 1e-12)
        assert not downloads(verdict).any()


def test_missed_rounds() -> None:
    """Whoever is not asked gains or loses, the asked do not share what they had, or weights do not add up to 1."""
    server = started(participation=0.5)
    assert server.reputations is not None
    close(server.reputations, torch.tensor(shards(6)) / sum(shards(6)), 1e-6)
    for now in range(6):
        here = [i for i in range(6) if (i + now) % 2]
        before = server.reputations
        assert before is not None
        verdict = server.step(rows_of(6, now)[here], here)
        elsewhere = [i for i in range(6) if i not in here]
        assert torch.equal(verdict.reputations[elsewhere], before[elsewhere])
        assert verdict.similarities[elsewhere].isnan().all()
        assert float(verdict.reputations.sum()) == pytest.approx(1)
        assert float(verdict.weights.sum()) == pytest.approx(1)


def test_starts_afresh() -> None:
    """A server that starts afresh remembers the run before."""
    server = started()
    first = server.step(rows_of(6, 1), range(6))
    server.start(task(shards(6), LAYERS))
    assert_equal(server.step(rows_of(6, 1), range(6)), first)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"gamma": 0.0}, ["--server.gamma", "positive", "0.0"]),
        ({"gamma": math.inf}, ["--server.gamma", "inf"]),
        ({"altruism_degree": -1.0}, ["--server.altruism_degree", "-1.0"]),
        ({"altruism_degree": math.nan}, ["--server.altruism_degree", "nan"]),
        ({"alpha": 1.5}, ["--server.alpha", "[0, 1]", "1.5"]),
    ],
)
def test_refused(options: dict[str, float], named: list[str]) -> None:
    """An option out of its range is taken, or the sentence does not name it as it is typed."""
    assert_refused(lambda: CGSV(**options), *named)
