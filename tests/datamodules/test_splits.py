"""How the splits divide a pool, against the specification written out independently."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import powerlaw
from torch import Tensor

from rffl_pl.datamodules import CLA, DIR, Digits, Pool, Split
from rffl_pl.datamodules.splits import by_class, dirichlet, mixed, power_law, sorted_shards, uniform
from rffl_pl.datamodules.splits.base import of_each_class
from rffl_pl.datamodules.splits.by_class import largest, wanted
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.datamodules.made import Made

LABELS = torch.arange(10).repeat(400)  # class of example i: i mod 10

Divide = Callable[[torch.Generator], list[Tensor]]
SPLITS: dict[str, Divide] = {
    "UNI": lambda generator: uniform(len(LABELS), 5, 60, generator),
    "POW": lambda generator: power_law(len(LABELS), 5, 60, generator),
    "CLA": lambda generator: by_class(LABELS, 10, 5, 60, generator),
    "DIR": lambda generator: dirichlet(LABELS, 10, 5, 60, 0.5, generator),
    "DIR with a least shard": lambda generator: dirichlet(LABELS, 10, 5, 60, 0.1, generator, 30),
    "SHARDS": lambda generator: sorted_shards(LABELS, 5, 60, 7, generator),
    "MIX": lambda generator: mixed(LABELS, 5, 60, 0.3, generator),
}
every_split = pytest.mark.parametrize("divide", SPLITS.values(), ids=SPLITS.keys())


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def histogram(shard: Tensor, labels: Tensor = LABELS) -> list[int]:
    return torch.bincount(labels[shard], minlength=10).tolist()


@every_split
def test_shards_are_disjoint_and_valid(divide: Divide) -> None:
    """Every split hands out n N different examples of the pool, each to one participant."""
    shards = divide(seeded())
    together = torch.cat(shards)
    assert len(shards) == 5
    assert len(together) == 5 * 60
    assert len(together.unique()) == len(together)
    assert 0 <= int(together.min()) <= int(together.max()) < len(LABELS)


@every_split
def test_the_seed_alone_decides(divide: Divide) -> None:
    """The same seed gives the same shards whatever the global stream is at; another seed gives others."""
    torch.manual_seed(1)
    first = divide(seeded(7))
    torch.manual_seed(2)
    again, other = divide(seeded(7)), divide(seeded(8))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(torch.cat(first), torch.cat(other))


@every_split
def test_the_global_stream_is_left_alone(divide: Divide) -> None:
    """Cutting shards draws nothing from the global random stream."""
    before = torch.get_rng_state()
    divide(seeded())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("participants", "each"), [(1, 600), (5, 600), (20, 100)])
def test_uniform_shards_are_equal(participants: int, each: int) -> None:
    """UNI: n examples for everybody."""
    shards = uniform(60000, participants, each, seeded())
    assert [len(shard) for shard in shards] == [each] * participants
    assert len(torch.cat(shards).unique()) == participants * each


def test_uniform_draws_from_the_whole_pool() -> None:
    """The shards are drawn at random from all there is, not from its beginning."""
    assert int(torch.cat(uniform(10000, 2, 500, seeded())).min()) < 500
    assert int(torch.cat(uniform(10000, 2, 500, seeded())).max()) > 9500


@pytest.mark.parametrize(("participants", "each"), [(1, 600), (2, 10), (5, 600), (10, 600), (20, 600), (5, 99999)])
def test_power_law_sizes_follow_the_formula(participants: int, each: int) -> None:
    """POW: ceil(n N b_i / sum b), the last takes what is left; ascending, disjoint, the whole pool."""
    total, a = participants * each, 1.65911332899
    b = np.linspace(powerlaw.ppf(0.01, a), powerlaw.ppf(0.99, a), participants)
    sizes = [math.ceil(share / b.sum() * total) for share in b[:-1]]
    sizes.append(total - sum(sizes))
    shards = power_law(total, participants, each, seeded())
    assert [len(shard) for shard in shards] == sizes
    assert sizes == sorted(sizes)
    assert torch.equal(torch.cat(shards).sort().values, torch.arange(total))


@pytest.mark.parametrize("participants", [3, 9, 11, 17, 29])
def test_the_middle_one_of_an_odd_number_has_the_mean(participants: int) -> None:
    """Its share is 1 / N, and whole; the last bit of a sum would round it up."""
    shards = power_law(60 * participants, participants, 60, seeded())
    assert len(shards[participants // 2]) == 60


@pytest.mark.parametrize(("participants", "each"), [(20, 2), (40, 5), (9, 1)])
def test_power_law_never_promises_more_than_the_pool(participants: int, each: int) -> None:
    """Where rounding up uses the pool up early, whoever comes last goes short; nobody gets another's examples."""
    shards = power_law(participants * each, participants, each, seeded())
    assert len(shards) == participants
    assert torch.equal(torch.cat(shards).sort().values, torch.arange(participants * each))


