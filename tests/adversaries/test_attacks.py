"""The attacks on data and upload: formulas, randomness, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import Tensor
from torch.utils.data import TensorDataset

from rffl_pl import adversaries
from rffl_pl.adversaries import (
    Adversary,
    Backdoor,
    Cast,
    DeltaWeights,
    FreeRider,
    Imitation,
    InnerProduct,
    LabelFlip,
    OmniscientAdversary,
    OnOff,
    Replay,
    Rescale,
    SignRandom,
    Situation,
    Sybil,
    ValueInvert,
)
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

ENTRIES = 10_007
ATTACKS = {
    "rescale-released": Rescale(),
    "rescale-paper": Rescale(variant="paper"),
    "sign_random": SignRandom(),
    "value_invert": ValueInvert(),
    "free_rider": FreeRider(),
    "free_rider-scaled": FreeRider(scale=0.01),
    "on_off": OnOff(honest=0),
    "on_off-silent": OnOff(honest=0, scale=0.0),
    "on_off-replay": OnOff(honest=0, then="replay"),
    "on_off-delta_weights": OnOff(honest=0, then="delta_weights"),
    "sybil": Sybil(),
    "sybil-jitter": Sybil(jitter=0.5),
    "replay": Replay(),
    "delta_weights": DeltaWeights(),
    "delta_weights-noise": DeltaWeights(noise=0.5),
    "imitation": Imitation(),
}
STILL = {
    "rescale-paper", "sybil", "replay", "delta_weights", "imitation", "on_off-silent", "on_off-replay",
    "on_off-delta_weights",
}  # fmt: skip
"""Those that draw nothing of their own."""
every_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
drawing = pytest.mark.parametrize(
    "attack",
    [a for name, a in ATTACKS.items() if name not in STILL],
    ids=[name for name in ATTACKS if name not in STILL],
)
still = pytest.mark.parametrize("attack", [ATTACKS[name] for name in sorted(STILL)], ids=sorted(STILL))


def honest(seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """An honest update, without a zero."""
    return 0.01 * torch.randn(ENTRIES, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def attacked(attack: Adversary, update: Tensor, seed: int = 5) -> Tensor:
    """What is uploaded, drawn from a fresh stream of that seed."""
    return attack.upload(situation(update, torch.Generator().manual_seed(seed)))


def situation(update: Tensor, generator: torch.Generator, honest: Tensor | None = None) -> Situation:
    """A first round."""
    return later(update, generator, download=None, memory={}, honest=honest, number=0)


def later(
    update: Tensor,
    generator: torch.Generator,
    *,
    download: Tensor | None,
    memory: dict[str, Tensor],
    model: Tensor | None = None,
    honest: Tensor | None = None,
    number: int = 1,
    agreed: int = 0,
) -> Situation:
    """Any round."""
    return Situation(
        round=number, participant=5, update=update, model=torch.zeros_like(update) if model is None else model,
        memory=memory, download=download, generator=generator, agreed=torch.Generator().manual_seed(agreed),
        honest=honest,
    )  # fmt: skip


def second(update: Tensor, seed: int = 5) -> Situation:
    """A second round: something was downloaded, and the model is another than the one that is remembered."""
    return later(
        update,
        torch.Generator().manual_seed(seed),
        download=honest(2, update.dtype),
        memory={"model": honest(3, update.dtype)},
        model=honest(4, update.dtype),
    )


def cosine(a: Tensor, b: Tensor) -> float:
    """Of the angle between two uploads."""
    return float(torch.nn.functional.cosine_similarity(a.double(), b.double(), dim=0))


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


def test_free_rider_scaled() -> None:
    """The noise is not the unscaled one times the scale, or its length is not what the docstring says."""
    scaled = attacked(FreeRider(scale=0.01), honest())
    torch.testing.assert_close(scaled, 0.01 * attacked(FreeRider(), honest()))
    assert float(scaled.norm()) == pytest.approx(0.01 * (ENTRIES / 3) ** 0.5, rel=0.02)


@pytest.mark.parametrize(
    ("attack", "rounds"),
    [
        (OnOff(honest=3), "111000000000"),
        (OnOff(honest=0), "000000000000"),
        (OnOff(honest=3, period=4), "111000100010"),
        (OnOff(honest=0, period=2), "010101010101"),
        (OnOff(), "1" * 15 + "0" * 10),
    ],
)
def test_on_off(attack: OnOff, rounds: str) -> None:
    """It trains in another round than the honest ones, or its upload is not then its update and else noise."""
    for number, honestly in enumerate(rounds):
        assert attack.trains_in(number) == (honestly == "1")
        drawn = torch.Generator().manual_seed(5)
        uploaded = attack.upload(later(honest(), drawn, download=None, memory={}, number=number))
        assert torch.equal(uploaded, honest() if honestly == "1" else attacked(FreeRider(), honest()))


def test_on_off_that_is_silent() -> None:
    """Silence is noise, or something that a server does not take for zeros."""
    uploaded = attacked(OnOff(honest=0, scale=0.0), honest())
    assert not uploaded.any()
    assert torch.equal(attacked(OnOff(honest=1, scale=0.0), honest()), honest())


@pytest.mark.parametrize(("then", "alone"), [("replay", Replay()), ("delta_weights", DeltaWeights())])
def test_on_off_that_sends_back(then: Literal["replay", "delta_weights"], alone: Adversary) -> None:
    """In its other rounds it uploads something else than the attack alone, or what that remembers is of honest ones."""
    attack, memory, memory_alone = OnOff(honest=2, period=3, then=then), dict[str, Tensor](), dict[str, Tensor]()
    for number in range(9):
        told = later(
            honest(), torch.Generator().manual_seed(number), download=honest(20 + number), memory=memory,
            model=honest(40 + number), number=number,
        )  # fmt: skip
        if attack.trains_in(number):
            assert torch.equal(attack.upload(told), honest())
        else:
            fresh = torch.Generator().manual_seed(number)
            expected = alone.upload(replace(told, memory=memory_alone, generator=fresh))
            assert torch.equal(attack.upload(told), expected)
    assert {*memory} == {*memory_alone}
    (kept,) = memory.values()
    assert torch.equal(kept, honest(22) if then == "replay" else honest(48))  # when it first stopped, or last did


def test_sybils_are_clones() -> None:
    """Two upload different noise in one round or the same in two, or something else than U[-1, 1]."""
    first, other, later_on = (
        Sybil().upload(later(honest(), torch.Generator().manual_seed(own), download=None, memory={}, agreed=agreed))
        for own, agreed in ((5, 0), (6, 0), (5, 1))
    )
    assert torch.equal(first, other)
    assert abs(cosine(first, later_on)) < 0.05
    assert kstest(first.double().numpy(), "uniform", args=(-1, 2)).pvalue > 0.001


@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0, 3.0])
def test_sybils_that_hide(jitter: float) -> None:
    """The noise of their own is not so many times as long, or their cosine is another than 1 / (1 + j^2)."""
    shared = attacked(Sybil(), honest())
    first, other = (attacked(Sybil(jitter=jitter), honest(), seed) for seed in (5, 6))
    assert float((first - shared).norm() / shared.norm()) == pytest.approx(jitter, rel=0.03)
    assert cosine(first, other) == pytest.approx(1 / (1 + jitter**2), abs=0.03)


def test_what_adversaries_agree_on() -> None:
    """The stream in common differs between two of a run, or is the same in two rounds, two runs or as an own one."""
    seen = {
        (seed, participant, number): [
            float(torch.rand((), generator=stream)) for stream in (told.agreed, told.generator)
        ]
        for seed in (1, 2)
        for participant in (5, 6)
        for number in (0, 1)
        for told in [
            Cast(Federation(participants=5, adversaries=2, seed=seed), [Sybil()]).situation(
                participant, number, memory={}, update=torch.zeros(1), model=torch.zeros(1)
            )
        ]
    }
    for (seed, _, number), (agreed, _) in seen.items():
        assert agreed == seen[seed, 5, number][0]
    assert len({agreed for agreed, _ in seen.values()}) == 4
    assert len({own for _, own in seen.values()} | {agreed for agreed, _ in seen.values()}) == 12


def test_replay() -> None:
    """The first download with something in it is not uploaded from then on, or not noise before."""
    attack, memory, uploads = Replay(), dict[str, Tensor](), []
    downloads = [None, torch.zeros(ENTRIES), honest(2), honest(3), torch.zeros(ENTRIES)]
    for download in downloads:
        told = later(torch.zeros(ENTRIES), torch.Generator().manual_seed(5), download=download, memory=memory)
        uploads.append(attack.upload(told))
    noise = attacked(FreeRider(), honest())
    for uploaded, expected in zip(uploads, [noise, noise, honest(2), honest(2), honest(2)], strict=True):
        assert torch.equal(uploaded, expected)


def test_delta_weights() -> None:
    """What is uploaded is not what changed since the last upload, or not noise where nothing did."""
    attack, memory, uploads = DeltaWeights(), dict[str, Tensor](), []
    models = [honest(2), honest(2), honest(3), honest(4)]
    for model in models:
        told = later(
            torch.zeros(ENTRIES), torch.Generator().manual_seed(5), download=None, memory=memory, model=model.clone()
        )
        uploads.append(attack.upload(told))
    for uploaded in uploads[:2]:
        assert torch.equal(uploaded, attacked(FreeRider(), honest()))
    for number in (2, 3):
        expected = models[number].numpy() - models[number - 1].numpy()
        np.testing.assert_array_equal(uploads[number].numpy(), expected)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 5.0])
def test_delta_weights_with_noise(sigma: float) -> None:
    """The noise is not Gaussian, or its length over that of the difference is another than sigma."""
    change = (honest(4) - honest(3)).double().numpy()
    added = DeltaWeights(noise=sigma).upload(second(honest())).double().numpy() - change
    assert np.linalg.norm(added) / np.linalg.norm(change) == pytest.approx(sigma, rel=0.03)
    spread = sigma * np.linalg.norm(change) / ENTRIES**0.5
    assert kstest(added / spread, "norm").pvalue > 0.001


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.8, 1.0])
def test_imitation(weight: float) -> None:
    """The upload is not the mix of the update and of the last download at the update's length."""
    update, download = honest().double().numpy(), honest(2).double().numpy()
    guess = download / np.linalg.norm(download) * np.linalg.norm(update)
    uploaded = Imitation(share=weight).upload(second(honest()))
    np.testing.assert_allclose(uploaded.numpy(), (1 - weight) * update + weight * guess, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("download", [None, torch.zeros(ENTRIES)], ids=["none", "empty"])
def test_imitation_of_nothing(download: Tensor | None) -> None:
    """Without anything to imitate the update is lost, or it becomes NaN."""
    told = later(honest(), torch.Generator(), download=download, memory={})
    assert torch.equal(Imitation().upload(told), honest())


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("make", "named"),
    [
        *((lambda x=x: FreeRider(scale=x), f"scale of FreeRider .* got {x}") for x in (0.0, -1.0, NAN, INF)),
        *((lambda x=x: OnOff(scale=x), f"scale of OnOff .* got {x}; 0 is silence") for x in (-1.0, NAN, INF)),
        (lambda: OnOff(then="off"), r"\.then of OnOff to be one of noise, replay, delta_weights, but got off"),  # type: ignore[arg-type]  # bad input
        (lambda: OnOff(honest=-1), "honest of OnOff .* 0 or more, but got -1"),
        *((lambda x=x: OnOff(period=x), f"period of OnOff .* 2 or more rounds, but got {x}") for x in (-1, 0, 1)),
        *((lambda x=x: Sybil(jitter=x), f"jitter of Sybil .* got {x}") for x in (-0.1, NAN, INF)),
        *((lambda x=x: DeltaWeights(noise=x), f"noise of DeltaWeights .* got {x}") for x in (-0.1, NAN, INF)),
        *((lambda x=x: Imitation(share=x), f"share of Imitation .* got {x}") for x in (-0.1, 1.1, NAN, INF)),
    ],
)
def test_numbers_that_mean_nothing(make: Callable[[], Adversary], named: str) -> None:
    """An option out of its range is taken, or the sentence does not name the attack, the option and the value."""
    with pytest.raises(UserError, match=named):
        make()


