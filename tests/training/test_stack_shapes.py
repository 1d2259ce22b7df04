"""What a stack fills up, and what it must not: inputs of unlike shape, and networks that begin with zeros."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Examples, Schedule
from rffl_pl.training.stack import refusal
from tests.cohorts import CPU, seeded, sgd


def series(count: int, *shape: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(sum(shape))
    return TensorDataset(torch.randn(count, *shape, generator=generator), torch.arange(count) % 3)


class Listed(Dataset[tuple[Tensor, Tensor]]):
    """The same, read one by one."""

    def __init__(self, whole: TensorDataset) -> None:
        self.whole = whole

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.whole[index]
        return x, y


class Mean(nn.Module):
    """Logits of series ``[B, T, 4]`` or images ``[B, 4, h, w]`` of any length or size, by a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(2).mT if x.dim() == 4 else x
        logits: Tensor = self.head(self.body(x).tanh().mean(1))
        return logits


@pytest.mark.parametrize(
    "shapes",
    [[(6, 4), (14, 4), (6, 4), (22, 4)], [(4, 5, 5), (4, 5, 5), (4, 8, 3), (4, 3, 8)]],
    ids=["series", "images"],
)
@pytest.mark.parametrize("listed", [(), (1, 2), (0, 1, 2, 3)], ids=["in memory", "some", "none in memory"])
def test_inputs_of_unlike_shape(shapes: list[tuple[int, ...]], listed: tuple[int, ...]) -> None:
    """Zeros behind the shorter ones would count in a mean, and results depend on who shares a process."""
    sets = [series(count, *shape) for count, shape in zip((20, 33, 7, 12), shapes, strict=True)]
    examples: dict[int, Examples] = {
        i: Shard(Reader(Listed(each) if i in listed else each), torch.arange(len(each)), 8)
        for i, each in enumerate(sets)
    }
    network = seeded(Mean)
    cohorts = [Cohort(network, range(4), sgd, CPU, stacked=stacked) for stacked in (False, True)]
    losses = [each.train_all(examples, Schedule(epochs=3), 0, {i: i for i in range(4)}) for each in cohorts]
    torch.testing.assert_close(cohorts[1].weights, cohorts[0].weights, rtol=1e-5, atol=1e-6)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


class Words(nn.Module):
    """Logits of token ids by a mean over all of them, padding too, and a last layer of zeros."""

    def __init__(self, *, masked: bool = False, small: bool = False) -> None:
        super().__init__()
        self.embedding, self.head, self.masked = nn.Embedding(60, 8, padding_idx=0), nn.Linear(8, 3), masked
        if small:  # so that the bias is all that shows
            nn.init.normal_(self.embedding.weight, std=1e-3)
        else:
            nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        found = self.embedding(x)
        there = (x != 0).sum(1, keepdim=True).clamp_min(1) if self.masked else x.shape[1]
        logits: Tensor = self.head(found.sum(1) / there)
        return logits


class Centred(nn.Linear):
    """Takes the mean of the batch away, and begins with zeros."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0))


SENTENCES = torch.randint(1, 60, (4, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("make", "x", "why"),
    [
        (Words, SENTENCES, "depends on how many zeros are behind it"),
        (lambda: Words(small=True), SENTENCES, "depends on how many zeros are behind it"),
        (Centred, torch.randn(4, 6), "depends on which others are in the batch"),
        (lambda: Words(masked=True), SENTENCES, None),  # whose padding is a row of zeros, and stays one
        (lambda: Words(masked=True, small=True), SENTENCES, None),
    ],
    ids=["words", "small words", "batch", "masked", "small masked"],
)
def test_what_initial_logits_do_not_show(make: Callable[[], nn.Module], x: Tensor, why: str | None) -> None:
    """A last layer of zeros gives the same of everything, until it has been trained."""
    network = make()
    found = refusal(network, sgd(network.parameters()), x)
    assert found is None if why is None else why in str(found)


def test_a_layer_that_stands_in_two_places() -> None:
    """Dropout once made, in use twice, draws twice."""
    drop = nn.Dropout(0.5)
    network = seeded(lambda: nn.Sequential(nn.Linear(4, 8), drop, nn.Tanh(), nn.Linear(8, 8), drop, nn.Linear(8, 3)))
    assert refusal(network, sgd(network.parameters()), torch.randn(2, 4)) is None
    readers = {i: Reader(series(20 + 9 * i, 4)) for i in range(3)}
    examples: dict[int, Examples] = {i: Shard(reader, torch.arange(20 + 9 * i), 8) for i, reader in readers.items()}
    cohorts = [Cohort(network, range(3), sgd, CPU, stacked=stacked) for stacked in (False, True)]
    for cohort in cohorts:
        cohort.train_all(examples, Schedule(epochs=2), 0, {i: i for i in range(3)})
    torch.testing.assert_close(cohorts[1].weights, cohorts[0].weights, rtol=1e-5, atol=1e-6)
