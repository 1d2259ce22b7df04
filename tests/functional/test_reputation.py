"""The formulas of RFFL one by one, against numpy in float64."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from rffl_pl.functional import reputation
from rffl_pl.functional.blocks import gram_times, squared_norms
from rffl_pl.functional.finite import sound

BAD_ROWS = {
    "one nan": [1.0, float("nan"), 2.0],
    "all nan": [float("nan")] * 3,
    "one inf": [1.0, float("inf"), 2.0],
    "one -inf": [1.0, -float("inf"), 2.0],
    "1e38": [1e38] * 3,
}
seeds = pytest.mark.parametrize("seed", range(5))

DISTRIBUTIONS = {
    "some negative": [0.4, -0.1, 0.2, 0.05, 0.3],
    "one zero": [0.7, 0.0, 0.1],
    "ties": [0.25, 0.25, 0.5, 0.5],
    "one": [0.3],
    "tiny": [1e-12, 3e-12, -1e-13],
    "sum negative": [0.1, -0.4, -0.2],
    "sum zero": [0.5, -0.5],
    "all negative": [-0.1, -0.3],
    "all zero": [0.0, 0.0, 0.0],
}
distributions = pytest.mark.parametrize(
    "reputations", [torch.tensor(r, dtype=torch.float64) for r in DISTRIBUTIONS.values()], ids=DISTRIBUTIONS
)


def rows(seed: int, count: int = 7, entries: int = 101) -> Tensor:
    """Random float32 uploads whose norms differ by powers of ten, some above and some below 1."""
    generator = torch.Generator().manual_seed(seed)
    lengths = 10.0 ** torch.linspace(-3, 2, count)
    drawn: Tensor = torch.randn(count, entries, generator=generator) * lengths[:, None] / entries**0.5
    return drawn


def in_numpy(uploads: Tensor) -> NDArray[np.float64]:
    """The same numbers in float64, on the other side of the comparison."""
    return np.asarray(uploads, dtype=np.float64)


def cosines(uploads: Tensor, weights: Tensor) -> Tensor:
    """Similarities of rows to their weighted sum."""
    return reputation.cosines(squared_norms(uploads), gram_times(uploads, weights), weights)


def clipped_rows(uploads: Tensor, gamma: float) -> Tensor:
    """Every row clipped."""
    return torch.stack([reputation.clip(row, gamma) for row in uploads])


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=BAD_ROWS)
def test_sound_refuses_what_cannot_be_summed(row: list[float]) -> None:
    """A NaN, an infinity or an overflow gets into the sums, or drags its neighbours out of them."""
    assert sound(squared_norms(torch.tensor([[1.0, 2.0, 3.0], row, [0.0, 0.0, 0.0]]))).tolist() == [
        True,
        False,
        True,
    ]


@seeds
@pytest.mark.parametrize("gamma", [0.15, 0.5, 1.0])
def test_clip(seed: int, gamma: float) -> None:
    """Uploads leave with another length than the released code gives them, or short ones are touched."""
    uploads = rows(seed)
    plain = in_numpy(uploads)
    norms = np.linalg.norm(plain, axis=1, keepdims=True)
    expected = np.where(norms > gamma, gamma * plain / (norms + 1e-7), plain)
    clipped = clipped_rows(uploads, gamma)
    assert clipped.dtype == uploads.dtype
    np.testing.assert_allclose(clipped, expected, rtol=1e-5, atol=1e-9)
    short = torch.from_numpy(norms[:, 0] <= gamma)
    assert 0 < short.sum() < len(short)
    assert torch.equal(clipped[short], uploads[short])


def test_clip_epsilon() -> None:
    """The 1e-7 beside the norm is missing, or is another number."""
    clipped = reputation.clip(torch.tensor([3e-6, 0.0]), 1e-6)
    torch.testing.assert_close(clipped, torch.tensor([3e-12 / 3.1e-6, 0.0]), rtol=1e-5, atol=0)


def test_clip_at_the_bound() -> None:
    """A vector exactly as long as the bound is shortened."""
    exact = torch.tensor([3.0, 4.0])
    assert torch.equal(reputation.clip(exact, 5.0), exact)


@pytest.mark.parametrize("name", ["one nan", "all nan", "one inf", "one -inf"])
def test_clip_leaves_broken_rows_as_they_are(name: str) -> None:
    """Clipping hides a broken upload (as zeros) from the server, or breaks the row beside it."""
    uploads = torch.tensor([BAD_ROWS[name], [3.0, 0.0, 4.0]])
    clipped = clipped_rows(uploads, 1.0)
    torch.testing.assert_close(clipped[0], uploads[0], equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(clipped[1], torch.tensor([0.6, 0.0, 0.8]))


def test_clip_of_huge_rows() -> None:
    """The norm of a huge upload overflows, and the upload arrives as zeros or NaN instead of its direction."""
    clipped = clipped_rows(torch.tensor([[1e38, -1e38], [1e30, 0.0]]), 0.5)
    torch.testing.assert_close(clipped, torch.tensor([[0.5, -0.5], [0.5 * 2**0.5, 0.0]]) / 2**0.5, rtol=1e-3, atol=0)


@seeds
def test_unit_scale(seed: int) -> None:
    """Eq. 1 does not scale every upload, short ones too, to the norm bound."""
    uploads = rows(seed)
    scaled = in_numpy(uploads) * reputation.unit_scale(squared_norms(uploads), 0.5).numpy()[:, None]
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 0.5, rtol=1e-9)


def test_unit_scale_of_zeros() -> None:
    """A participant that learnt nothing divides by zero."""
    assert reputation.unit_scale(torch.tensor([0.0, 4.0]).double(), 0.5).tolist() == [0.0, 0.25]


@seeds
def test_weighted_sum(seed: int) -> None:
    """The aggregate is another one than sum_i w_i u_i; negative weights count too."""
    uploads = rows(seed)
    weights = torch.randn(len(uploads), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = (weights.numpy()[:, None] * in_numpy(uploads)).sum(axis=0)
    total = reputation.weighted_sum(uploads, weights)
    assert total.dtype == uploads.dtype
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-5)


@seeds
def test_cosines(seed: int) -> None:
    """A similarity is not the cosine to the weighted sum: it must not change with the length of either vector."""
    uploads = rows(seed)
    weights = torch.randn(len(uploads), generator=torch.Generator().manual_seed(100 + seed), dtype=torch.float64)
    plain = in_numpy(uploads)
    direction = weights.numpy() @ plain
    expected = plain @ direction / np.linalg.norm(plain, axis=1) / np.linalg.norm(direction)
    assert cosines(uploads, weights).dtype == torch.float64
    np.testing.assert_allclose(cosines(uploads, weights), expected, atol=1e-12)
    np.testing.assert_allclose(cosines(8 * uploads, weights / 4), expected, atol=1e-12)


def test_cosines_at_the_extremes() -> None:
    """Parallel is not 1, opposite not -1, or a vector of zeros gives NaN."""
    aggregate = torch.tensor([1.0, 2.0, -2.0])
    uploads = torch.stack([3 * aggregate, -aggregate, torch.zeros(3), torch.tensor([0.0, 1.0, 1.0])])
    weights = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(cosines(uploads, weights), torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64))
    assert cosines(uploads, 0 * weights).tolist() == [0.0] * 4


def test_cosines_of_tiny_uploads() -> None:
    """A norm below 1e-10 is not taken for 1e-10, as in the released code."""
    uploads = torch.tensor([[1e-12, 0.0], [0.0, 1.0]])
    torch.testing.assert_close(
        cosines(uploads, torch.tensor([1e12, 0.0], dtype=torch.float64)), torch.tensor([1e-2, 0.0]).double()
    )


def test_cosine_of_orthonormal_uploads() -> None:
    """A participant's own share of the aggregate does not raise its similarity to 1/sqrt(P)."""
    measured = cosines(torch.eye(10), torch.full((10,), 0.1, dtype=torch.float64))
    torch.testing.assert_close(measured, torch.full((10,), 0.316228, dtype=torch.float64), rtol=0, atol=1e-6)


