"""Attacks that are shown the honest uploads: formulas, the largest steps within bounds, and what is remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rffl_pl import adversaries
from rffl_pl.adversaries import ALIE, Fang, InnerProduct, Mimic, MinMax, OmniscientAdversary, Situation
from rffl_pl.errors import UserError
from rffl_pl.functional import blocks
from rffl_pl.functional.aggregation import selected_by_krum, squared_distances

Array = np.ndarray[Any, np.dtype[np.float64]]
Direction = Literal["unit", "std", "sign"]
Bound = Literal["max", "sum"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
BOUNDS: tuple[Bound, ...] = get_args(Bound)
ATTACKS = {
    "inner_product": InnerProduct(),
    "alie": ALIE(),
    "mimic": Mimic(),
    "fang": Fang(),
    "fang-krum": Fang(against="krum"),
    **{f"{bound}-{p}": MinMax(direction=p, bound=bound) for p in DIRECTIONS for bound in BOUNDS},
}
OF_ONE_MIND = [name for name in ATTACKS if name not in ("inner_product", "fang", "fang-krum")]
every_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
law = settings(derandomize=True, database=None, deadline=None)
numbers = st.integers(0, 2**32 - 1)


def uploads(seed: int, count: int, entries: int = 300, spread: float = 1.0) -> Tensor:
    """Honest uploads ``[count, entries]`` around a mean of their own, of unequal lengths."""
    drawn = torch.Generator().manual_seed(seed)
    lengths = torch.rand(count, 1, generator=drawn) + 0.1
    rows = lengths * torch.randn(count, entries, generator=drawn)
    return 0.1 * (torch.randn(entries, generator=drawn) + spread * rows)


def shown(
    honest: Tensor, memory: dict[str, Tensor] | None = None, agreed: int = 7, number: int = 0, adversaries: int = 1
) -> Situation:
    """A round of an omniscient adversary."""
    nothing = torch.zeros(honest.shape[1], dtype=honest.dtype)
    return Situation(
        round=number, participant=9, update=nothing, model=nothing, memory={} if memory is None else memory,
        download=None, generator=torch.Generator().manual_seed(agreed + 1),
        agreed=torch.Generator().manual_seed(agreed), honest=honest, adversaries=adversaries,
    )  # fmt: skip


def sent(attack: OmniscientAdversary, honest: Tensor) -> Array:
    """What is uploaded in a first round."""
    uploaded: Array = attack.collude(shown(honest)).double().numpy()
    return uploaded


def test_every_omniscient_attack_is_held_to_these_laws() -> None:
    """A new one is left out of `ATTACKS`."""
    found = [getattr(adversaries, name) for name in adversaries.__all__]
    kinds = {kind for kind in found if issubclass(kind, OmniscientAdversary)} - {OmniscientAdversary}
    assert {type(attack) for attack in ATTACKS.values()} == kinds


@every_attack
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_takes_and_leaves(attack: OmniscientAdversary, count: int, dtype: torch.dtype) -> None:
    """Honest uploads change or are handed out, the result is another the second time, or of another shape or type."""
    honest = uploads(1, count).to(dtype)
    before, told = honest.clone(), torch.get_rng_state()
    uploaded, again = (attack.collude(shown(honest)) for _ in range(2))
    assert torch.equal(honest, before)
    assert torch.equal(uploaded, again)
    assert (uploaded.shape, uploaded.dtype) == (honest.shape[1:], dtype)
    assert uploaded.isfinite().all()
    uploaded.zero_()
    assert torch.equal(honest, before)
    assert torch.equal(torch.get_rng_state(), told)


@every_attack
@pytest.mark.parametrize("count", [1, 3])
def test_nothing_to_go_by(attack: OmniscientAdversary, count: int) -> None:
    """Honest uploads of zeros make something else of an attack than zeros."""
    assert not attack.collude(shown(torch.zeros(count, 20))).any()


@pytest.mark.parametrize("attack", [ATTACKS[name] for name in OF_ONE_MIND], ids=OF_ONE_MIND)
@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_of_one_mind(attack: OmniscientAdversary, count: int) -> None:
    """Where all honest uploads are equal, or there is one, something else than this is uploaded."""
    honest = uploads(3, 1).repeat(count, 1)
    np.testing.assert_allclose(sent(attack, honest), honest[0], rtol=1e-5, atol=1e-7)


@law
@given(seed=numbers, count=st.integers(1, 9), z=st.floats(-3, 3))
def test_alie(seed: int, count: int, z: float) -> None:
    """What is uploaded is not the mean less z population standard deviations."""
    honest = uploads(seed, count)
    exact = honest.double().numpy()
    expected = exact.mean(0) - z * exact.std(0)
    np.testing.assert_allclose(sent(ALIE(z=z), honest), expected, rtol=1e-5, atol=1e-6)


def test_alie_by_default() -> None:
    """The default is another than ByzFL's."""
    assert np.array_equal(sent(ALIE(), uploads(1, 5)), sent(ALIE(z=1.5), uploads(1, 5)))


