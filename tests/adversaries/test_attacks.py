"""The attacks on the upload: their formulas, their randomness, and what they leave alone."""

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from rffl_pl.adversaries import Adversary, FreeRider, Rescale, SignRandom, ValueInvert

ENTRIES = 10_007
ATTACKS = {
    "rescale-released": Rescale(),
    "rescale-paper": Rescale(variant="paper"),
    "sign_random": SignRandom(),
    "value_invert": ValueInvert(),
    "free_rider": FreeRider(),
}
every_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
drawing = pytest.mark.parametrize(
    "attack",
    [a for name, a in ATTACKS.items() if name != "rescale-paper"],
    ids=[n for n in ATTACKS if "paper" not in n],
)


def honest(seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """An honest update, without a zero."""
    return 0.01 * torch.randn(ENTRIES, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def attacked(attack: Adversary, update: Tensor, seed: int = 5) -> Tensor:
    """What is uploaded, drawn from a fresh stream of that seed."""
    return attack.upload(update, torch.Generator().manual_seed(seed))


def share(mask: Tensor) -> float:
    """Share of true entries."""
    return mask.double().mean().item()


def test_rescale_paper() -> None:
    """The paper's variant is not the update times -100."""
    assert torch.equal(attacked(ATTACKS["rescale-paper"], honest()), honest() * -100)


def test_rescale_released() -> None:
    """The released variant, which is the default, is not every entry times its own 10 U[-10, 10]."""
    factors = attacked(Rescale(), honest(dtype=torch.float64)) / honest(dtype=torch.float64)
    assert factors.abs().max() <= 100 + 1e-9
    assert kstest(factors.numpy(), "uniform", args=(-100, 200)).pvalue > 0.001
    assert torch.equal(attacked(Rescale(variant="released"), honest()), attacked(Rescale(), honest()))


def test_sign_random() -> None:
    """A magnitude changes, or other than about half of the signs, whatever the sign was."""
    update = honest()
    uploaded = attacked(SignRandom(), update)
    assert torch.equal(uploaded.abs(), update.abs())
    flipped = uploaded == -update
    for sign in (1, -1):
        assert 0.47 < share(flipped[update.sign() == sign]) < 0.53


def test_value_invert() -> None:
    """About half of the entries become 1 / (x + 1e-10), zeros 1e10, and the others stay as they are."""
    update = honest(dtype=torch.float64)
    update[:2000] = 0
    uploaded = attacked(ValueInvert(), update)
    inverted = uploaded != update
    torch.testing.assert_close(uploaded[inverted], 1 / (update[inverted] + 1e-10), rtol=1e-12, atol=0)
    assert set(uploaded[:2000].tolist()) == {0.0, 1 / 1e-10}
    assert 0.47 < share(inverted[2000:]) < 0.53
    assert 0.46 < share(inverted[:2000]) < 0.54


def test_free_rider() -> None:
    """A free-rider trains, uploads something else than U[-1, 1], or knows the honest update."""
    uploaded = attacked(FreeRider(), honest())
    assert uploaded.abs().max() <= 1
    assert kstest(uploaded.double().numpy(), "uniform", args=(-1, 2)).pvalue > 0.001
    assert torch.equal(uploaded, attacked(FreeRider(), torch.zeros(ENTRIES)))


def test_who_trains() -> None:
    """Everybody but the free-rider needs its honest update."""
    assert [name for name, attack in ATTACKS.items() if not attack.trains] == ["free_rider"]


@every_attack
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_takes_and_leaves(attack: Adversary, dtype: torch.dtype) -> None:
    """The update is changed in place, or the upload has another shape or type, shares its memory or is not finite."""
    update = honest(dtype=dtype)
    uploaded = attacked(attack, update)
    assert torch.equal(update, honest(dtype=dtype))
    assert (uploaded.shape, uploaded.dtype) == (update.shape, update.dtype)
    assert uploaded.data_ptr() != update.data_ptr()
    assert uploaded.isfinite().all()


@every_attack
def test_same_seed_same_upload(attack: Adversary) -> None:
    """An upload hangs on more than the update and the given stream."""
    first = attacked(attack, honest())
    torch.manual_seed(99)
    assert torch.equal(attacked(attack, honest()), first)


@drawing
def test_draws_from_the_given_stream(attack: Adversary) -> None:
    """Another seed or a later place of the stream gives the same upload, or the global stream moves."""
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(5)
    first, second = (attack.upload(honest(), generator) for _ in range(2))
    assert not torch.equal(first, second)
    assert not torch.equal(first, attacked(attack, honest(), seed=6))
    assert torch.equal(torch.get_rng_state(), before)
