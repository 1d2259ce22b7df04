"""The attacks on data and upload: formulas, randomness, and what they leave alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from rffl_pl.adversaries import (
    Adversary,
    FreeRider,
    InnerProduct,
    LabelFlip,
    Rescale,
    SignRandom,
    Situation,
    ValueInvert,
)
from rffl_pl.errors import UserError

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
    return attack.upload(situation(update, torch.Generator().manual_seed(seed)))


def situation(update: Tensor, generator: torch.Generator, honest: Tensor | None = None) -> Situation:
    """A first round."""
    return Situation(
        round=0, participant=5, update=update, model=torch.zeros_like(update), memory={}, download=None,
        generator=generator, honest=honest,
    )  # fmt: skip


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
    first, second = (attack.upload(situation(honest(), generator)) for _ in range(2))
    assert not torch.equal(first, second)
    assert not torch.equal(first, attacked(attack, honest(), seed=6))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize(("source", "target"), [(1, 7), (7, 1), (0, 9), (9, 0)])
def test_label_flip(source: int, target: int, dtype: torch.dtype) -> None:
    """A label of the source class is not the target's, another one changes, or the true labels are changed in place."""
    y = torch.randint(10, (500,), generator=torch.Generator().manual_seed(source)).to(dtype)
    true = y.clone()
    flipped = LabelFlip(source=source, target=target).labels(y)
    assert torch.equal(y, true)
    assert flipped.dtype == dtype
    assert flipped.tolist() == [target if label == source else label for label in true.tolist()]
    assert source in true
    assert source not in flipped


def test_label_flip_by_default() -> None:
    """The paper's attack is 1 to 7; a batch without a 1, or without anything, is left as it is."""
    assert LabelFlip().labels(torch.arange(10)).tolist() == [0, 7, 2, 3, 4, 5, 6, 7, 8, 9]
    assert LabelFlip().labels(torch.tensor([7, 0, 7])).tolist() == [7, 0, 7]
    assert LabelFlip().labels(torch.empty(0, dtype=torch.int64)).shape == (0,)


@pytest.mark.parametrize("attack", [Adversary(), LabelFlip()], ids=["base", "label_flip"])
def test_what_is_not_attacked_is_honest(attack: Adversary) -> None:
    """Whoever attacks only the data uploads its update, whoever attacks nothing trains on the true labels."""
    assert torch.equal(attacked(attack, honest()), honest())
    assert attack.trains
    x, y = torch.randn(10, 3), torch.arange(10)
    poisoned = Adversary().poison(x, y)
    assert torch.equal(poisoned[0], x)
    assert torch.equal(poisoned[1], y)
    assert Adversary().measures(10) == {}


@pytest.mark.parametrize("label", [0, 1, 9])
def test_label_flip_of_a_class_to_itself(label: int) -> None:
    """No attack at all is refused, naming both arguments and the class."""
    with pytest.raises(UserError, match=f"source and target .*but got {label} for both"):
        LabelFlip(source=label, target=label)


@pytest.mark.parametrize(("source", "target"), [(1, 3), (3, 1), (-1, 0), (0, -1), (7, 99)])
def test_label_flip_outside_of_the_classes(source: int, target: int) -> None:
    """A class that the data set does not have is refused with the range, both classes and both options."""
    attack = LabelFlip(source=source, target=target)
    with pytest.raises(UserError, match=rf"0 \.\. 2, but got {source} and {target};.*--adversaries.source.*target"):
        attack.prepare(3)


def test_label_flip_within_the_classes() -> None:
    """The first and the last class are classes, and other attacks fit any task."""
    LabelFlip(source=0, target=9).prepare(10)
    LabelFlip(source=9, target=0).prepare(10)
    for attack in ATTACKS.values():
        attack.prepare(1)


@pytest.mark.parametrize("epsilon", [None, 0.1, 100.0])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_inner_product(count: int, epsilon: float | None) -> None:
    """What is uploaded is not minus epsilon times the mean of the honest uploads, or these are changed in place."""
    known = torch.randn(count, ENTRIES, generator=torch.Generator().manual_seed(count))
    before = known.clone()
    attack = InnerProduct() if epsilon is None else InnerProduct(epsilon=epsilon)
    uploaded = attack.collude(situation(torch.zeros(ENTRIES), torch.Generator(), known))
    expected = -(epsilon or 2.0) * before.double().numpy().mean(0)
    np.testing.assert_allclose(uploaded.numpy(), expected, rtol=1e-4, atol=1e-6 * (epsilon or 2.0))
    assert torch.equal(known, before)
    assert float(uploaded @ before.mean(0)) < 0