CLASSES = {
    5: [1, 3, 5, 7, 10],
    10: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    20: [1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10],
}


@pytest.mark.parametrize("participants", CLASSES)
def test_class_counts_are_as_specified(participants: int) -> None:
    """CLA: floor(n / c_i) of each of the first c_i classes, the rest of n from the last of them."""
    shards = by_class(LABELS, 10, participants, 50, seeded())
    for shard, classes in zip(shards, CLASSES[participants], strict=True):
        share = 50 // classes
        expected = [share] * (classes - 1) + [50 - share * (classes - 1)] + [0] * (10 - classes)
        assert histogram(shard) == expected
    assert len(torch.cat(shards).unique()) == participants * 50


def test_class_counts_of_five_participants() -> None:
    """CLA with N = 5 and n = 100, by hand."""
    assert [histogram(shard) for shard in by_class(LABELS, 10, 5, 100, seeded())] == [
        [100, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [33, 33, 34, 0, 0, 0, 0, 0, 0, 0],
        [20, 20, 20, 20, 20, 0, 0, 0, 0, 0],
        [14, 14, 14, 14, 14, 14, 16, 0, 0, 0],
        [10, 10, 10, 10, 10, 10, 10, 10, 10, 10],
    ]


@pytest.mark.parametrize("classes", [2, 4, 10])
def test_class_counts_are_exact_for_any_number_of_participants(classes: int) -> None:
    """CLA: c_i = floor(1 + i (C - 1) / (N - 1)) without rounding errors; one example each lies in class c_i - 1."""
    labels = torch.arange(classes).repeat(200)
    for participants in range(2, 101):
        shards = by_class(labels, classes, participants, 1, seeded())
        expected = [i * (classes - 1) // (participants - 1) for i in range(participants)]
        assert labels[torch.cat(shards)].tolist() == expected


def test_class_split_works_on_unordered_uneven_labels() -> None:
    """CLA finds the classes wherever their examples lie."""
    labels = torch.cat([torch.full((300,), 0), torch.full((150,), 1), torch.full((60,), 2)])
    labels = labels[torch.randperm(len(labels), generator=seeded())]
    shards = by_class(labels, 3, 3, 60, seeded())
    assert [torch.bincount(labels[shard], minlength=3).tolist() for shard in shards] == [
        [60, 0, 0],
        [30, 30, 0],
        [20, 20, 20],
    ]


def test_class_with_too_few_examples() -> None:
    """CLA says which class runs short, what it needs, what there is, and which option to turn."""
    labels = torch.arange(10).repeat(100)
    with pytest.raises(UserError, match="class 0") as caught:
        by_class(labels, 10, 5, 100, seeded())
    message = str(caught.value)
    assert "at least 177 examples" in message  # 100 + 33 + 20 + 14 + 10
    assert "there are 100" in message
    assert "--data.examples_per_participant" in message
    assert "--federation.participants" in message


@pytest.mark.parametrize(("participants", "each"), [(5, 100), (10, 59), (10, 100), (20, 33)])
def test_the_advised_number_of_examples_works(participants: int, each: int) -> None:
    """Who follows the advice of CLA's message gets a split."""
    assert_advised_well(torch.arange(10).repeat(37), 10, participants, each)


@pytest.mark.parametrize(("participants", "classes", "each", "count"), [(21, 5, 23, 825), (10, 13, 5, 65)])
def test_advice_where_the_last_class_is_topped_up(participants: int, classes: int, each: int, count: int) -> None:
    """What one class needs does not grow evenly with the shards, and another class may be the next to run short."""
    assert_advised_well(torch.arange(classes).repeat(count // classes), classes, participants, each)


def assert_advised_well(labels: Tensor, classes: int, participants: int, each: int) -> None:
    with pytest.raises(UserError, match=r"examples_per_participant to \d+") as caught:
        by_class(labels, classes, participants, each, seeded())
    advised = int(re.findall(r"examples_per_participant to (\d+)", str(caught.value))[0])
    shards = by_class(labels, classes, participants, advised, seeded())
    assert [len(shard) for shard in shards] == [advised] * participants


def test_no_advice_that_cannot_be_followed() -> None:
    """Where not even one example each would do, the message does not advise 0, which is no valid value."""
    with pytest.raises(UserError) as caught:
        by_class(torch.arange(10).repeat(5), 10, 20, 33, seeded())
    assert "examples_per_participant to 0" not in str(caught.value)


@pytest.mark.parametrize("alpha", [0.01, 0.5, 100.0])
@pytest.mark.parametrize("participants", [1, 3, 10])
def test_dirichlet_divides_the_whole_pool(participants: int, alpha: float) -> None:
    """DIR hands out n N different valid examples, whatever the skew."""
    together = torch.cat(dirichlet(LABELS, 10, participants, 100, alpha, seeded()))
    assert len(together) == len(together.unique()) == participants * 100
    assert 0 <= int(together.min()) <= int(together.max()) < len(LABELS)


def test_small_alpha_skews_and_large_alpha_does_not() -> None:
    """DIR: at alpha 0.01 a class has about one holder; at alpha 1000 everybody has about its share of every class."""

    def largest_share(alpha: float) -> Tensor:
        counts = torch.tensor([histogram(shard) for shard in dirichlet(LABELS, 10, 5, 800, alpha, seeded())])
        return counts.max(0).values / counts.sum(0)

    assert float(largest_share(0.01).mean()) > 0.9
    assert float(largest_share(1000.0).max()) < 0.25


@pytest.mark.parametrize("alpha", [1e-3, 1e-4, 1e-10, 5e-324])
def test_the_smaller_alpha_the_fewer_hold_a_class(alpha: float) -> None:
    """DIR: where a class's draws underflow, half of them or all, it goes to one participant, to each as often."""
    classes = 2000
    labels = torch.arange(classes).repeat(4)
    shards = dirichlet(labels, classes, 4, classes, alpha, seeded())
    counts = torch.stack([torch.bincount(labels[shard], minlength=classes) for shard in shards])
    assert float((counts.max(0).values == 4).double().mean()) > 0.99
    assert counts.sum(1).double().div(4 * classes).tolist() == pytest.approx([0.25] * 4, abs=0.04)


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.inf, -math.inf, math.nan, 1e301])
def test_an_alpha_that_cannot_be(alpha: float) -> None:
    """DIR: it is refused by its option, before anything is divided."""
    expected = f"to be positive and at most 1e+300, but got {alpha};"
    with pytest.raises(UserError, match=re.escape(f"--data.split.alpha {expected}")):
        DIR(alpha=alpha)
    with pytest.raises(UserError, match=re.escape(f"--data.dirichlet_alpha {expected}")):
        Digits(Federation(participants=2), split="DIR", dirichlet_alpha=alpha)


@pytest.mark.parametrize(
    "divide",
    [
        lambda: uniform(99, 10, 10, seeded()),
        lambda: power_law(99, 10, 10, seeded()),
        lambda: dirichlet(LABELS[:99], 10, 10, 10, 0.5, seeded()),
        lambda: sorted_shards(LABELS[:99], 10, 10, 2, seeded()),
        lambda: mixed(LABELS[:99], 10, 10, 0.5, seeded()),
    ],
    ids=["UNI", "POW", "DIR", "SHARDS", "MIX"],
)
def test_a_pool_that_is_too_small(divide: Callable[[], list[Tensor]]) -> None:
    """Too small a pool is told with what is needed, what there is, and the options."""
    with pytest.raises(UserError, match=r"at least 100 .* there are 99; .*--data.examples_per_participant"):
        divide()


DIGESTS = {
    ("UNI", 5, 0, ()): "a773fb884067aa10",
    ("UNI", 5, 2, ()): "3a2db2d1786e2885",
    ("POW", 5, 1, ()): "1eca1c8af6fb9b33",
    ("POW", 10, 0, (("examples_per_participant", 40),)): "71b2bfe2a13c4fe9",
    ("CLA", 5, 1, (("examples_per_participant", 60),)): "5836766550cb517d",
    ("CLA", 10, 0, (("examples_per_participant", 20),)): "8e5a57588b163afe",
    ("DIR", 5, 1, ()): "82bd33d0b1c9843f",
    ("DIR", 7, 0, (("dirichlet_alpha", 0.1),)): "80f0bcb76172bc05",
}


@pytest.mark.parametrize(("split", "honest", "adversaries", "options"), DIGESTS)
def test_shards_are_those_of_the_first_release(
    split: str, honest: int, adversaries: int, options: tuple[tuple[str, Any], ...]
) -> None:
    """Validation and all shards of the digits, to the bit, against digests recorded before splits were classes."""
    federation = Federation(participants=honest, adversaries=adversaries, seed=3)
    data = Digits(
        federation, split=split, **{"examples_per_participant": 100, "adversary_examples": 100, **dict(options)}
    )
    data.setup("fit")
    parts = b"".join(part.numpy().tobytes() for part in (data.held_out, *data.shards))
    assert hashlib.sha256(parts).hexdigest()[:16] == DIGESTS[split, honest, adversaries, options]


@pytest.mark.parametrize("seed", range(20))
def test_indices_of_each_class(seed: int) -> None:
    """They are what a look for one class after another finds, of classes without examples nothing, as of no indices."""
    classes, count = (int(torch.randint(1, 60, (), generator=seeded(seed + i))) for i in (0, 100))
    labels = torch.randint(classes, (count,), generator=seeded(seed))
    for indices in (torch.arange(count), torch.randperm(count, generator=seeded(seed))[: count // 2], torch.arange(0)):
        found = of_each_class(indices, labels, classes)
        for c, members in enumerate(found):
            assert torch.equal(members, indices[labels[indices] == c])
        assert len(found) == classes


@pytest.mark.parametrize("cut", [CLA(draw="disjoint"), CLA(draw="released"), DIR()], ids=["CLA", "released", "DIR"])
@pytest.mark.filterwarnings("ignore:Split CLA drew")
def test_labels_are_gone_through_once_for_all_classes(cut: Split) -> None:
    """A thousand classes of a million examples took half a minute."""
    labels = torch.arange(50).repeat(200)
    with Made() as made:
        cut.cut(Pool(labels=labels, num_classes=50, participants=2, each=100, generator=seeded()))
    assert sum(entries >= len(labels) for entries in made.entries) < 20


@pytest.mark.parametrize("seed", range(40))
def test_the_advised_number_of_examples_is_the_largest(seed: int) -> None:
    """Of all that are fewer, of every number of classes and participants, also where some have few examples or none."""
    draw = seeded(seed)
    classes, participants, most = (int(torch.randint(1, high, (), generator=draw)) for high in (9, 15, 300))
    there = torch.randint(int(torch.randint(1, 2000, (), generator=draw)), (classes,), generator=draw)
    fit = [few for few in range(1, most) if (wanted(classes, participants, few).sum(0) <= there).all()]
    assert largest(there, participants, most) == max(fit, default=0)


def test_a_scarce_class_is_known_at_once() -> None:
    """The first class runs a little short and the last has five examples: no size that is far too large is tried."""
    there = wanted(10, 100, 30_000).sum(0)
    there[0], there[9] = there[0] - 10, 5
    with Made() as made:
        assert largest(there, 100, 30_000) == 50
    assert sum(made.entries) < 10_000
