"""Divide and conquer: who is left out, against a singular value decomposition of the uploads themselves."""

import math
from typing import Any

import pytest
import torch

from rffl_pl.errors import UserError
from rffl_pl.functional import blocks
from rffl_pl.functional.aggregation import spectral_scores
from rffl_pl.servers import DnC
from tests.functional.reference import close, reference_dnc, uploads
from tests.servers.tasks import shards
from tests.servers.test_consensus import every_size, one_round, started, step_of


@every_size
@pytest.mark.parametrize("filtering", [0.5, 1.0, 1.6])
def test_dnc(m: int, entries: int, seed: int, filtering: float) -> None:
    """Others are left out than those that stand out most, or the step is not the mean of the rest."""
    rows = uploads(m, entries, seed)
    for f in range((m + 1) // 2):
        out = math.ceil(filtering * f)
        if out >= m:
            continue
        left, expected = reference_dnc(rows.tolist(), out)
        verdict = one_round(DnC(byzantine=f, filtering=filtering), rows)
        assert verdict.weights.nonzero().flatten().tolist() == left
        close(step_of(verdict), expected)


@pytest.mark.parametrize("m", range(1, 26))
def test_a_fifth_by_default(m: int) -> None:
    """Another number than a fifth is left out where nobody says."""
    left, expected = reference_dnc(uploads(m, 53, m).tolist(), m // 5)
    verdict = one_round(DnC(), uploads(m, 53, m))
    assert verdict.weights.nonzero().flatten().tolist() == left
    close(step_of(verdict), expected)


@pytest.mark.parametrize("scale", [1e-18, 1.0, 1e12])
@pytest.mark.parametrize("beside", [0.0, 1e4])
def test_scores_of_any_length(scale: float, beside: float) -> None:
    """Scores of short, long, or nearly equal rows are not those of the rows themselves."""
    rows = scale * (uploads(9, 53, 3).double() + beside * uploads(1, 53, 4).double())
    centred = rows - rows.mean(0)
    along = torch.linalg.svd(centred).Vh[0]
    expected = (centred @ along).square()
    close(spectral_scores(blocks.gram(rows, rows[2])) / expected.max(), expected / expected.max(), 1e-6)


def test_what_is_left_of_a_few() -> None:
    """Somebody is left out where all are alike, where one is left, or where too few sent to tolerate anybody."""
    alike = uploads(1, 7, 1).repeat(6, 1)
    verdict = one_round(DnC(byzantine=0), alike)
    assert verdict.weights.tolist() == [1 / 6] * 6
    server = started(DnC(byzantine=2, filtering=1.4), shards(6), 7)
    rows = uploads(6, 7, 2)
    for senders, left in (([4], 1), ([1, 4], 2), ([0, 1, 4], 1), ([0, 1, 2, 4], 2), ([0, 1, 2, 3, 4], 2)):
        weights = server.step(rows[senders], senders).weights
        assert int((weights > 0).sum()) == left, senders
        assert float(weights.sum()) == pytest.approx(1)


def test_a_tenth_more_of_ten() -> None:
    """1.1 times 10 are 12 by binary fractions."""
    verdict = one_round(DnC(byzantine=10, filtering=1.1), uploads(30, 53, 1))
    assert int((verdict.weights > 0).sum()) == 19


def test_it_looks_in_one_direction() -> None:
    """Of two far away in different directions the nearer one is caught too: the page says that it is not."""
    rows = 0.1 * uploads(8, 53, 5)
    rows[0, 0], rows[1, 1] = 1e6, 30.0  # the honest are 0.7 long
    assert (one_round(DnC(byzantine=1), rows).weights == 0).tolist() == [True] + [False] * 7
    weights = one_round(DnC(byzantine=2), rows).weights
    assert weights[0] == 0
    assert weights[1] > 0


@pytest.mark.parametrize(
    ("settings", "participants", "named"),
    [
        ({"byzantine": -1}, 5, ("--server.byzantine", "f = -1", "at most 2")),
        ({"byzantine": 3}, 6, ("--server.byzantine", "f = 3 and P = 6", "at most 2")),
        ({"byzantine": 2, "filtering": 3.0}, 6, ("--server.filtering", "P = 6", "3.0")),
        ({"filtering": 0.0}, 6, ("--server.filtering", "positive", "0.0")),
        ({"filtering": math.nan}, 6, ("--server.filtering", "nan")),
        ({"filtering": math.inf}, 6, ("--server.filtering", "inf")),
    ],
)
def test_dnc_refuses(settings: dict[str, Any], participants: int, named: tuple[str, ...]) -> None:
    """It starts with numbers that leave nothing."""
    with pytest.raises(UserError) as error:
        started(DnC(**settings), shards(participants), 7)
    assert all(word in str(error.value) for word in named), error.value
