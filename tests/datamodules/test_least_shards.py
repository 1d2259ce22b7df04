"""DIR with a least shard: drawn again until everybody has one, and what is said where nobody can."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Gamma

from rffl_pl.datamodules import DIR, UNI, Digits, Split
from rffl_pl.datamodules.splits import dirichlet
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

LABELS = torch.arange(10).repeat(5400)  # class of example i: i mod 10
PARTICIPANTS, EACH = 100, 540


def drawn(seed: int, least: int = 0, alpha: float = 0.1) -> list[Tensor]:
    """What everybody gets of all examples."""
    return dirichlet(LABELS, 10, PARTICIPANTS, EACH, alpha, torch.Generator().manual_seed(seed), least)


def smallest(shards: list[Tensor]) -> int:
    """The fewest examples that somebody holds."""
    return min(map(len, shards))


def test_everybody_has_as_many() -> None:
    """With a seed after which somebody has none as with any other, and still all examples are somebody's, once."""
    empty = [seed for seed in range(40) if smallest(drawn(seed)) == 0]
    assert 2 <= len(empty) <= 12
    for seed in empty:
        shards = drawn(seed, least=5)
        assert smallest(shards) >= 5
        assert torch.equal(torch.cat(shards).sort().values, torch.arange(PARTICIPANTS * EACH))
        assert all(torch.equal(a, b) for a, b in zip(shards, drawn(seed, least=5), strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_the_first_draw_that_suffices(seed: int) -> None:
    """It is that of an independent loop which draws all classes again; without a least shard it is the first."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(LABELS), generator=generator)[: PARTICIPANTS * EACH].tolist()
    members = [[i for i in chosen if i % 10 == c] for c in range(10)]
    wanted = {0: drawn(seed), 1: drawn(seed, 1), 4: drawn(seed, 4)}
    torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
    gamma = Gamma(torch.full((PARTICIPANTS,), 0.1, dtype=torch.float64), 1.0)
    while wanted:
        shards: list[list[int]] = [[] for _ in range(PARTICIPANTS)]
        for found in members:
            shares = gamma.sample().numpy()
            cuts = np.round(np.cumsum(shares) / shares.sum() * len(found)).astype(int)
            for i, shard in enumerate(shards):
                shard += found[0 if i == 0 else cuts[i - 1] : cuts[i]]
        for least in [least for least in wanted if min(map(len, shards)) >= least]:
            assert [shard.tolist() for shard in wanted.pop(least)] == shards


def test_what_comes_behind_is_the_same() -> None:
    """However often is drawn, the stream that adversaries draw their examples from goes on from the same place."""
    once, often = (torch.Generator().manual_seed(3) for _ in range(2))
    dirichlet(LABELS, 10, PARTICIPANTS, EACH, 0.1, once)
    dirichlet(LABELS, 10, PARTICIPANTS, EACH, 0.1, often, 8)
    assert torch.equal(once.get_state(), often.get_state())


@pytest.mark.slow
def test_where_no_draw_suffices() -> None:
    """It is said after a thousand draws, with how near the best came; whoever takes that has it."""
    with pytest.raises(UserError, match="of 1000 draws of split DIR to give each of 100 participants 10") as caught:
        drawn(0, least=10, alpha=0.05)
    (best,) = re.findall(
        r"gives somebody (\d+); raise --data.split.alpha, or lower --data.split.least to", str(caught.value)
    )
    assert smallest(drawn(0, least=int(best), alpha=0.05)) == int(best)
    with pytest.raises(UserError, match=r"somebody 0; raise --data.split.alpha, or lower --federation.participants\."):
        drawn(0, least=1, alpha=1e-10)


def ready(split: Split | str, *, participants: int = 10, each: int | None = 100, **options: float) -> Digits:
    """The digits, divided."""
    data = Digits(Federation(participants=participants, seed=1), split=split, examples_per_participant=each, **options)  # type: ignore[arg-type]  # floats
    data.setup("fit")
    return data


def test_with_the_older_name_of_alpha() -> None:
    """A least shard is kept where the data module says what alpha is."""
    assert min(ready("DIR", dirichlet_alpha=0.02, participants=5).shard_sizes, default=0) < 20
    named, given = (
        ready(DIR(least=20), dirichlet_alpha=0.02, participants=5),
        ready(DIR(alpha=0.02, least=20), participants=5),
    )
    assert min(named.shard_sizes) >= 20
    assert named.identity() == given.identity()


@pytest.mark.parametrize("least", [0, -3, float("nan"), "10", True])
def test_a_number_that_means_nothing(least: int) -> None:
    """It is refused by its option."""
    with pytest.raises(UserError, match=r"Expected --data\.split\.least to be (at least 1|a whole number), but got"):
        DIR(least=least)


def test_more_than_the_mean() -> None:
    """It cannot be, and is said before anything is drawn; as many as the mean can, and be drawn by two."""
    with pytest.raises(UserError, match=r"least to be at most the 100 examples that .* average, but got 101; lower it"):
        ready(DIR(least=101))


def test_advice_to_whom_a_split_leaves_without_any() -> None:
    """It names what changes something: alpha is the split's own, and more examples only where there are more."""
    for each, more in ((100, "raise --data.examples_per_participant, "), (None, "")):
        with pytest.raises(UserError) as caught:
            ready(DIR(alpha=0.01), each=each)
        assert str(caught.value).endswith(
            "without any; give --data.split.least 1, raise --data.split.alpha, "
            f"{more}or lower --federation.participants."
        )
        assert "dirichlet_alpha" not in str(caught.value)
        assert min(ready(DIR(alpha=0.01, least=1), each=each).shard_sizes) >= 1
        assert min(ready(DIR(alpha=1.0), each=each).shard_sizes) >= 1


@pytest.mark.filterwarnings("ignore:No honest participant")
def test_advice_for_another_split() -> None:
    """Of Dirichlet's options nothing is said to whom they do not help."""
    with pytest.raises(UserError, match=r"without any; raise --data.examples_per_participant, or lower --federation"):
        ready("POW", participants=9, each=1)
    assert min(ready("POW", participants=9, each=10).shard_sizes) >= 1
    assert ready(UNI(), participants=9, each=1).shard_sizes == [1] * 9
