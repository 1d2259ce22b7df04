"""Participants with examples and networks for the tests of local training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor, nn

from rffl_pl.federation import Federation
from rffl_pl.models import Perceptron
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Batches, Examples, Schedule

CPU = torch.device("cpu")
FEDERATION = Federation(participants=5, seed=3)


class Shuffled:
    """A participant's examples in mini-batches, in an order drawn from the surrounding random stream."""

    def __init__(self, x: Tensor, y: Tensor, batch_size: int = 8) -> None:
        self.x, self.y, self.batch_size = x, y, batch_size

    def __len__(self) -> int:
        return len(self.y)

    @property
    def batches(self) -> int:
        return -(-len(self.y) // self.batch_size)

    def epoch(self) -> Batches:
        for part in torch.randperm(len(self.y)).split(self.batch_size):
            yield self.x[part], self.y[part]

    def steps(self, count: int) -> Batches:
        return islice(chain.from_iterable(self.epoch() for _ in range(count)), count)

    def in_order(self) -> Batches:
        return zip(self.x.split(self.batch_size), self.y.split(self.batch_size), strict=True)


def examples(participant: int, n: int = 28) -> Shuffled:
    """Learnable examples, different for every participant; the last mini-batch is smaller."""
    generator = torch.Generator().manual_seed(participant)
    x = torch.randn(n + participant, 6, generator=generator)
    return Shuffled(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def mlp() -> nn.Module:
    return seeded(lambda: Perceptron(6, 16, 3))


def dropout() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)))


def batchnorm() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)))


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.3)


def momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def train_round(
    cohort: Cohort, shards: Mapping[int, Examples], schedule: Schedule, federation: Federation, number: int
) -> dict[int, float]:
    """A round of training alone of those who have examples: the loss of each."""
    return {
        i: cohort.train(index, shards[i], schedule, number, federation.seed_for("training", i, number))
        for index, i in enumerate(cohort.participants)
        if i in shards
    }


def losses_of(cohort: Cohort, shards: Mapping[int, Examples]) -> Tensor:
    """Everybody's loss on its own examples, ``[n]``; NaN for those without."""
    hosted = enumerate(cohort.participants)
    losses = [cohort.loss(index, shards[i]) if i in shards else float("nan") for index, i in hosted]
    return torch.tensor(losses, dtype=torch.float64)


def trained(
    network: nn.Module, hosted: Sequence[int], rounds: int = 2, optimizer: Any = sgd, schedule: Schedule | None = None
) -> Cohort:
    cohort = Cohort(network, hosted, optimizer, CPU)
    for round_index in range(rounds):
        train_round(cohort, {i: examples(i) for i in hosted}, schedule or Schedule(), FEDERATION, round_index)
    return cohort
