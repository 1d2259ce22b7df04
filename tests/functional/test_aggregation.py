"""The rules without state against float64 loops written from their definitions alone, and their laws."""

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import HDBSCAN
from torch import Tensor

from rffl_pl.functional import aggregation
from rffl_pl.functional.aggregation import (
    clamp_entries,
    foolsgold_weights,
    geometric_median_weights,
    majority,
    majority_vote,
    pairwise_cosines,
    q_fair_weights,
    smallest,
    squared_distances,
)
from rffl_pl.functional.blocks import gram, squared_norms
from rffl_pl.functional.finite import sound
from rffl_pl.functional.order import coordinate_median, trimmed_mean
from rffl_pl.functional.reputation import clip, weighted_sum
from rffl_pl.servers import CenteredClipping
from tests.functional.reference import (
    FOOLSGOLD_ROWS,
    KRUM_ROWS,
    Q_BEFORE,
    Q_LOSSES,
    Q_ROWS,
    SIGN_ROWS,
    close,
    permuted,
    random_losses,
    reference_foolsgold,
    reference_krum_scores,
    reference_q_fedavg,
    reference_vote,
    uploads,
)
from tests.servers.tasks import task

every_size = pytest.mark.parametrize(
    ("m", "entries", "seed"), [(m, d, 100 * m + d) for m in range(3, 13) for d in (1, 7, 53)]
)


def random_inputs() -> Iterable[tuple[int, Tensor]]:
    """Inputs of the laws: seeds and uploads of several sizes."""
    return [(seed, uploads(m, 7, seed)) for seed, m in enumerate((3, 4, 7, 12))]


def distances(rows: Tensor) -> Tensor:
    """Squared distances of rows, centred on the shortest."""
    return squared_distances(gram(rows, rows[int(squared_norms(rows).argmin())]))


def clamped(rows: Tensor, bound: float) -> Tensor:
    """Every row clamped."""
    return torch.stack([clamp_entries(row, bound) for row in rows])


def krum_scores(rows: Tensor, byzantine: int) -> Tensor:
    """Krum's scores of rows."""
    return aggregation.krum_scores(distances(rows), byzantine)


def linked(distances: list[list[float]], most: float, one: int) -> set[int]:
    """Whom steps of no more than some length lead to from one."""
    found, ahead = {one}, [one]
    while ahead:
        here = ahead.pop()
        there = {j for j, distance in enumerate(distances[here]) if distance <= most} - found
        found |= there
        ahead += there
    return found