def within(bound: str, u: Array, honest: Array) -> bool:
    """Whether an upload keeps to a bound, by the definition."""
    apart = ((honest[:, None] - honest) ** 2).sum(2)
    away = ((u - honest) ** 2).sum(1)
    if bound == "max":
        return bool(away.max() <= apart.max())
    return bool(away.sum() <= apart.sum(1).max())


def largest(bound: str, p: Array, honest: Array) -> float:
    """The largest step along p within a bound, by halving an interval."""
    mean, low, high = honest.mean(0), 0.0, 1.0
    while within(bound, mean + high * p, honest):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(bound, mean + middle * p, honest) else (low, middle)
    return low


@law
@given(
    seed=numbers, count=st.integers(2, 8), spread=st.sampled_from([0.01, 1.0, 30.0]),
    direction=st.sampled_from(DIRECTIONS), bound=st.sampled_from(BOUNDS),
)  # fmt: skip
def test_min_max(seed: int, count: int, spread: float, direction: Direction, bound: Bound) -> None:
    """The upload is not the farthest within the bound along the paper's direction."""
    honest = uploads(seed, count, spread=spread)
    exact = honest.double().numpy()
    mean = exact.mean(0)
    p = {"unit": -mean / np.linalg.norm(mean), "std": -exact.std(0), "sign": -np.sign(mean)}[direction]
    expected = mean + largest(bound, p, exact) * p
    moved = sent(MinMax(direction=direction, bound=bound), honest)
    assert np.linalg.norm(moved - expected) < 1e-5 * np.linalg.norm(expected - mean) + 1e-6 * np.linalg.norm(mean)


def test_min_max_by_default() -> None:
    """The default is another than Min-Max along the standard deviation."""
    default, named = sent(MinMax(), uploads(1, 5)), sent(MinMax(direction="std", bound="max"), uploads(1, 5))
    assert np.array_equal(default, named)


@pytest.mark.parametrize("bound", BOUNDS)
def test_min_max_without_a_direction(bound: Bound) -> None:
    """A mean of zero has no opposite: the upload is not this mean, or not a number."""
    honest = torch.tensor([[1.0, -2.0], [-1.0, 2.0]])
    for direction in ("unit", "sign"):
        assert sent(MinMax(direction=direction, bound=bound), honest).tolist() == [0, 0]


def test_min_max_by_hand() -> None:
    """Two uploads 2 apart along one axis: the mean moves by the root of 3 across it, under the sum by 1."""
    honest = torch.tensor([[1.0, 5.0], [-1.0, 5.0]])
    np.testing.assert_allclose(sent(MinMax(direction="unit"), honest), [0, 5 - 3**0.5], rtol=1e-6)
    np.testing.assert_allclose(sent(MinMax(direction="unit", bound="sum"), honest), [0, 4], rtol=1e-6)


