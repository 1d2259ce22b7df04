"""Top-k: exactly k, the largest ones, the first among equals, and nested."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from rffl_pl.functional import sparsify
from rffl_pl.functional.reputation import relative_quota, settled

SPLITS = ([37], [1, 17, 1, 5, 13], [3, 1, 64, 7, 1, 25], [1], [1, 1])


def kept(aggregate: Tensor, quota: float, sizes: Sequence[int], round_up: bool = True) -> Tensor:
    """The three functions in the order in which a server calls them."""
    counts = sparsify.group_counts(quota, sizes, round_up=round_up)
    return sparsify.keep_largest(aggregate, sparsify.magnitude_ranks(aggregate, sizes), counts, sizes)


def random_vector(sizes: Sequence[int], seed: int, *, ties: bool = False) -> Tensor:
    """A vector without zeros: Gaussian, or of a few integers only so that most magnitudes tie."""
    generator = torch.Generator().manual_seed(seed)
    if ties:
        signs = torch.randint(0, 2, (sum(sizes),), generator=generator) * 2 - 1
        return (signs * torch.randint(1, 4, (sum(sizes),), generator=generator)).float()
    return torch.randn(sum(sizes), generator=generator)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("sizes", SPLITS, ids=str)
def test_ranks(sizes: list[int], ties: bool) -> None:
    """Entries are not ordered by magnitude inside their layer, or equal ones change places."""
    vector = random_vector(sizes, seed=1, ties=ties)
    ranks = sparsify.magnitude_ranks(vector, sizes).split(sizes)
    for group, group_ranks in zip(vector.split(sizes), ranks, strict=True):
        order = np.argsort(-np.abs(group.numpy()), kind="stable")
        assert group_ranks.numpy()[order].tolist() == list(range(len(group)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_of_any_numbers(dtype: torch.dtype) -> None:
    """Zeros of both signs, the smallest numbers, infinities or what is none change places with their equals."""
    hard = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 1e-38, 3e38, -math.inf, math.inf, math.nan, 1.0, -1.0], dtype=dtype)
    vector = hard[torch.randint(len(hard), (999,), generator=torch.Generator().manual_seed(8))]
    ranks = sparsify.magnitude_ranks(vector, [900, 99])
    for group, group_ranks in zip(vector.split([900, 99]), ranks.split([900, 99]), strict=True):
        magnitudes = [math.inf if math.isnan(x) else abs(x) for x in group.tolist()]
        order = sorted(range(len(group)), key=lambda i: (not group[i].isnan(), -magnitudes[i], i))
        assert group_ranks[order].tolist() == list(range(len(group)))


@pytest.mark.parametrize("quota", [0.0, 1e-9, 0.1, 1 / 3, 0.45, 0.77, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("round_up", [True, False])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("sizes", SPLITS, ids=str)
def test_keeps_exactly_the_k_largest(sizes: list[int], ties: bool, round_up: bool, quota: float) -> None:
    """Too many or too few entries survive, or not the largest, or their values change."""
    vector = random_vector(sizes, seed=0, ties=ties)
    result = kept(vector, quota, sizes, round_up)
    for group, left in zip(vector.split(sizes), result.split(sizes), strict=True):
        exact = len(group) * quota
        k = math.ceil(exact) if round_up else math.floor(exact)
        first = np.argsort(-np.abs(group.numpy()), kind="stable")[:k]
        expected = np.zeros(len(group))
        expected[first] = group.numpy()[first]
        np.testing.assert_array_equal(left, expected)


@pytest.mark.parametrize("round_up", [True, False])
@pytest.mark.parametrize("sizes", SPLITS, ids=str)
def test_full_and_empty_quota(sizes: list[int], round_up: bool) -> None:
    """Quota 1 drops an entry of a tensor (the released code's slip), or quota 0 and below keep one."""
    vector = random_vector(sizes, seed=2)
    assert torch.equal(kept(vector, 1.0, sizes, round_up), vector)
    for nothing in (0.0, -0.3):
        assert not kept(vector, nothing, sizes, round_up).any()


@pytest.mark.parametrize("quota", [Fraction(numerator, 8) for numerator in range(9)], ids=str)
@pytest.mark.parametrize("size", [1, 7, 8, 104_242])
def test_counts(quota: Fraction, size: int) -> None:
    """The number of entries is not the rounded-up (layer) or rounded-down (vector) share."""
    assert sparsify.group_counts(float(quota), [size], round_up=True) == [math.ceil(size * quota)]
    assert sparsify.group_counts(float(quota), [size], round_up=False) == [math.floor(size * quota)]


def test_one_entry_layers() -> None:
    """A one-element tensor fails or is never downloaded."""
    vector = torch.tensor([0.5, -2.0, 1.0])
    assert torch.equal(kept(vector, 0.01, [1, 1, 1]), vector)


def test_ties_are_cut_in_order() -> None:
    """All of the equal entries come through, or another choice of them each time."""
    vector = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    assert kept(vector, 0.5, [5]).tolist() == [1.0, -1.0, 1.0, 0.0, 0.0]
    assert kept(vector, 0.5, [5], round_up=False).tolist() == [1.0, -1.0, 0.0, 0.0, 0.0]
    assert kept(vector, 0.5, [2, 3]).tolist() == [1.0, 0.0, 1.0, -1.0, 0.0]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("round_up", [True, False])
@pytest.mark.parametrize("sizes", SPLITS, ids=str)
def test_supports_nest(sizes: list[int], round_up: bool, ties: bool) -> None:
    """A participant with a larger quota misses something that one with a smaller quota gets."""
    vector = random_vector(sizes, seed=3, ties=ties)
    previous = torch.zeros(sum(sizes), dtype=torch.bool)
    for step in range(41):
        support = kept(vector, step / 40, sizes, round_up) != 0
        assert (support | ~previous).all()
        previous = support
    assert previous.all()


@pytest.mark.parametrize("sizes", SPLITS, ids=str)
def test_does_not_touch_the_aggregate(sizes: list[int]) -> None:
    """One participant's download changes the aggregate that the next one's is cut from."""
    vector = random_vector(sizes, seed=4)
    before = vector.clone()
    full = kept(vector, 1.0, sizes)
    full.zero_()
    assert torch.equal(vector, before)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("dimension", [1, 2, 37, 101])
def test_largest_entries(dimension: int, ties: bool) -> None:
    """Others than the count largest survive, more of them where some are equal, or the vector itself changes."""
    vector = random_vector([dimension], seed=5, ties=ties)
    before = vector.clone()
    previous = torch.zeros(dimension, dtype=torch.bool)
    for count in range(dimension + 1):
        order = np.argsort(-np.abs(vector.numpy()), kind="stable")[:count]
        expected = np.zeros(dimension)
        expected[order] = vector.numpy()[order]
        result = sparsify.largest_entries(vector, count)
        np.testing.assert_array_equal(result, expected)
        assert ((result != 0) | ~previous).all()
        previous = result != 0
    assert torch.equal(vector, before)


def test_largest_entries_of_zeros() -> None:
    """A vector with fewer entries than asked for gets one, or loses one."""
    vector = torch.tensor([0.0, 0.0, 3.0, 0.0])
    for count in (1, 2, 4):
        assert torch.equal(sparsify.largest_entries(vector, count), vector)
    assert torch.equal(sparsify.largest_entries(0 * vector, 2), 0 * vector)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_largest_entries_hide_nothing(value: float) -> None:
    """A vector that is not finite is cut to one that is."""
    vector = random_vector([37], seed=6)
    vector[20] = value
    torch.testing.assert_close(sparsify.largest_entries(vector, 3), vector, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("sizes", SPLITS, ids=str)
def test_thresholds(sizes: list[int], ties: bool) -> None:
    """The pattern for k entries of a group is not that of its k-th largest, or entries are counted wrongly."""
    vector = random_vector(sizes, seed=7, ties=ties) * 1e-3
    keys = sparsify.sorted_magnitudes(vector, sparsify.magnitude_ranks(vector, sizes), sizes)
    counts = torch.tensor([[1 + k % n for n in sizes] for k in range(64)])
    found = sparsify.largest_pattern(counts, lambda patterns: sparsify.count_as_large(keys, patterns, sizes))
    ordered = [np.sort(np.abs(group.numpy()))[::-1] for group in vector.split(sizes)]
    expected = [[group[k - 1] for group, k in zip(ordered, row, strict=True)] for row in counts.tolist()]
    np.testing.assert_array_equal(found.to(torch.int32).view(torch.float32).numpy(), np.array(expected))
    as_large = [[(group >= value).sum() for group, value in zip(ordered, row, strict=True)] for row in expected]
    np.testing.assert_array_equal(sparsify.count_as_large(keys, found, sizes).numpy(), np.array(as_large))
    nothing = sparsify.largest_pattern(0 * counts, lambda patterns: sparsify.count_as_large(keys, patterns, sizes))
    assert not sparsify.count_as_large(keys, nothing, sizes).any()


def test_counts_of_decimal_quotas() -> None:
    """A last bit of a product costs or gives an entry."""
    for size in range(1, 300):
        for hundredth in range(1, 101):
            exact = size * hundredth
            assert sparsify.group_counts(hundredth / 100, [size], round_up=True) == [-(-exact // 100)]
            assert sparsify.group_counts(hundredth / 100, [size], round_up=False) == [exact // 100]


@pytest.mark.parametrize(("shares", "size"), [((2, 3), 3), ((2, 3), 300_000), ((5, 6), 6), ((5, 7), 7_000_000)])
def test_counts_of_earned_quotas(shares: tuple[int, int], size: int) -> None:
    """Of two of three equal shares a third entry comes, or one of five of six is lost."""
    (quota, highest) = settled(relative_quota(torch.tensor(shares).double() / sum(shares))).tolist()
    for round_up in (True, False):
        assert sparsify.group_counts(quota, [size], round_up=round_up) == [size * shares[0] // shares[1]]
    assert highest == 1


def test_a_quota_that_is_one_but_for_rounding() -> None:
    """Equal reputations differ by the rounding of sums: who has one would go without an entry."""
    assert settled(torch.tensor([1 - 2**-52, 1 - 1e-8], dtype=torch.float64)).tolist() == [1, 1 - 1e-8]