def test_who_poisons_nothing_has_its_shard() -> None:
    """Examples that lie in memory are made anew, batch by batch, for whoever leaves them as they are."""
    cast = Cast(Federation(participants=2, adversaries=3), [Rescale(), LabelFlip(source=1, target=7), Backdoor()])
    shard = Shard(Reader(TensorDataset(torch.rand(9, 1, 8, 8), torch.arange(9))), torch.arange(9), 4)
    taken = [cast.examples(i, shard) for i in range(5)]
    assert [given is shard for given in taken] == [True, True, True, False, False]


def test_who_trains() -> None:
    """Free-riders of any kind train, or somebody who needs an honest update does not."""
    idle = {
        "free_rider",
        "free_rider-scaled",
        "sybil",
        "sybil-jitter",
        "replay",
        "delta_weights",
        "delta_weights-noise",
    }
    assert {name for name, attack in ATTACKS.items() if not attack.trains} == idle
    for name, attack in ATTACKS.items():
        assert attack.trains_in(0) == (name not in idle and not name.startswith("on_off"))


def test_every_attack_is_held_to_these_laws() -> None:
    """A new attack on uploads is left out of `ATTACKS`; those that know everything are in `test_omniscient`."""
    found = [getattr(adversaries, name) for name in adversaries.__all__]
    kinds = {kind for kind in found if issubclass(kind, Adversary) and not issubclass(kind, OmniscientAdversary)}
    assert {type(attack) for attack in ATTACKS.values()} == kinds - {Adversary, Backdoor, LabelFlip}


