"""The formulas of RFFL one by one, against numpy in float64."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from rffl_pl.functional import reputation

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
    return torch.randn(count, entries, generator=generator) * lengths[:, None] / entries**0.5


def in_numpy(uploads: Tensor) -> NDArray[np.float64]:
    """The same numbers in float64, on the other side of the comparison."""
    return np.asarray(uploads, dtype=np.float64)


@seeds
def test_row_norms(seed: int) -> None:
    """A norm is not the Euclidean one, or is summed in single precision."""
    uploads = rows(seed)
    norms = reputation.row_norms(uploads)
    assert norms.dtype == torch.float64
    np.testing.assert_allclose(norms, np.sqrt((in_numpy(uploads) ** 2).sum(axis=1)), rtol=1e-12)


def test_row_norms_do_not_depend_on_the_company() -> None:
    """A participant's bits change with the number of participants that share its process."""
    uploads = rows(0)
    assert torch.equal(reputation.row_norms(uploads)[3:4], reputation.row_norms(uploads[3:4]))


def test_no_rows() -> None:
    """A round in which nobody sends stops the run."""
    empty = torch.empty(0, 5)
    assert reputation.row_norms(empty).shape == (0,)
    assert reputation.sound(empty).shape == (0,)
    assert reputation.cosine_to(empty, torch.ones(5)).shape == (0,)
    assert torch.equal(reputation.weighted_sum(empty, torch.empty(0)), torch.zeros(5))


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=BAD_ROWS)
def test_sound_refuses_what_cannot_be_summed(row: list[float]) -> None:
    """A NaN, an infinity or an overflow gets into the sums, or drags its neighbours out of them."""
    assert reputation.sound(torch.tensor([[1.0, 2.0, 3.0], row, [0.0, 0.0, 0.0]])).tolist() == [True, False, True]


@seeds
@pytest.mark.parametrize("gamma", [0.15, 0.5, 1.0])
def test_clip(seed: int, gamma: float) -> None:
    """Uploads leave with another length than the released code gives them, or short ones are touched."""
    uploads = rows(seed)
    plain = in_numpy(uploads)
    norms = np.linalg.norm(plain, axis=1, keepdims=True)
    expected = np.where(norms > gamma, gamma * plain / (norms + 1e-7), plain)
    clipped = reputation.clip(uploads, gamma)
    assert clipped.dtype == uploads.dtype
    np.testing.assert_allclose(clipped, expected, rtol=1e-5, atol=1e-9)
    short = torch.from_numpy(norms[:, 0] <= gamma)
    assert 0 < short.sum() < len(short)
    assert torch.equal(clipped[short], uploads[short])


def test_clip_epsilon() -> None:
    """The 1e-7 beside the norm is missing, or is another number."""
    clipped = reputation.clip(torch.tensor([[3e-6, 0.0]]), 1e-6)
    torch.testing.assert_close(clipped, torch.tensor([[3e-12 / 3.1e-6, 0.0]]), rtol=1e-5, atol=0)


def test_clip_at_the_bound() -> None:
    """A vector exactly as long as the bound is shortened."""
    exact = torch.tensor([[3.0, 4.0]])
    assert torch.equal(reputation.clip(exact, 5.0), exact)


@pytest.mark.parametrize("name", ["one nan", "all nan", "one inf", "one -inf"])
def test_clip_leaves_broken_rows_as_they_are(name: str) -> None:
    """Clipping hides a broken upload (as zeros) from the server, or breaks the row beside it."""
    uploads = torch.tensor([BAD_ROWS[name], [3.0, 0.0, 4.0]])
    clipped = reputation.clip(uploads, 1.0)
    torch.testing.assert_close(clipped[0], uploads[0], equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(clipped[1], torch.tensor([0.6, 0.0, 0.8]))


def test_clip_of_huge_rows() -> None:
    """The norm of a huge upload overflows, and the upload arrives as zeros or NaN instead of its direction."""
    clipped = reputation.clip(torch.tensor([[1e38, -1e38], [1e30, 0.0]]), 0.5)
    torch.testing.assert_close(clipped, torch.tensor([[0.5, -0.5], [0.5 * 2**0.5, 0.0]]) / 2**0.5, rtol=1e-3, atol=0)


@seeds
def test_unit_scale(seed: int) -> None:
    """Eq. 1 does not scale every upload, short ones too, to the norm bound."""
    uploads = rows(seed)
    scaled = in_numpy(uploads) * reputation.unit_scale(uploads, 0.5).numpy()[:, None]
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 0.5, rtol=1e-9)


