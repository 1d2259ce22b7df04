"""AFL and TERM against float64 references, round by round, and what their weights promise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.functional.aggregation import onto_simplex
from rffl_pl.servers import AFL, TERM, Consensus
from tests.functional.reference import close, random_losses, uploads
from tests.servers.tasks import shards, task, through_file

ENTRIES = 53


def started(server: Consensus, participants: int) -> Any:
    """The server before its first round."""
    server.start(task(shards(participants), [ENTRIES]))
    return server


def projected(values: np.ndarray) -> np.ndarray:
    """The point of the simplex nearest to a vector, by a root of the sum less 1."""
    excess = brentq(lambda tau: np.maximum(values - tau, 0).sum() - 1, values.min() - 1.5, values.max(), xtol=1e-15)
    nearest: np.ndarray = np.maximum(values - excess, 0)
    return nearest


def rounds(participants: int) -> Iterator[tuple[Tensor, Tensor, list[int]]]:
    """Uploads, losses and senders of five rounds: all, or all but one."""
    for now in range(5):
        senders = [i for i in range(participants) if now == 0 or i != now % participants]
        yield uploads(participants, ENTRIES, now), random_losses(participants, now), senders


@pytest.mark.parametrize("length", [1, 2, 5, 40])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_the_projection(length: int, scale: float) -> None:
    """It is not the nearest point, or no point of the simplex."""
    for seed in range(20):
        values = scale * torch.randn(length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        nearest = onto_simplex(values)
        np.testing.assert_allclose(nearest, projected(values.numpy()), atol=1e-12)
        assert float(nearest.sum()) == pytest.approx(1, abs=1e-12)
    assert onto_simplex(torch.tensor([1e308, -1e308, 1e308], dtype=torch.float64)).tolist() == [0.5, 0, 0.5]
    assert onto_simplex(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)).tolist() == [0.2, 0.3, 0.5]


@pytest.mark.parametrize("rate", [0, 0.01, 0.1, 5])
@pytest.mark.parametrize("participants", [2, 5, 12])
def test_afl(participants: int, rate: float) -> None:
    """The step of some round is not that of the mixture before it, or the mixture does not follow the losses."""
    server = started(AFL(rate=rate), participants)
    mixture = np.array(shards(participants), dtype=float) / sum(shards(participants))
    for rows, losses, senders in rounds(participants):
        verdict = server.step(rows[senders], senders, losses)
        weights = mixture[senders] / mixture[senders].sum() if mixture[senders].any() else mixture[senders]
        close(verdict.weights[senders], weights, 1e-9)
        close(verdict.download(0), weights @ rows[senders].double().numpy())
        mass = mixture[senders].sum()
        if mass:
            mixture[senders] = mass * projected(weights + rate * losses[senders].double().numpy())
        np.testing.assert_allclose(server.mixture, mixture, atol=1e-12)


def test_afl_goes_on() -> None:
    """A mixture is lost with the process."""
    server = started(AFL(rate=0.3), 5)
    server.step(uploads(5, ENTRIES, 1), range(5), random_losses(5, 1))
    again = started(AFL(rate=0.3), 5)
    again.load_state_dict(through_file(server.state_dict()))
    one, other = (s.step(uploads(5, ENTRIES, 2), range(5), random_losses(5, 2)) for s in (server, again))
    assert torch.equal(one.weights, other.weights)


def test_afl_comes_to_the_worst() -> None:
    """Whoever has the higher loss in every round does not have all the weight in the end."""
    server = started(AFL(rate=0.1), 3)
    losses = torch.tensor([0.5, 0.9, 0.1], dtype=torch.float64)
    for now in range(50):
        verdict = server.step(uploads(3, ENTRIES, now), range(3), losses)
    assert verdict.weights.tolist() == [0, 1, 0]


def test_afl_without_anybody_who_counts() -> None:
    """Whose share of the mixture is 0 alone is asked: NaN instead of a round in which nothing is learnt."""
    server = started(AFL(rate=100), 3)
    server.step(uploads(3, ENTRIES, 0), range(3), torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))
    verdict = server.step(uploads(3, ENTRIES, 1)[[0, 2]], [0, 2], torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64))
    assert not verdict.download(0).any()
    verdict = server.step(uploads(3, ENTRIES, 2), range(3), torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64))
    assert verdict.weights.tolist() == [0, 1, 0]
    verdict = server.step(uploads(3, ENTRIES, 3), range(3), torch.zeros(3, dtype=torch.float64))
    assert verdict.weights.tolist() == [1, 0, 0]


def test_some_are_the_federation_without_the_others() -> None:
    """Whoever never takes part has a share, which turns the mixture of the others faster: no Shapley values."""
    whole, alone = started(AFL(rate=0.02), 8), AFL(rate=0.02)
    alone.start(task(shards(8)[2:5], [ENTRIES]))
    for now in range(10):
        rows, losses = uploads(8, ENTRIES, now), random_losses(8, now)
        among = whole.step(rows[2:5], [2, 3, 4], losses)
        close(among.weights[2:5], alone.step(rows[2:5], range(3), losses[2:5]).weights.numpy(), 1e-9)
    assert (among.weights[2:5] != torch.tensor(shards(8)[2:5]) / sum(shards(8)[2:5])).any()


@pytest.mark.parametrize("tilt", [-3, 0, 0.1, 1, 20])
@pytest.mark.parametrize("participants", [2, 5, 12])
def test_term(participants: int, tilt: float) -> None:
    """Weights are not the shares of examples times the exponential of t F, over those who sent."""
    server, sizes = started(TERM(tilt=tilt), participants), shards(participants)
    for rows, losses, senders in rounds(participants):
        verdict = server.step(rows[senders], senders, losses)
        tilted = tilt * losses[senders].double().numpy()
        raised = np.array(sizes)[senders] * np.exp(tilted - tilted.max())
        close(verdict.weights[senders], raised / raised.sum(), 1e-9)
        close(verdict.download(0), raised / raised.sum() @ rows[senders].double().numpy())


@pytest.mark.parametrize(("tilt", "who"), [(1e6, 1), (-1e6, 2), (1e300, 1), (-1e300, 2)])
def test_term_at_its_ends(tilt: float, who: int) -> None:
    """A great tilt is NaN instead of the worst alone, a small one instead of the best."""
    server = started(TERM(tilt=tilt), 3)
    verdict = server.step(uploads(3, ENTRIES, 0), range(3), torch.tensor([2.0, 2e10, 1.0], dtype=torch.float64))
    assert verdict.weights.nonzero().flatten().tolist() == [who]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: AFL(rate=-0.1), r"--server\.rate to be a number from 0 on, but got -0\.1; 0 is the mean\."),
        (lambda: AFL(rate=math.inf), r"--server\.rate to be a number from 0 on, but got inf"),
        (lambda: AFL(rate=math.nan), r"--server\.rate to be a number from 0 on, but got nan"),
        (lambda: TERM(tilt=math.inf), r"--server\.tilt to be a finite number, but got inf; 0 is the mean\."),
        (lambda: TERM(tilt=math.nan), r"--server\.tilt to be a finite number, but got nan"),
    ],
)
def test_options_out_of_range(made: Any, expected: str) -> None:
    """They train nonsense."""
    with pytest.raises(UserError, match=expected):
        made()