@seeds
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.95, 1.0])
def test_moving_average(seed: int, alpha: float) -> None:
    """Past and present change places, or their weights do not add up to one."""
    old, new = np.random.default_rng(seed).uniform(-1, 1, (2, 9))
    average = reputation.moving_average(torch.tensor(old), torch.tensor(new), alpha)
    np.testing.assert_allclose(average, alpha * old + (1 - alpha) * new, atol=1e-15)


@distributions
def test_normalise(reputations: Tensor) -> None:
    """Reputations do not add up to one, one that has no positive sum flips its signs, or one near 0 is divided by."""
    normalised = reputation.normalise(reputations)
    if float(reputations.sum()) <= 0.1 * float(reputations.abs().sum()):
        assert normalised is None
    else:
        assert normalised is not None
        np.testing.assert_allclose(normalised, reputations.numpy() / reputations.numpy().sum(), rtol=1e-9)


@distributions
def test_share_out_among_all(reputations: Tensor) -> None:
    """With everybody scored sharing out is not normalising, to the bit."""
    everybody = torch.ones(len(reputations), dtype=torch.bool)
    shared, normalised = reputation.share_out(reputations, everybody), reputation.normalise(reputations)
    assert (shared is None) == (normalised is None)
    assert shared is None or normalised is None or torch.equal(shared, normalised)


