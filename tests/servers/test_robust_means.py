"""Trimmed mean, geometric median and centered clipping: their steps, defaults, state and refusals."""

from typing import Any

import numpy as np
import pytest
import torch

from rffl_pl.servers import CenteredClipping, GeometricMedian, TrimmedMean
from tests.functional.reference import (
    close,
    reference_centered_clipping,
    reference_geometric_median,
    reference_trimmed_mean,
    uploads,
)
from tests.servers.tasks import assert_equal, assert_refused, shards, task, through_file
from tests.servers.test_consensus import every_size, one_round, started, step_of


@every_size
def test_trimmed_mean(m: int, entries: int, seed: int) -> None:
    """The step is not the coordinates' trimmed mean, or depends on shard sizes."""
    rows = uploads(m, entries, seed)
    for trim in (0.0, 0.1, 0.2, 0.25, 0.34, 0.49):
        verdict = one_round(TrimmedMean(trim=trim), rows)
        close(step_of(verdict), reference_trimmed_mean(rows.tolist(), int(trim * m + 1e-9)))
        assert torch.equal(step_of(one_round(TrimmedMean(trim=trim), rows, [1] * m)), step_of(verdict))


def test_a_share_that_binary_fractions_miss() -> None:
    """29 % of 100 uploads are 28 of them."""
    rows = uploads(100, 7, seed=1)
    close(step_of(one_round(TrimmedMean(trim=0.29), rows)), reference_trimmed_mean(rows.tolist(), 29), 1e-6)
    assert step_of(one_round(TrimmedMean(trim=0.4999999999), rows[:10])).isfinite().all()  # two of ten are left


@every_size
def test_geometric_median(m: int, entries: int, seed: int) -> None:
    """Another point has a smaller sum of distances, or the weights are not those that make the step."""
    rows = uploads(m, entries, seed)
    verdict, points = one_round(GeometricMedian(), rows), rows.double().numpy()
    step, best = step_of(verdict).double().numpy(), reference_geometric_median(rows.tolist())
    total = [np.linalg.norm(points - point, axis=1).sum() for point in (step, best)]
    assert total[0] <= total[1] * (1 + 1e-5)
    if entries > 1:  # on a line there may be many
        close(step_of(verdict), best, 1e-3)
    close(verdict.weights @ rows.double(), step)
    assert float(verdict.weights.sum()) == pytest.approx(1)


def test_geometric_median_golden() -> None:
    """Of a square's corners and a far point the step is drawn away, or a majority at one place does not decide."""
    square = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    close(step_of(one_round(GeometricMedian(), square)), [0, 0], 1e-6)
    place = torch.tensor([[3.0, 4]])
    agreed = torch.cat([place.repeat(3, 1), 1e6 * uploads(2, 2, seed=1)])
    close(step_of(one_round(GeometricMedian(), agreed)), place[0], 1e-4)


@pytest.mark.parametrize("length", [1e3, 1e9, 1e17])
def test_geometric_median_of_uploads_of_any_length(length: float) -> None:
    """Two huge uploads of seven draw it elsewhere than the definition says: rounding ruins the distances."""
    rows = torch.cat([uploads(5, 53, seed=3), length * uploads(2, 53, seed=4)])
    close(step_of(one_round(GeometricMedian(), rows)), reference_geometric_median(rows.tolist()), 1e-6)


@every_size
@pytest.mark.parametrize("radius", [None, 0.3, 100.0])
def test_centered_clipping(m: int, entries: int, seed: int, radius: float | None) -> None:
    """The step of some round is another, is not the next round's centre, or is forgotten by a state that travels."""
    server, centre = started(CenteredClipping(radius=radius), shards(m), entries), np.zeros(entries)
    for now in range(3):
        rows = uploads(m, entries, seed + now)
        verdict = server.step(rows, range(m))
        centre = reference_centered_clipping(rows.tolist(), centre, radius)
        close(step_of(verdict), centre)
        again = started(CenteredClipping(radius=radius), shards(m), entries)
        again.load_state_dict(through_file(server.state_dict()))
        server = again


def test_centered_clipping_bounds_what_one_upload_moves() -> None:
    """A huge upload moves the step by more than the radius over m."""
    rows = uploads(6, 53, seed=1)
    steps = []
    for length in (1.0, 1e15):
        loud = torch.cat([rows, length * uploads(1, 53, seed=2)])
        steps.append(step_of(one_round(CenteredClipping(radius=0.7), loud)))
    assert float((steps[0] - steps[1]).norm()) <= 2 * 0.7 / 7 * (1 + 1e-5)


def test_a_round_without_uploads_leaves_the_centre() -> None:
    """The centre moves although nobody sent anything."""
    rows = uploads(5, 7, seed=1)
    server, other = (started(CenteredClipping(), shards(5), 7) for _ in range(2))
    server.step(rows, range(5))
    other.step(rows, range(5))
    server.step(torch.empty(0, 7), [])
    assert_equal(server.step(-rows, range(5)), other.step(-rows, range(5)))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: TrimmedMean(trim=0.5), ["--server.trim", "[0, 0.5)", "0.5"]),
        (lambda: TrimmedMean(trim=-0.1), ["--server.trim", "-0.1"]),
        (lambda: TrimmedMean(trim=float("nan")), ["--server.trim", "nan"]),
        (lambda: CenteredClipping(radius=0.0), ["--server.radius", "positive", "0.0"]),
        (lambda: CenteredClipping(radius=float("nan")), ["--server.radius", "nan"]),
        (lambda: CenteredClipping(radius=float("inf")), ["--server.radius", "inf"]),
    ],
)
def test_refused(make: Any, named: list[str]) -> None:
    """An option out of its range is taken, or the sentence does not name it as it is typed."""
    assert_refused(lambda: make().start(task([1, 2], [2])), *named)
