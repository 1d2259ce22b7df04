"""FedMGDA+: the shortest combination within its box, against scipy, and what it promises every participant."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from rffl_pl.functional.aggregation import least_norm_weights, pairwise_cosines
from rffl_pl.servers import NNM, FedMGDA
from tests.functional.reference import close, uploads
from tests.servers.tasks import assert_refused, shards, task
from tests.servers.test_consensus import every_size, one_round, step_of

SLACKS = (0.0, 0.05, 0.1, 0.5, 1.0)


def directions(rows: Tensor) -> np.ndarray:
    """Rows of length 1."""
    plain = rows.double().numpy()
    unit: np.ndarray = plain / np.linalg.norm(plain, axis=1, keepdims=True)
    return unit


def shortest(rows: np.ndarray, slack: float) -> np.ndarray:
    """Their shortest combination by scipy, which knows nothing of inner products."""
    m = len(rows)
    found = minimize(
        lambda weights: float((weights @ rows) @ (weights @ rows)),
        np.full(m, 1 / m),
        jac=lambda weights: 2 * rows @ (weights @ rows),
        method="SLSQP",
        bounds=[(max(0.0, 1 / m - slack), 1 / m + slack)] * m,
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1, "jac": lambda weights: np.ones(m)},
        options={"maxiter": 2000, "ftol": 1e-15},
    )
    combined: np.ndarray = found.x @ rows
    return combined


def assert_shortest(weights: Tensor, gram: Tensor, slack: float) -> None:
    """The weights are in the box, and none could go from one row to another and make the combination shorter."""
    least, most = max(0.0, 1 / len(gram) - slack), 1 / len(gram) + slack
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12)
    assert ((weights >= least) & (weights <= most)).all()
    products = gram @ weights
    may_give, may_take = products[weights > least], products[weights < most]
    assert not len(may_give) or not len(may_take) or float(may_give.max() - may_take.min()) <= 1e-10


@every_size
@pytest.mark.parametrize("slack", SLACKS)
def test_the_shortest_combination(m: int, entries: int, seed: int, slack: float) -> None:
    """A combination that is longer, outside of the box, or of other directions."""
    rows = uploads(m, entries, seed) + 0.5 * uploads(1, entries, seed + 1)
    unit = directions(rows)
    gram = torch.from_numpy(unit @ unit.T)
    found = least_norm_weights(gram, slack)
    assert_shortest(found, gram, slack)
    weights, expected = found.numpy(), shortest(unit, slack)
    assert np.linalg.norm(weights @ unit) <= np.linalg.norm(expected) + 1e-9
    close(torch.from_numpy(weights @ unit), expected, 1e-5)


@pytest.mark.parametrize("m", [1, 2, 5, 12])
def test_a_step_is_that_combination(m: int) -> None:
    """The step has another length or direction, or the shares that are reported are not those."""
    rows = uploads(m, 53, m)
    lengths = rows.double().norm(dim=1)
    unit = directions(rows)
    for length in (None, 0.3):
        verdict = one_round(FedMGDA(length=length), rows)
        close(step_of(verdict), (lengths.median().item() if length is None else length) * shortest(unit, 0.1), 1e-5)
        shares = verdict.measures["share"]
        assert shares.sum().item() == pytest.approx(1)
        close(shares, least_norm_weights(pairwise_cosines(rows.double() @ rows.double().T), 0.1), 1e-6)


@pytest.mark.parametrize("m", [2, 6, 40])
def test_nobody_loses(m: int) -> None:
    """With all the slack no upload is opposed by the step, whose product with each is at least its own square."""
    rows = uploads(m, 200, m) + uploads(1, 200, 3)
    unit = torch.from_numpy(directions(rows))
    step = torch.from_numpy(np.asarray(step_of(one_round(FedMGDA(slack=1, length=1), rows)), dtype=np.float64))
    assert (unit @ step >= step.dot(step) - 1e-6).all()


def test_rows_that_are_each_others_opposites() -> None:
    """There is no direction in which nobody loses: the step is 0, and not rounding blown up."""
    row = uploads(1, 53, 1)
    verdict = one_round(FedMGDA(slack=1), torch.cat([row, -row]))
    assert float(torch.as_tensor(step_of(verdict)).abs().max()) < 1e-7


def test_many_that_are_nearly_the_same() -> None:
    """The search for a thousand uploads along one direction ends before the combination is the shortest."""
    rows = uploads(1, 300, 1) + 0.01 * uploads(1000, 300, 2)
    cosines = pairwise_cosines(rows.double() @ rows.double().T)
    assert_shortest(least_norm_weights(cosines, 0.1), cosines, 0.1)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"slack": -0.1}, "--server.slack to lie in [0, 1], but got -0.1"),
        ({"slack": float("nan")}, "--server.slack to lie in [0, 1], but got nan"),
        ({"length": 0.0}, "--server.length to be a positive number, but got 0.0"),
    ],
)
def test_options_out_of_range(settings: dict[str, float], named: str) -> None:
    """A negative box has no weights in it."""
    assert_refused(lambda: FedMGDA(**settings), named)


def test_mixed_uploads_that_cancel() -> None:
    """Two and two that are opposite, each replaced by the mean of all: NaN in place of no step."""
    one = uploads(1, 53, 1)
    server = NNM(rule=FedMGDA(), tolerated=0)
    server.start(task(shards(4), [53]))
    verdict = server.step(torch.cat([one, one, -one, -one]), range(4))
    assert not verdict.download(0).any()
