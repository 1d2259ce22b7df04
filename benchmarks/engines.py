"""Local training of all participants of a rank, one after another and as one stack of models: seconds of an epoch.

    python benchmarks/engines.py [--networks Perceptron MNISTCNN] [--participants 10 100] [--repeats 5]

Both engines take turns in one process, on the GPU if there is one, else on one thread, by the processor's time, which
other work on the machine moves less: medians, the median of the ratios turn by turn, the least and the largest of
those, and by how much the weights differ after the last epoch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.models import CIFAR10CNN, MNISTCNN, Perceptron, TextCNN
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import OptimizerFactory, Schedule

TASKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, OptimizerFactory]] = {
    "Perceptron": (Perceptron, (64,), 16, lambda p: torch.optim.SGD(p, lr=0.1)),
    "MNISTCNN": (MNISTCNN, (1, 32, 32), 16, lambda p: torch.optim.SGD(p, lr=0.1)),
    "CIFAR10CNN": (CIFAR10CNN, (3, 32, 32), 64, lambda p: torch.optim.SGD(p, lr=0.02)),
    "TextCNN": (lambda: TextCNN(vocabulary=5000), (40,), 128, lambda p: torch.optim.Adam(p, lr=1e-4)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--participants", nargs="+", type=int, default=[10])
    parser.add_argument("--examples", type=int, default=200, help="of each participant")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"{device}, torch {torch.__version__}, {given.examples} examples each, seconds of a local epoch of all")
    print(f"{'network':<12}{'n':>5}{'loop':>10}{'stacked':>10}{'ratio':>8}{'from':>8}{'to':>8}{'difference':>13}")
    for name in given.networks:
        for count in given.participants:
            turns, apart = compared(name, count, given.examples, given.repeats, device)
            loop, stacked = (median(taken) for taken in zip(*turns, strict=True))
            ratios = [a / b for a, b in turns]
            shown = "".join(f"{value:>8.2f}" for value in (median(ratios), min(ratios), max(ratios)))
            print(f"{name:<12}{count:>5}{loop:>10.4f}{stacked:>10.4f}{shown}{apart:>13.1e}", flush=True)


def compared(
    name: str, count: int, examples: int, repeats: int, device: torch.device
) -> tuple[list[tuple[float, float]], float]:
    """Seconds of both engines in every turn, and the largest difference of a weight."""
    make, shape, batch, optimizer = TASKS[name]
    generator = torch.Generator().manual_seed(1)
    size = (count * examples, *shape)
    x = (
        torch.randint(1, 5000, size, generator=generator)
        if name == "TextCNN"
        else torch.randn(size, generator=generator)
    )
    dataset = TensorDataset(x, torch.randint(0, 2, size[:1], generator=generator))
    shards = {i: Shard(Reader(dataset), own, batch) for i, own in enumerate(torch.arange(len(x)).split(examples))}
    torch.manual_seed(0)
    network = make()
    cohorts = [Cohort(network, range(count), optimizer, device, stacked=stacked) for stacked in (False, True)]
    seconds: list[list[float]] = [[], []]
    for number in range(repeats + 1):
        for cohort, taken in zip(cohorts, seconds, strict=True):
            begun = _now(device)
            cohort.train_all(shards, Schedule(epochs=1), number, {i: number * count + i for i in shards})
            taken.append(_now(device) - begun)
    turns = list(zip(*(taken[1:] for taken in seconds), strict=True))  # the first one warms up
    return turns, _apart(*(cohort.weights for cohort in cohorts))


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def _now(device: torch.device) -> float:
    if device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
