"""FLAME: who is admitted by the angles of what, what is shortened to what, and the noise."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.cluster import HDBSCAN

from rffl_pl.errors import UserError
from rffl_pl.servers import FLAME, NNM, FedOpt
from tests.functional.reference import close, uploads
from tests.runs import federate
from tests.servers.tasks import assert_refused, shards, task
from tests.servers.test_consensus import every_size, one_round, started, step_of

Rows = npt.NDArray[np.float64]


def admitted(compared: Rows) -> npt.NDArray[np.bool_]:
    """The cluster of HDBSCAN at cosine distances."""
    unit = compared / np.linalg.norm(compared, axis=1, keepdims=True)
    distances = 1 - unit @ unit.T
    distances = (distances + distances.T) / 2
    clusters = HDBSCAN(
        min_cluster_size=len(unit) // 2 + 1, min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True
    ).fit_predict(distances)
    found: npt.NDArray[np.bool_] = clusters >= 0
    return found


def reference(model: Rows, rows: Rows, compare: str) -> tuple[Rows, Rows]:
    """Algorithm 1 without noise, line by line: the new model, and each upload's weight."""
    models = model + rows
    among = admitted(models if compare == "models" else rows)
    lengths = np.linalg.norm(models - model, axis=1)
    median = np.sort(lengths)[(len(lengths) - 1) // 2]
    weights = np.zeros(len(rows))
    kept = np.zeros((0, len(model)))
    for i in np.flatnonzero(among):
        gamma = median / lengths[i]
        kept = np.vstack([kept, model + (models[i] - model) * min(1.0, gamma)])
        weights[i] = min(1.0, gamma) / among.sum()
    return kept.mean(0), weights


@every_size
@pytest.mark.parametrize("compare", ["models", "uploads"])
def test_algorithm_1(m: int, entries: int, seed: int, compare: Any) -> None:
    """Admitted are others, the median is that of the admitted, or the model that is compared is not the last one."""
    if entries == 1:  # every cosine is 1 or -1: ties to the last bit
        entries = 2
    server = FLAME(compare=compare, noise_factor=0)
    first = task(shards(m + 1), [entries], initial=uploads(1, entries, seed + 50)[0])
    server.start(first)
    model = first.initial
    for now in range(3):
        rows = 0.3 * uploads(m, entries, seed + now)
        verdict = server.step(rows, [*range(1, m + 1)])
        expected, weights = reference(model.double().numpy(), rows.double().numpy(), compare)
        model = model + step_of(verdict)
        close(model, expected)
        close(verdict.weights[1:], weights)


def test_what_models_and_uploads_tell_apart() -> None:
    """Far from 0, angles of models go by anything but where uploads end, or those of uploads by their lengths."""
    rows = torch.zeros(5, 53)
    rows[:, 0] = torch.tensor([1.0, 1, 50, 1, -1])
    rows[:, 1] = torch.tensor([0.0, 0.1, 2.5, -1, 0])
    found = {}
    for compare in ("models", "uploads"):
        server = FLAME(compare=cast(Any, compare), noise_factor=0)
        server.start(task([10] * 5, [53], initial=torch.full((53,), 1e3)))
        found[compare] = server.step(rows, range(5)).weights
    assert found["models"].nonzero().flatten().tolist() == [0, 1, 3]
    assert found["uploads"].nonzero().flatten().tolist() == [0, 1, 2]
    assert float(found["uploads"][2]) == pytest.approx(float(rows[1].norm() / rows[2].norm()) / 3)


@pytest.mark.parametrize("compare", ["models", "uploads"])
def test_copies_of_less_than_half_do_not_win(compare: Any) -> None:
    """The closest two are the cluster, whoever else is there."""
    rows = uploads(9, 53, 1)
    rows[5:] = -uploads(1, 53, 2)
    weights = one_round(FLAME(compare=compare, noise_factor=0), rows).weights
    assert (weights > 0).sum() >= 5


def test_noise() -> None:
    """Its deviation is not that multiple of the median of all uploads, or it is divided by how many there are."""
    rows = uploads(5, 40_000, 3)
    server = started(FLAME(noise_factor=0.5), shards(5), 40_000)
    plain = step_of(one_round(FLAME(noise_factor=0), rows))
    noise = (server.step(rows, range(5)).download(0) - plain).double()
    assert float(noise.std()) == pytest.approx(0.5 * float(rows.norm(dim=1).median()), rel=0.03)
    assert not step_of(one_round(FLAME(noise_factor=0.5), torch.zeros(5, 7))).any()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: FLAME(noise_factor=-1.0), ["--server.noise_factor", "at least 0", "-1.0"]),
        (lambda: FLAME(noise_factor=math.nan), ["--server.noise_factor", "nan"]),
        (lambda: started(NNM(rule=FLAME()), shards(5), 7), ["--server.rule", "FLAME"]),
        (lambda: started(FedOpt(rule=FLAME()), shards(5), 7), ["--server.rule", "FLAME"]),
    ],
)
def test_refused(make: Any, named: list[str]) -> None:
    """What cannot be is taken, or the sentence does not name it as it is typed."""
    assert_refused(make, *named)


def test_corrected_steps_without_noise_alone() -> None:
    """Mean gradients that are read off a noisy step carry its noise into every step of the next round."""
    federate(FLAME(noise_factor=0), scaffold=True, rounds=1)
    with pytest.raises(UserError, match=r"--model\.scaffold, .* got FLAME"):
        federate(FLAME(), scaffold=True)
