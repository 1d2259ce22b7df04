"""What corrected steps (``--model.scaffold``) cost a participant's local training: python -m benchmarks.scaffold.

Rounds with and without in turns, on one thread, in seconds of CPU; medians, and the median of the ratios.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.utils.data import TensorDataset

from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.models import MNISTCNN, Perceptron
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Schedule

TASKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "MNIST": (MNISTCNN, (1, 32, 32), 200),
    "digits": (lambda: Perceptron(64, 64, 10), (64,), 100),
}
ROUNDS, WARM = 23, 3


def main() -> None:
    torch.set_num_threads(1)
    for name, (make, shape, examples) in TASKS.items():
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(examples, *shape), torch.randint(10, (examples,)))
        shard, network = Shard(Reader(data), torch.arange(examples), 16), make()
        cohorts = [Cohort(network, [0], _sgd, torch.device("cpu"), scaffold=asked) for asked in (False, True)]
        taken = [[_round(cohort, shard, number) for cohort in cohorts] for number in range(ROUNDS)][WARM:]
        plain, corrected = (1000 * statistics.median(times) for times in zip(*taken, strict=True))
        ratio = statistics.median(after / before for before, after in taken)
        print(f"{name}: {plain:.1f} ms a round, corrected {corrected:.1f} ms, ratio {ratio:.3f}")


def _sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def _round(cohort: Cohort, shard: Shard, number: int) -> float:
    begin = time.process_time()
    cohort.train(0, shard, Schedule(), number, number)
    cohort.download(0, cohort.take_update(0).clone(), whole=True)
    if cohort.corrections is not None:
        cohort.corrections.end_round()
    return time.process_time() - begin


if __name__ == "__main__":
    main()
