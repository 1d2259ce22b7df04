"""Bulyan against its definition in loops: whom Krum selects one after another, and what is made of their values."""

import itertools
from typing import Any

import pytest
import torch

from rffl_pl.errors import UserError
from rffl_pl.functional.aggregation import selected_by_krum, squared_distances
from rffl_pl.functional.order import coordinate_median, mean_around_median
from rffl_pl.servers import ARC, Bucketing, Bulyan
from tests.functional.reference import close, permuted, reference_bulyan, uploads
from tests.servers.tasks import shards
from tests.servers.test_consensus import every_size, one_round, started, step_of
from tests.servers.test_mixing import MIXED


@pytest.mark.parametrize(("m", "f"), [(m, f) for m in (1, 2, 6, 7, 8, 11, 15, 24, 40) for f in range(1 + (m - 3) // 4)])
def test_bulyan(m: int, f: int) -> None:
    """Others are selected, or their values are averaged otherwise, than by the definition."""
    for seed, entries in enumerate((1, 7, 53)):
        rows = uploads(m, entries, 100 * m + 10 * f + seed)
        chosen, expected = reference_bulyan(rows.tolist(), f)
        verdict = one_round(Bulyan(byzantine=f), rows)
        assert verdict.weights.nonzero().flatten().tolist() == chosen
        assert verdict.weights[chosen].tolist() == [1 / len(chosen)] * len(chosen)
        close(step_of(verdict), expected)


@pytest.mark.parametrize(
    ("m", "f"), [(1, 0), (2, 0), (6, 0), (7, 1), (10, 1), (11, 2), (12, 2), (15, 3), (20, 4), (25, 5)]
)
def test_how_many_by_default(m: int, f: int) -> None:
    """A fifth, where the rule can tolerate so many of so few."""
    rows = uploads(m, 53, m)
    close(step_of(one_round(Bulyan(), rows)), reference_bulyan(rows.tolist(), f)[1])


@every_size
def test_values_around_the_median(m: int, entries: int, seed: int) -> None:
    """Some set of as many values reaches less far from the median than those that are averaged."""
    rows = uploads(m, entries, seed)
    median = coordinate_median(rows)
    for count in range(2 - m % 2, m + 1):  # of two in the middle neither is the nearest
        found = mean_around_median(rows, count)
        for k in range(entries):
            sets = [torch.stack(some) for some in itertools.combinations(rows[:, k], count)] if m < 8 else []
            if sets:
                nearest = min(sets, key=lambda some: float((some - median[k]).abs().max()))
                close(found[k], nearest.double().mean())
        assert torch.equal(mean_around_median(rows[permuted(m, seed)], count), found)
    close(mean_around_median(rows, m), rows.double().mean(0))


@pytest.mark.parametrize("m", [2, 5, 7, 11, 12, 40])
def test_values_that_several_uploads_have(m: int) -> None:
    """Two that are the farthest on one side are averaged, and a nearer one on the other side is left out."""
    eighths = torch.randint(-6, 7, (m, 300), generator=torch.Generator().manual_seed(m)) / 8
    for rows in (eighths, eighths.clamp(min=0), eighths.clamp(max=0)):
        median = coordinate_median(rows)
        for count in range(1, m + 1):
            found = mean_around_median(rows, count)
            for k, middle in enumerate(median.tolist()):
                nearest = sorted(rows[:, k].tolist(), key=lambda value: (abs(value - middle), value))[:count]
                assert found[k] == pytest.approx(sum(nearest) / count, abs=1e-6)


@pytest.mark.parametrize("m", [7, 12, 40])
def test_the_order_of_uploads(m: int) -> None:
    """The same are selected in any order: two that are nearest to each other have one score, not one rank."""
    f = (m - 3) // 4
    rows = uploads(m, 53, m).double()
    order = permuted(m, 3)
    chosen = selected_by_krum(squared_distances(rows @ rows.T), f, m - 2 * f)
    again = selected_by_krum(squared_distances(rows[order] @ rows[order].T), f, m - 2 * f)
    assert {*torch.as_tensor(order)[again].tolist()} == {*chosen.tolist()}


@pytest.mark.parametrize("kind", ["ARC", "Bucketing"])  # means of the same neighbours are equal, and rounding decides
def test_of_mixed_uploads(kind: str) -> None:
    """Uploads are clipped or averaged in buckets before it: it selects from those, and tolerates some of those."""
    m = 14 if kind == "Bucketing" else 11
    for seed in range(4):
        rows, inner = uploads(m, 53, seed), Bulyan(byzantine=1)
        server = ARC(rule=inner, tolerated=2) if kind == "ARC" else Bucketing(rule=inner)
        by_hand = MIXED[kind](rows, 2, 0)
        close(step_of(one_round(server, rows)), reference_bulyan(by_hand.tolist(), 1)[1], 1e-4)


def test_it_bears_hidden_entries() -> None:
    """Who lies in one entry alone and is near in all others moves the mean of those that Krum selects, not this."""
    rows = 0.1 * torch.randn(11, 4000, generator=torch.Generator().manual_seed(5))
    rows[:2] = rows[2:].mean(0)
    rows[:2, 0] = 5.0
    verdict = one_round(Bulyan(byzantine=2), rows)
    assert (verdict.weights[:2] > 0).all()  # they are the middle of all
    assert rows[2:, 0].min() <= step_of(verdict)[0] <= rows[2:, 0].max()
    assert rows[verdict.weights > 0, 0].mean() > 1


@pytest.mark.parametrize("scale", [1e3, 1e15, 1e30])
def test_who_is_far_away(scale: float) -> None:
    """Two of eleven that are far from all, and from each other, are selected, or their lengths overflow in a score."""
    rows = uploads(11, 53, 4)
    rows[:2] = scale * rows[:2].sign() * torch.tensor([[1.0], [-2.0]])
    verdict = one_round(Bulyan(byzantine=2), rows)
    assert (verdict.weights[:2] == 0).all()
    assert (step_of(verdict) >= rows[2:].min(0).values).all()
    assert (step_of(verdict) <= rows[2:].max(0).values).all()


def test_what_is_left_of_a_few() -> None:
    """With uploads set aside or of zeros f shrinks to what the rest allows, and the others are averaged."""
    server = started(Bulyan(byzantine=2), shards(11), 7)
    rows = uploads(11, 7, 2)
    for senders in ([4], [1, 4], [0, 1, 2, 3, 4, 5], [*range(7)], [*range(10)], [*range(11)]):
        expected = reference_bulyan(rows[senders].tolist(), min(2, max(0, (len(senders) - 3) // 4)))[1]
        close(step_of(server.step(rows[senders], senders)), expected)


@pytest.mark.parametrize(
    ("settings", "participants", "named"),
    [
        ({"byzantine": -1}, 7, ("--server.byzantine f", "4f + 3 <= P", "f = -1 and P = 7", "at most 1")),
        ({"byzantine": 2}, 10, ("--server.byzantine f", "f = 2 and P = 10", "at most 1")),
        ({"byzantine": 1}, 2, ("--server.byzantine f", "f = 1 and P = 2", "at most 0")),
    ],
)
def test_bulyan_refuses(settings: dict[str, Any], participants: int, named: tuple[str, ...]) -> None:
    """It starts with more than it can tolerate."""
    with pytest.raises(UserError) as error:
        started(Bulyan(**settings), shards(participants), 7)
    assert all(word in str(error.value) for word in named), error.value
