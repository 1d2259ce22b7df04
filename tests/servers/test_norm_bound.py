"""Norm bounding: what is clipped, what is added to it, and that nobody's place or exchange changes the noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rffl_pl.errors import UserError
from rffl_pl.servers import NNM, Bucketing, NormBound
from tests.conftest import QUICK, Ended
from tests.functional.reference import close, uploads
from tests.ranks import assert_goes_on
from tests.runs import federate
from tests.servers.tasks import assert_refused, shards, task
from tests.servers.test_consensus import every_size, one_round, started, step_of

RUN = (
    "fit", "--config", "configs/digits.yaml", "--config", "configs/servers/norm_bound.yaml", "--server.noise", 0.1,
    "--federation.participants", 3, "--federation.adversaries", 1, "--data.examples_per_participant", 40,
    "--data.adversary_examples", 40, "--trainer.max_epochs", 3, *QUICK,
)  # fmt: skip


@every_size
@pytest.mark.parametrize("bound", [None, 0.3, 1e-20, 1e20])
def test_the_mean_of_what_is_bounded(m: int, entries: int, seed: int, bound: float | None) -> None:
    """Another length is the bound, shorter uploads are stretched, or shard sizes count."""
    rows = uploads(m, entries, seed)
    lengths = [math.dist(row, [0.0] * entries) for row in rows.tolist()]
    most = sorted(lengths)[(m - 1) // 2] if bound is None else bound
    expected = np.zeros(entries)
    for row, length in zip(rows.double().numpy(), lengths, strict=True):
        expected += row * min(1.0, most / length) / m
    verdict = one_round(NormBound(max_norm=bound), rows, [*range(1, m + 1)])
    close(step_of(verdict), expected)
    assert verdict.weights.tolist() == pytest.approx([min(1.0, most / length) / m for length in lengths])


@pytest.mark.parametrize("loud", [1e3, 1e15])
def test_what_one_upload_moves(loud: float) -> None:
    """An upload of any length moves the step by more than the bound over m."""
    rows = uploads(7, 53, 1)
    quiet = step_of(one_round(NormBound(max_norm=0.5), torch.cat([rows, 1e-12 * uploads(1, 53, 2)])))
    step = step_of(one_round(NormBound(max_norm=0.5), torch.cat([rows, loud * uploads(1, 53, 2)])))
    assert float((step - quiet).norm()) <= 0.5 / 8 * (1 + 1e-5)


@pytest.mark.parametrize("bound", [None, 0.7])
def test_noise(bound: float | None) -> None:
    """Its mean, deviation or independence is another than the docstring's, or rounds have the same."""
    rows, found = uploads(5, 40_000, 3), []
    server = started(NormBound(max_norm=bound, noise=2.0), shards(5), 40_000)
    plain = step_of(one_round(NormBound(max_norm=bound), rows))
    for _ in range(2):
        found.append((server.step(rows, range(5)).download(0) - plain).double())
    length = float(rows.norm(dim=1).median()) if bound is None else bound
    for noise in found:
        assert float(noise.std()) == pytest.approx(2.0 * length / 5, rel=0.03)
        assert abs(float(noise.mean())) < 4 * 2.0 * length / 5 / math.sqrt(40_000)
    assert abs(float(torch.corrcoef(torch.stack(found))[0, 1])) < 0.03


def test_noise_is_a_seeds_and_a_rounds() -> None:
    """It depends on the order of uploads or on how long the server has been there, or no seed changes it."""
    rows = uploads(5, 53, 3)
    one, other = (started(NormBound(noise=1.0), shards(5), 53) for _ in range(2))
    for now in range(3):
        step = one.step(rows + now, range(5)).download(0)
    other.round = 2
    assert torch.equal(other.step(rows + 2, range(5)).download(0), step)
    differently = NormBound(noise=1.0)
    differently.start(task([10] * 5, [53], seed=8))
    assert not torch.equal(differently.step(rows + 2, range(5)).download(0), step)


def test_a_round_without_uploads_has_no_noise() -> None:
    server = started(NormBound(max_norm=1.0, noise=1.0), shards(5), 7)
    server.step(uploads(5, 7, 1), range(5))
    assert not server.step(torch.zeros(5, 7), range(5)).download(0).any()


def test_behind_mixing() -> None:
    """What is mixed is bounded, and noise is added once."""
    rows = uploads(6, 20_000, 2)
    plain = step_of(one_round(NNM(rule=NormBound(max_norm=0.5)), rows))
    noisy = step_of(one_round(NNM(rule=NormBound(max_norm=0.5, noise=3.0)), rows))
    assert float((noisy - plain).std()) == pytest.approx(3.0 * 0.5 / 6, rel=0.03)


def test_what_mixing_cancels() -> None:
    """A mean of nothing, which has no length, ends a run as a weight that is not finite."""
    rows = torch.ones(1, 53)  # whose inner products are exact
    step = step_of(one_round(Bucketing(rule=NormBound(noise=1.0)), torch.cat([rows, -rows])))
    assert not step.any()


@pytest.mark.slow
def test_on_two_ranks_that_share_the_server(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Other noise where a rank has some of the coordinates, or after an interruption."""
    assert_goes_on(rffl, RUN, tmp_path, "--exchange", "sharded")


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: NormBound(max_norm=0.0), ["--server.max_norm", "positive", "0.0"]),
        (lambda: NormBound(max_norm=math.nan), ["--server.max_norm", "nan"]),
        (lambda: NormBound(max_norm=math.inf), ["--server.max_norm", "inf"]),
        (lambda: NormBound(noise=-1.0), ["--server.noise", "at least 0", "-1.0"]),
        (lambda: NormBound(noise=math.nan), ["--server.noise", "nan"]),
        (lambda: NormBound(noise=math.inf), ["--server.noise", "at most"]),
    ],
)
def test_refused(make: Any, named: list[str]) -> None:
    """An option out of its range is taken, or the sentence does not name it as it is typed."""
    assert_refused(make, *named)


def test_corrected_steps_without_noise_alone() -> None:
    """Mean gradients that are read off a noisy step carry its noise into every step of the next round."""
    federate(NormBound(), scaffold=True, rounds=1)
    with pytest.raises(UserError, match=r"--model\.scaffold, .* got NormBound"):
        federate(NormBound(noise=0.1), scaffold=True)
