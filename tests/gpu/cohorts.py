"""Participants with the package's networks on any device, and what of their training happens step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.models import CIFAR10CNN, MNISTCNN, Perceptron, TextCNN
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Schedule
from rffl_pl.training.stack import Turn

ENGINES = ("loop", "stacked")
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.03),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3),
}
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "Perceptron": lambda: Perceptron(64, 16, 10),
    "MNISTCNN": MNISTCNN,
    "CIFAR10CNN": CIFAR10CNN,
    "TextCNN": lambda: TextCNN(vocabulary=100, classes=10, width=16, kernels=8),
}
_SHAPES = {"Perceptron": (64,), "MNISTCNN": (1, 32, 32), "CIFAR10CNN": (3, 32, 32)}
SIZES = (20, 80, 33, 67)


def inputs(name: str, count: int) -> Tensor:
    """Random ones for a network."""
    generator = torch.Generator().manual_seed(1)
    if name == "TextCNN":
        return torch.randint(1, 100, (count, 20), generator=generator)
    return torch.randn(count, *_SHAPES[name], generator=generator)


def cohort(
    name: str,
    device: torch.device | str,
    *,
    stacked: bool,
    optimizer: str = "SGD",
    sizes: Sequence[int] = SIZES,
    batch: int = 16,
) -> tuple[Cohort, dict[int, Shard]]:
    """Four participants with so many examples each."""
    torch.manual_seed(0)
    made = Cohort(NETWORKS[name](), range(len(sizes)), OPTIMIZERS[optimizer], torch.device(device), stacked=stacked)
    dataset = TensorDataset(inputs(name, sum(sizes)), torch.arange(sum(sizes)) * 7 // 3 % 10)
    own = torch.arange(sum(sizes)).split(list(sizes))
    return made, {i: Shard(Reader(dataset), indices, batch) for i, indices in enumerate(own)}


def trained(name: str, device: str, *, stacked: bool) -> Tensor:
    """Their weights ``[4, D]`` after a round."""
    made, shards = cohort(name, device, stacked=stacked)
    made.train_all(shards, Schedule(epochs=1), 0, {i: i for i in shards})
    return made.weights.cpu()


def steps(made: Cohort, shards: Mapping[int, Shard]) -> None:
    """A local epoch of everybody: a round but for its ends, where each is asked whether its weights are finite."""
    if made._stack is not None:
        turns = [Turn(made.weights[i], made.optimizers[i], shard, i, made.weights[i]) for i, shard in shards.items()]
        made._stack.train(turns, [0.03])
        return
    for i, shard in shards.items():
        turn = made._turn(i, shard, Schedule(epochs=1), i, None)
        made._rate_sums[i] = 0.0
        with made._minimising(i, 0) as minimised:
            made._train_epoch(i, 1.0, turn, *minimised)


@contextmanager
def full_precision() -> Iterator[None]:
    """On a card the CPU's precision, where TF32 would be another, and the kernels that torch calls deterministic."""
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, products.allow_tf32, cudnn.deterministic
    cudnn.allow_tf32, products.allow_tf32, cudnn.deterministic = False, False, True
    try:
        yield
    finally:
        cudnn.allow_tf32, products.allow_tf32, cudnn.deterministic = before
