"""Nearest-neighbour mixing beside the same rule on uploads that are mixed by hand; what it withstands, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from rffl_pl.functional.aggregation import nearest_mixing, squared_distances
from rffl_pl.servers import (
    NNM,
    QFFL,
    CenteredClipping,
    Consensus,
    Evidence,
    FedAvg,
    FoolsGold,
    GeometricMedian,
    Median,
    MultiKrum,
    SignSGD,
    TrimmedMean,
)
from tests.functional.reference import close, uploads
from tests.servers.tasks import assert_refused, shards, task, through_file
from tests.servers.test_consensus import one_round, play, started, step_of

INNER: dict[str, Callable[[], Consensus]] = {
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "multi_krum": lambda: MultiKrum(byzantine=0),
    "krum": lambda: MultiKrum(byzantine=0, selected=1),
    "geometric_median": GeometricMedian,
    "centered_clipping": lambda: CenteredClipping(radius=0.5),
    "fedavg": FedAvg,
}
some_sizes = pytest.mark.parametrize(
    ("m", "entries", "seed"), [(m, d, 100 * m + d) for m in (3, 6, 12) for d in (1, 53)]
)
every_inner = pytest.mark.parametrize("inner", INNER.values(), ids=INNER)


def mixed(rows: Tensor, count: int) -> Tensor:
    """Every row replaced by the mean of the nearest ones, in loops."""
    points = rows.double().numpy()
    means = []
    for i, point in enumerate(points):
        far = [-1.0 if j == i else float(((point - other) ** 2).sum()) for j, other in enumerate(points)]
        means.append(points[sorted(range(len(points)), key=lambda j: (far[j], j))[:count]].mean(0))
    return torch.tensor(np.array(means), dtype=torch.float32)


@some_sizes
@every_inner
def test_is_the_rule_on_mixed_uploads(inner: Callable[[], Consensus], m: int, entries: int, seed: int) -> None:
    """Mixing in blocks and statistics is not mixing the uploads, over rounds and a state that travels."""
    for f in {0, 1, (m - 1) // 2}:
        server, plain = (started(one, shards(m), entries) for one in (NNM(rule=inner(), tolerated=f), inner()))
        for now in range(2):
            rows = uploads(m, entries, seed + now)
            verdict, by_hand = play(server, rows, range(m)), play(plain, mixed(rows, m - f), range(m))
            close(step_of(verdict), step_of(by_hand), 1e-4)
            # What every upload really weighs, which is what mixed ones weigh spread over those they are made of.
            assert float(verdict.weights.sum()) == pytest.approx(float(by_hand.weights.sum()))
            again = started(NNM(rule=inner(), tolerated=f), shards(m), entries)
            again.load_state_dict(through_file(server.state_dict()))
            server = again


@some_sizes
def test_weights_are_those_of_the_uploads(m: int, entries: int, seed: int) -> None:
    """The weights of a rule that combines by weights are not those that make its step."""
    rows = uploads(m, entries, seed)
    verdict = one_round(NNM(rule=GeometricMedian()), rows)
    close(step_of(verdict), verdict.weights @ rows.double(), 1e-4)


def test_mixing_brings_a_median_to_where_honest_uploads_differ() -> None:
    """Of participants with different data a median alone is nearer to their mean than one that mixes before."""
    honest = torch.eye(8).repeat_interleave(4, 1)  # nobody shares a coordinate with anybody: the median is 0
    bad = torch.full((2, 32), -50.0)
    rows = torch.cat([honest, bad])
    far = [
        float((step_of(one_round(server, rows)) - honest.mean(0)).norm())
        for server in (Median(), NNM(rule=Median(), tolerated=2))
    ]
    assert far[1] < 0.5 * far[0]


def test_nearest_mixing_golden() -> None:
    """An upload is not among its own nearest, ties do not go to the smaller index, or rows do not add up to 1."""
    rows = torch.tensor([[0.0], [1.0], [2.0], [10.0]]).double()
    mixing = nearest_mixing(squared_distances(rows @ rows.T), 2)
    close(mixing, [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]])
    alike = nearest_mixing(squared_distances(torch.ones(3, 3).double()), 1)
    assert torch.equal(alike, torch.eye(3).double())


class Lengths(Consensus):
    """Goes by lengths, as a rule of one's own may, and reports them."""

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def weigh(self, evidence: Evidence) -> Tensor:
        return evidence.squared_norms / evidence.squared_norms.sum()

    def measures(self, evidence: Evidence, weights: Tensor) -> dict[str, Tensor]:
        return {"length": evidence.squared_norms, "product": evidence.gram[0], "along": evidence.gram_times(weights)}


def test_every_statistic_is_of_the_mixed_uploads() -> None:
    """A rule of one's own is told a statistic of the uploads as they came, or its diagnostics are lost."""
    rows = uploads(9, 53, 1)
    by_hand = mixed(rows, 7).double()
    verdict = one_round(NNM(rule=Lengths(), tolerated=2), rows)
    squares = by_hand.square().sum(1)
    close(verdict.measures["length"], squares, 1e-5)
    close(verdict.measures["product"], by_hand @ by_hand[0], 1e-5)
    close(verdict.measures["along"], by_hand @ by_hand.T @ (squares / squares.sum()), 1e-5)
    close(step_of(verdict), (squares / squares.sum()) @ by_hand, 1e-5)


def test_refused() -> None:
    """A rule that goes by more than mixed uploads is taken, or an f that is too large; a rule's own words are lost."""
    for rule in (FoolsGold(), QFFL(), SignSGD(), NNM()):
        assert_refused(lambda rule=rule: NNM(rule=rule), "--server.rule", type(rule).__name__)  # type: ignore[misc]
    for f in (-1, 3):
        assert_refused(lambda f=f: NNM(tolerated=f).start(task(shards(6), [4])), "--server.tolerated", f"f = {f}")  # type: ignore[misc]
    assert_refused(
        lambda: NNM(rule=MultiKrum(byzantine=3)).start(task(shards(6), [4])), "--server.rule.byzantine", "f = 3"
    )