def test_share_out_of_rounding() -> None:
    """Reputations that cancel but for rounding are divided by what rounding left of them."""
    assert reputation.share_out(torch.tensor([1.0, -1.0 + 1e-15]).double(), torch.ones(2, dtype=torch.bool)) is None


def test_share_out() -> None:
    """Whoever is not scored loses or wins, or the scored do not share what is left in proportion."""
    reputations = torch.tensor([0.2, 0.3, 0.4, 0.3]).double()
    shared = reputation.share_out(reputations, torch.tensor([True, False, True, False]))
    assert shared is not None
    torch.testing.assert_close(shared, torch.tensor([0.4 / 3, 0.3, 0.8 / 3, 0.3]).double())
    assert torch.equal(shared[[1, 3]], reputations[[1, 3]])


@pytest.mark.parametrize("scored", [[False] * 3, [False, False, True], [True, False, False]], ids=str)
def test_share_out_of_nothing(scored: list[bool]) -> None:
    """With nobody scored, nothing left to share or no positive sum to share it by, signs turn or NaN comes out."""
    assert reputation.share_out(torch.tensor([0.1, 1.25, -0.25]).double(), torch.tensor(scored)) is None


@distributions
def test_relative_quota(reputations: Tensor) -> None:
    """The best does not get everything, or a reputation that is not positive gets something."""
    plain = reputations.numpy()
    quotas = reputation.relative_quota(reputations)
    if plain.max() <= 0:
        assert not quotas.any()
    else:
        assert quotas.max() == 1
        np.testing.assert_allclose(quotas, np.maximum(plain, 0) / plain.max(), rtol=1e-12)


@distributions
def test_altruistic(reputations: Tensor) -> None:
    """Altruism takes from somebody, changes the order, or gives the best less than everything."""
    quotas = reputation.relative_quota(reputations)
    raised = reputation.altruistic(quotas)
    np.testing.assert_allclose(raised, np.tanh(2 * quotas.numpy()) / np.tanh(2), rtol=1e-12)
    assert (raised >= quotas - 1e-15).all()
    assert torch.equal(raised == 1, quotas == 1)
    assert torch.equal(raised == 0, quotas == 0)