@every_attack
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_takes_and_leaves(attack: Adversary, dtype: torch.dtype) -> None:
    """The update is changed in place, or the upload has another shape or type, shares its memory or is not finite."""
    update = honest(dtype=dtype)
    uploaded = attacked(attack, update)
    assert torch.equal(update, honest(dtype=dtype))
    assert (uploaded.shape, uploaded.dtype) == (update.shape, update.dtype)
    assert uploaded.data_ptr() != update.data_ptr() or isinstance(attack, Imitation)  # honest without a download
    assert uploaded.isfinite().all()


@every_attack
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_takes_and_leaves_later(attack: Adversary, dtype: torch.dtype) -> None:
    """The same of a round with a download and a memory: what the server clips in place would change one of them."""
    told = second(honest(dtype=dtype))
    uploaded = attack.upload(told)
    assert told.download is not None
    for given, seed in ((told.update, 1), (told.download, 2), (told.model, 4)):
        assert torch.equal(given, honest(seed, dtype))
        assert uploaded.data_ptr() != given.data_ptr()
    assert all(kept.data_ptr() not in (uploaded.data_ptr(), told.model.data_ptr()) for kept in told.memory.values())
    assert (uploaded.shape, uploaded.dtype) == (told.update.shape, dtype)
    assert uploaded.isfinite().all()