def test_unit_scale_of_zeros() -> None:
    """A participant that learnt nothing divides by zero."""
    assert reputation.unit_scale(torch.tensor([[0.0, 0.0], [0.0, 2.0]]), 0.5).tolist() == [0.0, 0.25]


@seeds
def test_weighted_sum(seed: int) -> None:
    """The aggregate is another one than sum_i w_i u_i; negative weights count too."""
    uploads = rows(seed)
    weights = torch.randn(len(uploads), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = (weights.numpy()[:, None] * in_numpy(uploads)).sum(axis=0)
    total = reputation.weighted_sum(uploads, weights)
    assert total.dtype == uploads.dtype
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=BAD_ROWS)
def test_weighted_sum_without_weight(row: list[float]) -> None:
    """0 * NaN gets into the aggregate."""
    uploads = torch.tensor([row, [1.0, 2.0, 3.0]])
    weights = torch.tensor([0.0, 0.5], dtype=torch.float64)
    assert reputation.weighted_sum(uploads, weights).tolist() == [0.5, 1.0, 1.5]


@seeds
def test_cosine_to(seed: int) -> None:
    """A similarity is not the cosine: it must not change with the length of either vector."""
    uploads = rows(seed)
    target = torch.randn(uploads.shape[1], generator=torch.Generator().manual_seed(100 + seed))
    plain, direction = in_numpy(uploads), in_numpy(target)
    expected = plain @ direction / np.linalg.norm(plain, axis=1) / np.linalg.norm(direction)
    cosines = reputation.cosine_to(uploads, target)
    assert cosines.dtype == torch.float64
    np.testing.assert_allclose(cosines, expected, atol=1e-9)
    np.testing.assert_allclose(reputation.cosine_to(7 * uploads, target / 9), expected, atol=1e-6)


def test_cosine_to_extremes() -> None:
    """Parallel is not 1, opposite not -1, or a vector of zeros gives NaN."""
    aggregate = torch.tensor([1.0, 2.0, -2.0])
    uploads = torch.stack([3 * aggregate, -aggregate, torch.zeros(3), torch.tensor([0.0, 1.0, 1.0])])
    torch.testing.assert_close(
        reputation.cosine_to(uploads, aggregate), torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64)
    )
    assert reputation.cosine_to(uploads, torch.zeros(3)).tolist() == [0.0] * 4


def test_cosine_of_orthonormal_uploads() -> None:
    """A participant's own share of the aggregate does not raise its similarity to 1/sqrt(P)."""
    uploads = torch.eye(10)
    cosines = reputation.cosine_to(uploads, reputation.weighted_sum(uploads, torch.full((10,), 0.1)))
    torch.testing.assert_close(cosines, torch.full((10,), 0.316228, dtype=torch.float64), rtol=0, atol=1e-6)


@seeds
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.95, 1.0])
def test_moving_average(seed: int, alpha: float) -> None:
    """Past and present change places, or their weights do not add up to one."""
    old, new = np.random.default_rng(seed).uniform(-1, 1, (2, 9))
    average = reputation.moving_average(torch.tensor(old), torch.tensor(new), alpha)
    np.testing.assert_allclose(average, alpha * old + (1 - alpha) * new, atol=1e-15)


@distributions
def test_normalise(reputations: Tensor) -> None:
    """Reputations do not add up to one, or one that has no positive sum flips its signs."""
    normalised = reputation.normalise(reputations)
    if float(reputations.sum()) <= 0:
        assert normalised is None
    else:
        assert normalised is not None
        np.testing.assert_allclose(normalised, reputations.numpy() / reputations.numpy().sum(), rtol=1e-9)


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
