"""Multi-Krum: whose uploads are averaged, against the definition in loops, with some set aside too; and refusals."""

from functools import partial

import pytest
import torch

from rffl_pl.servers import Bucketing, MultiKrum
from tests.functional.reference import KRUM_ROWS, close, reference_multi_krum, uploads
from tests.servers.tasks import assert_refused, shards, spoil, task
from tests.servers.test_consensus import every_size, one_round, started, step_of


@every_size
def test_multi_krum(m: int, entries: int, seed: int) -> None:
    """Others than the m rows of smallest score are averaged, or they are not weighted alike, at some f and m."""
    rows = uploads(m, entries, seed)
    choices = [(f, selected) for f in range((m - 1) // 2) for selected in {1, 2, m - f, m}]
    for f, selected in choices:
        chosen, expected = reference_multi_krum(rows.tolist(), f, selected)
        verdict = one_round(MultiKrum(byzantine=f, selected=selected), rows)
        assert verdict.weights.nonzero().flatten().tolist() == chosen
        close(verdict.weights[chosen], [1 / selected] * selected, 1e-12)
        close(step_of(verdict), expected)


@pytest.mark.parametrize("m", range(3, 13))
def test_multi_krum_defaults(m: int) -> None:
    """By default f is not a fifth of all, rounded down, or m is not P - f."""
    rows = uploads(m, 7, seed=m)
    chosen, expected = reference_multi_krum(rows.tolist(), m // 5, m - m // 5)
    verdict = one_round(MultiKrum(), rows)
    assert verdict.weights.nonzero().flatten().tolist() == chosen
    close(step_of(verdict), expected)


@pytest.mark.parametrize(("selected", "expected"), [(1, (0.5, 0.5)), (3, (0.5, 0.5)), (6, (0.25, 7 / 12))])
def test_multi_krum_golden(selected: int, expected: tuple[float, float]) -> None:
    """The worked example, away from the zeros that are no vote, or its outlier is averaged."""
    verdict = one_round(MultiKrum(byzantine=1, selected=selected), torch.tensor(KRUM_ROWS) + 1)
    close(step_of(verdict) - 1, expected, 1e-6)
    assert verdict.weights[4] == 0


@pytest.mark.parametrize("settings", [{}, {"byzantine": 3, "selected": 5}, {"selected": 8}, {"selected": 9}], ids=str)
def test_multi_krum_of_what_is_left(settings: dict[str, int]) -> None:
    """With uploads set aside f is more than 2f + 2 < m allows, m more than are left, or somebody bad is chosen."""
    rows = uploads(10, 7, seed=1)
    for left in range(1, 11):
        good = list(range(10 - left, 10))
        f = max(0, min(settings.get("byzantine", 2), (left - 3) // 2))
        asked_for = settings.get("selected", left - f)
        selected = min(left - f if asked_for <= 10 - settings.get("byzantine", 2) else left, asked_for)
        # One or two have no neighbours to be scored by; so few are within m anyway.
        chosen, expected = reference_multi_krum(rows[good].tolist(), f, selected)
        verdict = one_round(MultiKrum(**settings), spoil(rows, range(10 - left), "NaN"))
        assert verdict.weights.nonzero().flatten().tolist() == [good[i] for i in chosen]
        close(step_of(verdict), expected)


@pytest.mark.parametrize(
    ("settings", "participants", "named"),
    [
        ({"byzantine": 1}, 4, ["byzantine", "f = 1", "P = 4", "at most 0, or take more --federation.participants"]),
        ({"byzantine": 2}, 6, ["byzantine", "f = 2", "P = 6", "at most 1"]),
        ({"byzantine": 7}, 10, ["byzantine", "f = 7", "P = 10", "at most 3"]),
        ({"byzantine": -1}, 10, ["byzantine", "f = -1"]),
        ({"selected": 0}, 10, ["selected", "1 .. 10", "got 0"]),
        ({"selected": -3}, 10, ["selected", "1 .. 10", "got -3"]),
        ({"selected": 11}, 10, ["selected", "1 .. 10", "got 11 and P = 10 participants"]),
    ],
    ids=str,
)
def test_multi_krum_refuses(settings: dict[str, int], participants: int, named: list[str]) -> None:
    """Too few participants, a negative f or a wrong m get through, or the message does not say what and where."""
    assert_refused(lambda: started(MultiKrum(**settings), shards(participants), 7), "--server.", *named)


def test_multi_krum_of_fewer_than_three() -> None:
    """An f is named that nobody gave, and that no other f mends."""
    few = "P = 3 uploads in a round or more for MultiKrum"
    for participants in (1, 2):
        got = f"got P = {participants} participants; take more --federation.participants."
        assert_refused(partial(started, MultiKrum(byzantine=0), shards(participants), 7), few, got)
    asked = task(shards(6), [7], participation=0.3)
    assert_refused(lambda: MultiKrum().start(asked), few, "2 of 6 participants", "ask more by --federation.partic")
    bucketed = Bucketing(rule=MultiKrum())
    assert_refused(lambda: started(bucketed, shards(4), 7), few, "P = 2 mixed uploads", "participants or smaller bu")


def test_how_many_are_averaged_of_those_that_are_asked() -> None:
    """The bound is a number whose source nobody sees."""
    asked = task(shards(6), [7], participation=0.5)
    named = ("selected to lie in 1 .. 3", "got 4 and P = 3 of 6 participants asked in a round", "these, or ask more by")
    assert_refused(lambda: MultiKrum(selected=4).start(asked), *named)


@pytest.mark.parametrize(("byzantine", "participants"), [(0, 3), (1, 5), (2, 7), (3, 9), (4, 11)])
def test_multi_krum_accepts_the_least_number(byzantine: int, participants: int) -> None:
    """2f + 3 participants are refused, or their outliers averaged."""
    rows = uploads(participants, 7, seed=1)
    rows[:byzantine] += 1000 * uploads(byzantine, 7, seed=2).sign()
    verdict = one_round(MultiKrum(byzantine=byzantine, selected=1), rows)
    assert (verdict.weights[:byzantine] == 0).all()
    assert verdict.weights.sum() == 1