@every_attack
def test_same_seed_same_upload(attack: Adversary) -> None:
    """An upload depends on more than the update and the given stream."""
    first = attacked(attack, honest())
    torch.manual_seed(99)
    assert torch.equal(attacked(attack, honest()), first)
    assert torch.equal(attack.upload(second(honest())), attack.upload(second(honest())))


@drawing
def test_draws_from_the_given_stream(attack: Adversary) -> None:
    """Another seed or a later place of the stream gives the same upload, or the global stream moves."""
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(5)
    first, again = (attack.upload(replace(second(honest()), generator=generator)) for _ in range(2))
    assert not torch.equal(first, again)
    assert not torch.equal(attack.upload(second(honest())), attack.upload(second(honest(), seed=6)))
    assert torch.equal(torch.get_rng_state(), before)


@still
def test_draws_nothing_of_its_own(attack: Adversary) -> None:
    """An upload depends on the adversary's own stream where its formula has nothing random, or the global one moves."""
    before = torch.get_rng_state()
    assert torch.equal(attack.upload(second(honest())), attack.upload(second(honest(), seed=6)))
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


@pytest.mark.parametrize("attack", [Adversary(), LabelFlip(), Backdoor()], ids=["base", "label_flip", "backdoor"])
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
    with pytest.raises(UserError, match=rf"source and .*target of LabelFlip .* got {label} for both"):
        LabelFlip(source=label, target=label)


@pytest.mark.parametrize(("source", "target"), [(1, 3), (3, 1), (-1, 0), (0, -1), (7, 99)])
def test_label_flip_outside_of_the_classes(source: int, target: int) -> None:
    """A class that the data set does not have is refused with the range, both classes and both options."""
    attack = LabelFlip(source=source, target=target)
    with pytest.raises(UserError, match=rf"target of LabelFlip .* 0 \.\. 2, but got {source} and {target};"):
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