@pytest.mark.parametrize(
    "attack", [MinMax(), MinMax(bound="sum"), Fang(against="krum"), Mimic()], ids=["max", "sum", "krum", "mimic"]
)
def test_the_size_of_a_block_does_not_matter(attack: OmniscientAdversary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in blocks of some coordinates, uploads make another attack."""
    honest = uploads(2, 6, 1001)
    whole = sent(attack, honest)
    monkeypatch.setattr(blocks, "_ENTRIES", 500)
    np.testing.assert_allclose(sent(attack, honest), whole, rtol=1e-6, atol=1e-9)


def edges(honest: Array, b: float) -> tuple[Array, Array]:
    """Between what every entry is drawn against a trimmed mean, by the paper's four cases."""
    low, high = np.empty(honest.shape[1]), np.empty(honest.shape[1])
    for j, column in enumerate(honest.T):
        top, bottom = column.max(), column.min()
        if column.mean() < 0:
            low[j], high[j] = top, (b * top if top > 0 else top / b)
        else:
            low[j], high[j] = (bottom / b if bottom > 0 else b * bottom), bottom
    return low, high


@pytest.mark.slow
@law
@given(
    seed=numbers, count=st.integers(1, 8), spread=st.sampled_from([0.01, 1.0, 30.0]), b=st.sampled_from([1.0, 2.0, 3.5])
)
def test_fang_beyond_the_honest(seed: int, count: int, spread: float, b: float) -> None:
    """An entry is not drawn uniformly from all that lies just beyond the honest, on the side that they shun."""
    honest = uploads(seed, count, entries=2000, spread=spread)
    u = sent(Fang(b=b), honest)
    low, high = edges(honest.double().numpy(), b)
    slack = 1e-6 * np.abs(honest.numpy()).max()
    assert (low - slack <= u).all()
    assert (u <= high + slack).all()
    if b > 1:
        places = ((u - low) / (high - low))[high - low > 100 * slack]
        assert np.allclose(np.quantile(places, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.1)


def test_fang_draws_for_everybody() -> None:
    """All adversaries draw the same, so that whoever looks for copies finds them, or not from streams of their own."""
    honest = uploads(1, 4)
    one, other, again = (Fang().collude(shown(honest, agreed=seed)) for seed in (1, 2, 1))
    assert not torch.equal(one, other)
    assert torch.equal(one, again)


def krum_chooses(uploaded: Array, neighbours: int) -> int:
    """The number of the upload that Krum chooses, from all distances."""
    apart = ((uploaded[:, None] - uploaded) ** 2).sum(2)
    return int(np.argmin([np.sort(np.delete(row, i))[:neighbours].sum() for i, row in enumerate(apart)]))


@law
@given(seed=numbers, count=st.integers(4, 9), adversaries=st.integers(1, 3), spread=st.sampled_from([0.1, 1.0, 3.0]))
def test_fang_is_chosen_by_krum(seed: int, count: int, adversaries: int, spread: float) -> None:
    """Against the honest sign it is not the first step, halved from the paper's bound, that Krum chooses."""
    honest = uploads(seed, count, spread=spread)
    exact, f = honest.double().numpy(), adversaries
    s = np.sign(exact.mean(0))
    apart = ((exact[:, None] - exact) ** 2).sum(2)
    nearest = min(np.sort(np.delete(row, i))[: count - 2].sum() for i, row in enumerate(apart))
    step = (nearest / (max(1, count - f - 1) * len(s))) ** 0.5 + np.linalg.norm(exact, axis=1).max() / len(s) ** 0.5
    for _ in range(20):
        if krum_chooses(np.array([*exact, *f * [-step * s]]), count - 2) >= count:
            break
        step /= 2
    uploaded = Fang(against="krum").collude(shown(honest, adversaries=f)).double().numpy()
    np.testing.assert_allclose(uploaded, -step * s, rtol=1e-5)


@pytest.mark.parametrize(("spread", "taken_in"), [(0.1, False), (10.0, True)], ids=["alike", "unlike"])
def test_fang_takes_krum_in(spread: float, taken_in: bool) -> None:
    """The server's own Krum chooses one of two where the honest agree, or an honest one where they do not."""
    honest = uploads(1, 8, entries=1000, spread=spread)
    against = Fang(against="krum").collude(shown(honest, adversaries=2))
    uploaded = torch.stack([*honest, against, against]).double()
    distances = squared_distances(uploaded @ uploaded.T)
    assert (int(selected_by_krum(distances, 2, 1)) >= 8) == taken_in


class PlainMimic:
    """The iteration in NumPy."""

    def __init__(self, z: Array, warmup: int) -> None:
        self.z, self.warmup, self.rounds = z, warmup, 0

    def copied(self, honest: Array) -> int:
        centred = honest - honest.mean(0)
        if self.rounds < self.warmup:
            y = sum((d @ self.z) * d for d in centred)
            t = self.rounds
            z = t / (t + 1) * self.z + 1 / (t + 1) * y / np.linalg.norm(y)
            self.z, self.rounds = z / np.linalg.norm(z), t + 1
        return int(np.argmax(honest @ self.z))


@settings(law, max_examples=30)
@given(seed=numbers, count=st.integers(2, 8), warmup=st.integers(1, 4))
def test_mimic(seed: int, count: int, warmup: int) -> None:
    """Over several rounds another is copied than the plain iteration copies, or z is another or learnt for longer."""
    memory = dict[str, Tensor]()
    start = torch.randn(300, generator=torch.Generator().manual_seed(7))
    plain = PlainMimic(start.double().numpy(), warmup)
    for number in range(6):
        honest = uploads((seed + number) % 2**32, count)
        uploaded = Mimic(warmup=warmup).collude(shown(honest, memory, agreed=7 + number, number=number))
        expected = plain.copied(honest.double().numpy())
        assert torch.equal(uploaded, honest[expected])
        np.testing.assert_allclose(memory["z"].numpy(), plain.z, atol=1e-5)
    assert int(memory["rounds"]) == warmup


def test_mimic_finds_what_stands_out() -> None:
    """After some rounds z is not the direction in which the honest differ most."""
    axis = torch.nn.functional.normalize(torch.randn(500, generator=torch.Generator().manual_seed(1)), dim=0)
    memory, attack = dict[str, Tensor](), Mimic()
    for number in range(10):
        honest = uploads(number, 8, 500, spread=0.1)
        honest += torch.linspace(-1, 1, 8)[:, None] * axis
        uploaded = attack.collude(shown(honest, memory, number=number))
    assert abs(float(memory["z"] @ axis)) > 0.99
    assert any(torch.equal(uploaded, honest[i]) for i in (0, 7))


def test_what_mimic_remembers() -> None:
    """Colluders that agree learn different directions, or the memory shares what is not to change."""
    honest, memories = uploads(1, 5), [dict[str, Tensor]() for _ in range(2)]
    first, other = (Mimic().collude(shown(honest, memory)) for memory in memories)
    assert torch.equal(first, other)
    assert {name: value.shape for name, value in memories[0].items()} == {"z": (300,), "rounds": ()}
    assert torch.equal(memories[0]["z"], memories[1]["z"])
    kept = {name: value.clone() for name, value in memories[0].items()}
    Mimic(warmup=1).collude(shown(uploads(2, 5), memories[0], number=1))
    assert all(torch.equal(memories[0][name], kept[name]) for name in kept)


def test_mimic_learns_nothing_from_one() -> None:
    """A round in which nobody differs counts, and so the first that teaches is not taken whole."""
    memory = dict[str, Tensor]()
    Mimic().collude(shown(uploads(1, 1), memory))
    assert int(memory["rounds"]) == 0
    Mimic().collude(shown(uploads(2, 5), memory, agreed=8))
    late = memory["z"]
    memory = {}
    Mimic().collude(shown(uploads(2, 5), memory))
    assert torch.equal(late, memory["z"])


@pytest.mark.parametrize(
    ("make", "named"),
    [
        *((lambda x=x: ALIE(z=x), f"z of ALIE .* got {x}") for x in (float("nan"), float("inf"))),
        *((lambda x=x: InnerProduct(epsilon=x), f"epsilon .* got {x}") for x in (float("nan"), float("-inf"))),
        *((lambda x=x: Fang(b=x), f"--adversaries.b .* got {x}") for x in (float("nan"), float("inf"), 0.5, 10**39)),
        *((lambda x=x: Mimic(warmup=x), f"warmup of Mimic .* got {x}") for x in (0, -1)),
    ],
)
def test_numbers_that_mean_nothing(make: Callable[[], OmniscientAdversary], named: str) -> None:
    """An option out of its range is taken, or the sentence does not name the attack, the option and the value."""
    with pytest.raises(UserError, match=named):
        make()