@pytest.mark.parametrize("seed", range(40))
def test_majority(seed: int) -> None:
    """It is not the first group of more than half that links form, nor the cluster of HDBSCAN; ties among them."""
    generator = np.random.default_rng(seed)
    m = int(generator.integers(2, 14))
    points = generator.normal(size=(m, 3)) + 3 * generator.integers(0, 3, size=(m, 1))
    if seed % 2:
        points = points.round()
    between = np.sqrt(((points[:, None] - points) ** 2).sum(-1))
    groups = [linked(between.tolist(), t, i) for t in sorted(set(between.flatten().tolist())) for i in range(m)]
    expected = next(group for group in groups if 2 * len(group) > m)
    found = majority(torch.from_numpy(between))
    assert set(found.nonzero().flatten().tolist()) == expected
    clusters = HDBSCAN(
        min_cluster_size=max(2, m // 2 + 1), min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True
    ).fit_predict(between)
    assert ((clusters >= 0) == found.numpy()).all()
    rounded = between * (1 + 1e-15 * generator.normal(size=between.shape))
    assert 2 * int(majority(torch.from_numpy(rounded)).sum()) > m


def test_majority_of_one() -> None:
    assert majority(torch.zeros(1, 1)).tolist() == [True]


@every_size
def test_krum_scores(m: int, entries: int, seed: int) -> None:
    """Scores of some f differ from the sum of the m - f - 2 smallest squared distances to others."""
    rows = uploads(m, entries, seed)
    for f in range((m - 1) // 2):
        close(krum_scores(rows, f), reference_krum_scores(rows.tolist(), f))


def test_krum_scores_golden() -> None:
    """The worked example: self is counted, distances are not squared, or m - f - 1 neighbours are taken."""
    scores = krum_scores(torch.tensor(KRUM_ROWS), 1)
    close(scores, [4.5, 6.5, 13.5, 5.5, 687.5, 4.0, 12.5], 1e-12)
    close(torch.from_numpy(reference_krum_scores(KRUM_ROWS, 1)), scores, 1e-12)
    assert [int(smallest(scores, k).sum() - smallest(scores, k - 1).sum()) + 1 for k in range(1, 8)] == [
        6, 1, 4, 2, 7, 3, 5,
    ]  # fmt: skip


def test_smallest_takes_the_first_of_equals() -> None:
    """A tie goes to another than the smallest index, or the indices do not ascend."""
    assert smallest(torch.tensor([2.0, 1.0, 1.0, 1.0, 0.5]), 3).tolist() == [1, 2, 4]
    assert smallest(torch.ones(9), 4).tolist() == [0, 1, 2, 3]


def test_krum_laws() -> None:
    """Scores depend on the order of rows or on a common shift, or do not grow with the square of the scale."""
    for seed, rows in random_inputs():
        f = (len(rows) - 3) // 2
        scores, order = krum_scores(rows, f), permuted(len(rows), seed)
        close(krum_scores(rows[order], f), scores[order], 1e-12)
        close(krum_scores(-4 * rows, f), 16 * scores, 1e-12)
        shift = uploads(1, rows.shape[1], seed + 50)[0]
        close(krum_scores(rows.double() + shift, f), krum_scores(rows.double(), f), 1e-9)


def test_krum_scores_of_close_rows() -> None:
    """Rows close to each other and far from 0 lose their distances to cancellation, or get negative ones."""
    rows = 1000 + 1e-3 * uploads(7, 53, seed=1).double()
    close(krum_scores(rows, 2) * 1e6, 1e6 * reference_krum_scores(rows.tolist(), 2))
    assert (distances(rows.repeat(2, 1)) >= 0).all()
    assert krum_scores(rows[:1].repeat(5, 1), 1).tolist() == [0.0] * 5


def defined_weights(history: Tensor, kappa: float = 1.0) -> Tensor:
    """The weights, with 1 for everybody where none are defined."""
    weights = foolsgold_weights(gram(history), kappa)
    return torch.ones(len(history), dtype=torch.float64) if weights is None else weights


@every_size
@pytest.mark.parametrize("kappa", [1.0, 0.3])
def test_foolsgold_weights(m: int, entries: int, seed: int, kappa: float) -> None:
    """Weights differ from the definition's at some size or confidence."""
    history = uploads(m, entries, seed)
    close(defined_weights(history, kappa), reference_foolsgold(history.tolist(), kappa)[2])


def test_foolsgold_inputs_reach_between_0_and_1() -> None:
    """The random histories above give only weights 0 and 1, and so would hide a wrong logit."""
    histories = [uploads(m, d, 100 * m + d).tolist() for m in range(3, 13) for d in (7, 53)]
    weights = np.concatenate([reference_foolsgold(history)[2] for history in histories])
    assert ((weights > 0.01) & (weights < 0.99)).sum() >= 10
    assert (weights == 0).sum() >= 5
    assert (weights == 1).sum() >= 5


def test_foolsgold_golden() -> None:
    """The worked example: pardoning goes the wrong way, or the logit is not clamped."""
    v, a, final = reference_foolsgold(FOOLSGOLD_ROWS)
    np.testing.assert_allclose(v, [0.192450, 0.202054, 0.999907, 0.999907], atol=6e-7)
    np.testing.assert_allclose(a, [0.962960, 0.959170, 0.000093, 0.000093], atol=6e-7)
    assert final.tolist() == [1, 1, 0, 0]
    history = torch.tensor(FOOLSGOLD_ROWS)
    close(pairwise_cosines(gram(history)).fill_diagonal_(0).max(1).values, v, 1e-6)
    assert defined_weights(history).tolist() == [1, 1, 0, 0]


def test_foolsgold_laws() -> None:
    """Weights leave [0, 1], depend on the order of rows, or on their lengths."""
    for seed, history in random_inputs():
        weights, order = defined_weights(history), permuted(len(history), seed)
        assert ((weights >= 0) & (weights <= 1)).all()
        close(defined_weights(history[order]), weights[order], 1e-9)
        lengths = 2.0 ** torch.arange(len(history))[:, None]
        close(defined_weights(history * lengths), weights, 1e-9)


def test_foolsgold_catches_two_clones_among_honest_rows() -> None:
    """Two clones among eight orthogonal rows keep a weight, or take an honest row's."""
    clone = torch.zeros(10)
    clone[8:] = 1
    history = torch.cat([torch.eye(10)[:8], torch.stack([clone, 3 * clone])])
    close(defined_weights(history), [1.0] * 8 + [0.0] * 2, 1e-12)


@pytest.mark.parametrize("entries", [1, 7, 53])
@pytest.mark.parametrize("lengths", ["equal", "different"])
def test_foolsgold_of_one_direction_is_not_defined(entries: int, lengths: str) -> None:
    """Where all rows point the same way rounding alone makes weights, which must be reported as not defined."""
    for seed in range(10):
        m = 3 + seed
        row = uploads(1, entries, seed)
        history = row * (torch.ones(m, 1) if lengths == "equal" else torch.linspace(0.3, 3, m)[:, None])
        assert foolsgold_weights(gram(history)) is None, f"seed {seed}: {foolsgold_weights(gram(history))}"


def test_foolsgold_rows_of_zeros() -> None:
    """A row of zeros has a similarity, or a NaN; it resembles nobody."""
    history = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    assert pairwise_cosines(gram(history)).tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    close(defined_weights(history), [1, 0, 0, 1], 1e-12)
    assert defined_weights(torch.zeros(3, 5)).tolist() == [1, 1, 1]


def q_step(rows: Tensor, losses: Any, q: float, lipschitz: float, shares: Any = None) -> Tensor:
    """q-FedAvg's step."""
    shares = torch.ones(len(rows)) if shares is None else shares
    losses, shares = (torch.as_tensor(values, dtype=torch.float64) for values in (losses, shares))
    return weighted_sum(rows, q_fair_weights(losses, squared_norms(rows), shares, q, lipschitz))


@every_size
@pytest.mark.parametrize("q", [0, 0.1, 1, 5])
def test_q_fair_weights(m: int, entries: int, seed: int, q: float) -> None:
    """The step is not the paper's quotient, at some size, q or learning rate, with shares or without."""
    rows, losses = uploads(m, entries, seed), random_losses(m, seed)
    for lipschitz in (1.0, 1 / 0.15, 100.0):
        for shares in (None, [1.0 + i for i in range(m)]):
            expected = reference_q_fedavg(rows.tolist(), losses.tolist(), q, lipschitz, shares)[1]
            close(q_step(rows, losses, q, lipschitz, shares), expected)


@pytest.mark.parametrize(
    ("q", "shares", "h", "after"),
    [
        (0, None, (10, 10, 10), (1.000000, 1.866667)),
        (1, None, (10, 54, 11), (1.053333, 1.873333)),
        (0.1, None, (10.263363, 12.539750, 10.100000), (1.010615, 1.865489)),
        (1, (0.2, 0.3, 0.5), None, (1.046414, 1.877637)),
    ],
)
def test_q_fair_golden(q: float, shares: Any, h: Any, after: tuple[float, float]) -> None:
    """The worked example: losses weigh at q = 0, norms are not squared, q - 1 has another sign, h has no shares."""
    expected_h, expected_step = reference_q_fedavg(Q_ROWS, Q_LOSSES, q, 10, shares)
    if h is not None:
        np.testing.assert_allclose(expected_h, h, atol=6e-7)
        losses, norms = torch.tensor(Q_LOSSES).double(), squared_norms(torch.tensor(Q_ROWS))
        weights = q_fair_weights(losses, norms, torch.ones(3).double(), q, 10)
        close(weights, 10 * losses**q / sum(h), 1e-6)
    np.testing.assert_allclose(np.array(Q_BEFORE) + expected_step, after, atol=6e-7)
    close(torch.tensor(Q_BEFORE) + q_step(torch.tensor(Q_ROWS), Q_LOSSES, q, 10, shares), after, 6e-7)


def test_q_fair_weights_of_q_0() -> None:
    """With q = 0 losses, norms or the learning rate count: it is not the mean, or the mean weighted by shares."""
    for seed, rows in random_inputs():
        shares = torch.arange(1, len(rows) + 1).double()
        for losses in (torch.zeros(len(rows)), random_losses(len(rows), seed, -12, 12)):
            close(q_step(rows, losses, 0, 7.0), rows.double().mean(0))
            close(q_step(rows, losses, 0, 7.0, shares), (shares / shares.sum()) @ rows.double())


@pytest.mark.parametrize(
    ("q", "losses"), [(1000, [2.5, 1.0]), (400, [10.0, 1.0]), (400, [0.1, 0.12]), (20, [1e16, 1.0]), (60, [3.0, 2.9])]
)
def test_q_fair_weights_of_a_large_q(q: int, losses: list[float]) -> None:
    """A power overflows, and its owner does not count, or vanishes, and nobody does; exact numbers say otherwise."""
    raised = [Fraction(loss) + Fraction(1e-10) for loss in losses]
    powers = [value**q for value in raised]
    factors = [1 + Fraction(q) * 10 * Fraction(0.01) / value for value in raised]
    total = sum(power * factor for power, factor in zip(powers, factors, strict=True))
    weights = q_fair_weights(torch.tensor(losses), torch.full((2,), 0.01).double(), torch.ones(2).double(), q, 10.0)
    np.testing.assert_allclose(weights, [float(power / total) for power in powers], rtol=2e-5, atol=1e-300)


def test_q_fair_weights_of_what_diverged() -> None:
    """Whose loss is infinite counts, or takes the others along; with q = 0 nobody asks for losses."""
    norms, shares = torch.full((2,), 0.01).double(), torch.ones(2).double()
    alone = q_fair_weights(torch.tensor([1.0]), norms[:1], shares[:1], 5, 10.0)
    close(q_fair_weights(torch.tensor([torch.inf, 1.0]), norms, shares, 5, 10.0), [0, float(alone)], 1e-12)
    close(q_fair_weights(torch.tensor([torch.nan, 1.0]), norms, shares, 0, 10.0), [0.5, 0.5], 1e-12)
    assert not q_fair_weights(torch.full((2,), torch.nan), norms, shares, 5, 10.0).any()
    assert not q_fair_weights(torch.ones(2), norms, 0 * shares, 5, 10.0).any()
    huge = torch.tensor([1e300, 1.0], dtype=torch.float64)
    close(q_fair_weights(huge, norms, shares, 5, 10.0), [1, 0], 1e-12)


@pytest.mark.parametrize("q", [0.1, 1, 5])
def test_q_fair_laws(q: float) -> None:
    """The weights depend on the order of rows, on units, or on whether a participant counts twice or has a twin."""
    for seed, rows in random_inputs():
        m, order = len(rows), permuted(len(rows), seed)
        losses, norms, shares = random_losses(m, seed), squared_norms(rows), torch.arange(1, m + 1).double()
        weights = q_fair_weights(losses, norms, shares, q, 7.0)
        close(q_fair_weights(losses[order], norms[order], shares[order], q, 7.0), weights[order], 1e-12)
        close(q_fair_weights(losses, norms, 3 * shares, q, 7.0), weights, 1e-12)
        # Losses in another unit, with the curvature in the same; uploads in another, with the curvature in its inverse.
        close(q_fair_weights(1000 * losses, norms, shares, q, 7000.0), weights, 1e-6)
        close(q_fair_weights(losses, 1e6 * norms, shares, q, 7e-6), weights, 1e-6)
        twins = [*range(m), 1]
        doubled = shares + torch.nn.functional.one_hot(torch.tensor(1), m) * shares
        close(q_step(rows[twins], losses[twins], q, 7.0, shares[twins]), q_step(rows, losses, q, 7.0, doubled))
        assert weights.sum() <= 1


def test_q_fair_weights_favour_the_high_losses() -> None:
    """Of uploads of one length one with a lower loss weighs more, or for a large q others than the highest count."""
    for seed in range(4):
        losses, ones = random_losses(7, seed, -1, 1), torch.ones(7).double()
        order = losses.argsort()
        for q in (0.1, 1, 5):
            assert (q_fair_weights(losses, ones, ones, q, 1.0)[order].diff() > 0).all()
        share = q_fair_weights(losses, ones, ones, 300.0, 1.0)
        assert share.argmax() == order[-1]
        assert share.max() > 0.99 * share.sum()


@pytest.mark.parametrize("q", [0, 0.1, 1, 5, 300])
def test_q_fair_weights_at_the_borders(q: float) -> None:
    """Losses of 0 or near overflow, or uploads of no or of enormous length, make a weight that is no number."""
    ones = torch.ones(4).double()
    for losses in ([0.0] * 4, [0, 1e-300, 1, 1e10], [1e300] * 4, [-1e-9, 0, 1, 2], [1e300, 1, 1, 1]):
        for norms in ([0.0] * 4, [0, 1e-20, 1, 1e19], [1e19] * 4):
            loss, norm = (torch.tensor(values, dtype=torch.float64) for values in (losses, norms))
            weights = q_fair_weights(loss, norm, ones, q, 10.0)
            assert weights.isfinite().all()
            assert (weights >= 0).all()
            assert weights.sum() <= 1 + 1e-12


@every_size
def test_majority_vote(m: int, entries: int, seed: int) -> None:
    """The vote of some coordinate is not the majority's, with zeros and ties among the votes."""
    rows = uploads(m, entries, seed)
    zeros = torch.rand(m, entries, generator=torch.Generator().manual_seed(seed)) < 0.3
    for votes in (rows, rows.sign(), rows.masked_fill(zeros, 0)):
        assert majority_vote(votes).tolist() == reference_vote(votes.tolist()).tolist()


def test_majority_vote_golden() -> None:
    """The worked example: a zero votes up."""
    assert majority_vote(torch.tensor(SIGN_ROWS)).tolist() == [1, -1, -1, 1]
    assert reference_vote(SIGN_ROWS).tolist() == [1, -1, -1, 1]


def test_majority_vote_laws() -> None:
    """The vote depends on the order of rows or on lengths, is not odd, or a tie moves something."""
    for seed, rows in random_inputs():
        vote = majority_vote(rows)
        assert torch.equal(majority_vote(rows[permuted(len(rows), seed)]), vote)
        assert torch.equal(majority_vote(rows * 10.0 ** torch.linspace(-20, 20, len(rows))[:, None]), vote)
        assert torch.equal(majority_vote(-rows), -vote)
        assert torch.equal(majority_vote(rows.repeat(3, 1)), vote)
        assert not majority_vote(torch.cat([rows, -rows])).any()
        # A minority, however loud, cannot turn a coordinate on which the others agree.
        liars = 1e15 * uploads(len(rows) - 1, rows.shape[1], seed + 60)
        assert torch.equal(majority_vote(torch.cat([rows[:1].repeat(len(rows), 1), liars])), rows[0].sign())


def test_clamp_entries() -> None:
    """An entry is not cut to the bound, one within changes, or the row is scaled instead."""
    for seed, rows in random_inputs():
        for bound in (1e-3, 0.3, 1e9):
            expected = [[min(max(v, -bound), bound) for v in row] for row in rows.double().tolist()]
            result = clamped(rows, bound)
            close(result, expected, 1e-7)
            assert torch.equal(result[rows.abs() <= bound], rows[rows.abs() <= bound])
            assert torch.equal(clamped(result, bound), result)
            assert torch.equal(clamped(rows[permuted(len(rows), seed)], bound), result[permuted(len(rows), seed)])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_clamp_entries_hides_nothing(value: float) -> None:
    """An infinity becomes a number that counts, or a NaN touches another row."""
    rows = uploads(4, 7, seed=1)
    rows[2, 3] = value
    result = clamped(rows, 0.1)
    torch.testing.assert_close(result[2], rows[2], rtol=0, atol=0, equal_nan=True)
    good = [0, 1, 3]
    assert torch.equal(result[good], clamped(rows[good], 0.1))
    assert clamp_entries(torch.full((7,), 3e38), 0.1).tolist() == torch.full((7,), 0.1).tolist()


@pytest.fixture
def byzfl() -> Any:
    """The peer, a package of its own that nothing here depends on.

    Where definitions coincide, it must say the same. They differ, on purpose, in

    - Krum's neighbours: Blanchard et al. sum over the n - f - 2 closest, ByzFL over n - f - 1. Its f is therefore our
      f + 1, as far as scores go; the number of rows averaged is n - f of its own f.
    - the score: a mean there, a sum here, which orders rows alike.
    - bad uploads: there a row of NaN makes the median NaN and is what Krum chooses; here rows are screened before.
    - the clip of a norm: gamma / norm there, gamma / (norm + 1e-7) here, as in the released code of RFFL.
    """
    return pytest.importorskip("byzfl", reason="byzfl is not installed; it is no dependency of these tests")


@every_size
def test_median_of_byzfl(byzfl: Any, m: int, entries: int, seed: int) -> None:
    """ByzFL's median, or its mean of what is left when all but the middle is trimmed, is another one."""
    rows = uploads(m, entries, seed)
    close(coordinate_median(rows), byzfl.Median()(rows), 1e-6)
    for f in range((m + 1) // 2):
        close(trimmed_mean(rows, f), byzfl.TrMean(f=f)(rows), 1e-6)


@every_size
def test_geometric_median_of_byzfl(byzfl: Any, m: int, entries: int, seed: int) -> None:
    """ByzFL's steps end, after many of them, where the sum of distances is smaller."""
    rows = uploads(m, entries, seed)
    weights = geometric_median_weights(gram(rows, rows[int(squared_norms(rows).argmin())]))
    theirs, ours = byzfl.GeometricMedian(nu=1e-6, T=2000)(rows.double()), weights @ rows.double()
    total = (rows.double() - theirs).norm(dim=1).sum()
    assert (rows.double() - ours).norm(dim=1).sum() <= total * (1 + 1e-6)


def test_geometric_median_at_an_upload() -> None:
    """Where it is one, iterations creep: after 1,000 of them they were 9 % off."""
    rows = torch.tensor([[0.58079594, -0.92641091], [0.12289557, -0.0609223], [0.37840086, -0.61678934],
                         [-4.90895414, 7.36413431]])  # fmt: skip
    assert geometric_median_weights(gram(rows, rows[1])).tolist() == [0, 0, 1, 0]
    again = torch.cat([rows, rows[2:3]])  # two are there
    assert geometric_median_weights(gram(again, again[1])).tolist() == [0, 0, 0.5, 0, 0.5]
    assert geometric_median_weights(gram(rows[:2], rows[1])).tolist() == pytest.approx([0.5, 0.5])  # all between are


def test_geometric_median_is_the_best_of_all() -> None:
    """No point near it, and no upload, has a smaller sum of distances."""
    generator = torch.Generator().manual_seed(0)
    at = 0
    for m, entries in itertools.product((3, 4, 5, 8, 12), (2, 10, 100)):
        lengths = torch.randn(m, 1, generator=generator).mul(1.5).exp()
        rows = (torch.randn(m, entries, generator=generator) * lengths).double()
        weights = geometric_median_weights(gram(rows.float(), torch.zeros(entries)))
        at += int((weights == 1).any())
        median = weights @ rows
        best = (rows - median).norm(dim=1).sum()
        near = median + 1e-3 * median.norm() * torch.nn.functional.normalize(
            torch.randn(50, entries, generator=generator).double(), dim=1
        )
        others = torch.cdist(torch.cat([rows, near]), rows).sum(1)
        assert best <= others.min() * (1 + 1e-9)
    assert at > 0


def test_centered_clipping_of_byzfl(byzfl: Any) -> None:
    """ByzFL's steps from the same centre are others."""
    for seed, radius in itertools.product(range(4), (0.1, 1.0, 10.0)):
        server, theirs, last = CenteredClipping(radius=radius), byzfl.CenteredClipping(tau=radius), torch.zeros(53)
        server.start(task([10] * 7, [53]))
        for now in range(3):
            rows = uploads(7, 53, 10 * seed + now)
            theirs.m = last
            last = theirs(rows)
            close(server.step(rows, range(7)).download(0), last)


@every_size
def test_krum_of_byzfl(byzfl: Any, m: int, entries: int, seed: int) -> None:
    """Krum or Multi-Krum of ByzFL, with its f set one higher for as many neighbours, is another upload or mean."""
    rows = uploads(m, entries, seed)
    # With one neighbour alone the closest two have the same score, a tie that ByzFL's rounding breaks.
    for f in range(min((m - 1) // 2, m - 3)):
        scores = krum_scores(rows, f)
        close(rows[smallest(scores, 1)].mean(0), byzfl.Krum(f=f + 1)(rows))
        close(rows[smallest(scores, m - f - 1)].mean(0), byzfl.MultiKrum(f=f + 1)(rows))


@every_size
def test_mean_of_byzfl(byzfl: Any, m: int, entries: int, seed: int) -> None:
    """ByzFL's mean is not Multi-Krum of all rows, FedAvg of equal shards or q-FedAvg at q = 0."""
    rows = uploads(m, entries, seed)
    chosen = smallest(krum_scores(rows, 0), m)
    for mean in (byzfl.Average()(rows), byzfl.MultiKrum(f=0)(rows), byzfl.TrMean(f=0)(rows)):
        close(rows[chosen].mean(0), mean, 1e-6)
        close(weighted_sum(rows, torch.full((m,), 1 / m, dtype=torch.float64)), mean, 1e-6)
        close(q_step(rows, random_losses(m, seed), 0, 7.0), mean, 1e-6)


@pytest.mark.parametrize("gamma", [0.15, 0.5, 1.0])
def test_clip_of_byzfl(byzfl: Any, gamma: float) -> None:
    """ByzFL cuts uploads to another length."""
    for _, rows in random_inputs():
        close(torch.stack([clip(row, gamma) for row in rows]), byzfl.Clipping(c=gamma)(rows.clone()), 1e-5)


def test_screened_rows_of_byzfl(byzfl: Any) -> None:
    """With bad rows screened the rules are not ByzFL's of the others; or ByzFL screens by now, and the list is old."""
    for m in (7, 10):
        rows, bad = uploads(m, 53, seed=m), [1, m - 1]
        spoiled = rows.clone()
        spoiled[bad] = math.nan
        left = spoiled[sound(squared_norms(spoiled))]
        good = [i for i in range(m) if i not in bad]
        close(coordinate_median(left), byzfl.Median()(rows[good]), 1e-6)
        close(left[smallest(krum_scores(left, 1), 1)].mean(0), byzfl.Krum(f=2)(rows[good]), 1e-6)
        assert byzfl.Median()(spoiled).isnan().all()
        assert byzfl.Krum(f=2)(spoiled).isnan().all()


def test_foolsgold_with_a_small_confidence() -> None:
    """What stands for a weight of 1 before its logarithm is another number than 0.99."""
    weights = aggregation.foolsgold_weights(torch.eye(3, dtype=torch.float64), 0.1)
    assert weights is not None
    assert weights.tolist() == pytest.approx([0.1 * (math.log(0.99 / 0.01) + 0.5)] * 3)
