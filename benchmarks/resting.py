"""What a rank holds for its participants, and what it would cost to have optimizer state rest on disk between turns.

    OMP_NUM_THREADS=1 python -m benchmarks.resting [--hidden 40000] [--participants 20] [--examples 60] [--folder /tmp]

A perceptron on inputs of 64 entries with 75 ``hidden`` + 10 parameters. A turn is one epoch of one participant in
mini-batches of 32; resting writes what its optimizer remembers to a file as it lies in memory and reads it back, by the
processor's time and by the clock. Files go through the page cache; a disk that is full of them is slower.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from rffl_pl.cli.process import keep_freed_memory
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.models import Perceptron
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import OptimizerFactory, Schedule

OPTIMIZERS: dict[str, OptimizerFactory] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3),
}


def remembered(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The tensors of an optimizer's state that are as large as parameters."""
    found = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    return [value for value in found if value.dim()]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of the processor and of the clock, the least of three."""
    found = []
    for _ in range(3):
        start = time.process_time(), time.perf_counter()
        work()
        found.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    return 1000 * min(one for one, _ in found), 1000 * min(one for _, one in found)


def write(path: Path, state: Sequence[Tensor]) -> None:
    """Put a turn's state on disk."""
    with path.open("wb") as file:
        for value in state:
            value.numpy().tofile(file)


def read(path: Path, state: Sequence[Tensor]) -> None:
    """Take it from there."""
    with path.open("rb") as file:
        for value in state:
            file.readinto(value.view(-1).numpy().data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=40_000)
    parser.add_argument("--participants", type=int, default=20)
    parser.add_argument("--examples", type=int, default=60)
    parser.add_argument("--folder")
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    data = TensorDataset(torch.randn(given.examples, 64), torch.randint(0, 10, (given.examples,)))
    shard = Shard(Reader(data), torch.arange(given.examples), 32)
    schedule = Schedule(epochs=1)
    for name, factory in OPTIMIZERS.items():
        network = Perceptron(inputs=64, hidden=given.hidden)
        cohort = Cohort(network, [0], factory, torch.device("cpu"))
        cohort.train(0, shard, schedule, 0, seed=0)
        turn = timed(partial(cohort.train, 0, shard, schedule, 0, seed=0))
        state = remembered(cohort.optimizers[0])
        model, kept = 4 * cohort.weights.shape[1], sum(4 * value.numel() for value in state)
        each = [2**-20 * given.participants * size for size in (model, model, kept)]
        line = "weights {:.0f}, updates {:.0f}, optimizers {:.0f} MiB".format(*each)
        print(f"{name}: {line}; a turn {turn[0]:.0f} ms of the processor, {turn[1]:.0f} by the clock", flush=True)
        if not state:
            continue
        with TemporaryDirectory(dir=given.folder) as folder:
            for doing in (write, read):
                worked, took = timed(partial(doing, Path(folder) / "state", state))
                print(f"  {doing.__name__} {worked:.0f} ms of the processor, {took:.0f} by the clock", flush=True)


if __name__ == "__main__":
    main()
