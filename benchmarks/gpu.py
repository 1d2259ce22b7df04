"""One table of what a card does: rounds with either engine and in several precisions, and what the exchange adds.

    make gpu        # after its tests; alone: PYTHONPATH=. python3 benchmarks/gpu.py [--quick]

Jobs are named after who published them; data is random, of the real data's shape and number. "unfolded" is the stacked
engine with convolutions as products of matrices, as which n models are one batched product instead of n groups. Medians
of rounds after the first one, with the card waited for; without a card, on the CPU, to see that it runs. What tells
most comes first, and what is not reached in time is said at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rffl_pl.adversaries import Cast
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.exchange import Exchange
from rffl_pl.federation import Federation
from rffl_pl.models import CIFAR10CNN, MNISTCNN, TextCNN
from rffl_pl.models.vision import _layout
from rffl_pl.round.play import play
from rffl_pl.round.table import Table
from rffl_pl.servers import RFFL, FedAvg, Server, Task
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import flat_parameters, layer_sizes
from rffl_pl.training.schedule import OptimizerFactory, Schedule

FAILED: list[str] = []
"""What rows met that was no lack of memory."""
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A federation whose rounds are timed."""

    network: Callable[[], nn.Module]
    shape: tuple[int, ...]
    participants: int
    examples: int
    batch: int
    epochs: int
    optimizer: OptimizerFactory
    server: Callable[[], Server]


JOBS = {
    "MNIST, 10 x 600, E = 3, RFFL": Job(
        network=MNISTCNN, shape=(1, 32, 32), participants=10, examples=600, batch=32, epochs=3,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.15), server=RFFL,
    ),
    "CIFAR-10, 10 x 2000, E = 3, RFFL": Job(
        network=CIFAR10CNN, shape=(3, 32, 32), participants=10, examples=2000, batch=128, epochs=3,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.015), server=RFFL,
    ),
    "MR, 5 x 1919, E = 3, RFFL": Job(
        network=lambda: TextCNN(vocabulary=20_000), shape=(40,), participants=5, examples=1919, batch=128, epochs=3,
        optimizer=lambda p: torch.optim.Adam(p, lr=5e-5), server=RFFL,
    ),
    "BlazeFL's CIFAR-10, 100 x 500, E = 5, FedAvg": Job(
        network=CIFAR10CNN, shape=(3, 32, 32), participants=100, examples=500, batch=50, epochs=5,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.01), server=FedAvg,
    ),
    "MNIST, 1000 x 60, E = 1, FedAvg": Job(
        network=MNISTCNN, shape=(1, 32, 32), participants=1000, examples=60, batch=20, epochs=1,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1), server=FedAvg,
    ),
}  # fmt: skip


ROWS = [
    ("stacked", "default"), ("loop", "default"), ("stacked", "bf16"), ("loop", "bf16"), ("stacked", "float32"),
    ("loop", "float32"), ("unfolded", "bf16"), ("unfolded", "float32"), ("unfolded", "TF32"), ("stacked", "TF32"),
    ("loop", "TF32"),
]  # fmt: skip
"""Engines and precisions, from what tells most on."""


class Unfolded(nn.Conv2d):
    """A convolution as a product with every patch of its input."""

    def forward(self, x: Tensor) -> Tensor:
        # Views: torch's own unfold starts an operation for every image.
        patches = x.unfold(-2, self.kernel_size[0], 1).unfold(-2, self.kernel_size[1], 1)
        height, width = patches.shape[-4:-2]
        rows = patches.movedim(-5, -3).flatten(-3).flatten(-3, -2)  # [B, height * width, channels * kernel]
        flat = rows @ self.weight.flatten(1).T + (0 if self.bias is None else self.bias)
        image: Tensor = flat.mT.unflatten(-1, (height, width))
        return image


class Precision:
    """Full, TF32 or bfloat16, as Lightning's options have it; as torch comes, convolutions alone are in TF32."""

    def __init__(self, name: str) -> None:
        self.name = name

    def train_step_context(self) -> AbstractContextManager[object]:
        torch.set_float32_matmul_precision("highest" if self.name in ("default", "float32") else "high")
        torch.backends.cudnn.allow_tf32 = self.name != "float32"
        return torch.autocast(DEVICE.type, torch.bfloat16) if self.name == "bf16" else contextlib.nullcontext()

    val_step_context = train_step_context


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the examples, to see that it runs")
    parser.add_argument("--rounds", type=int, default=3, help="timed, after one that warms up")
    parser.add_argument("--budget", type=float, default=25, help="seconds after which a row takes no further round")
    parser.add_argument("--total", type=float, default=3600, help="seconds after which no further row is begun")
    given = parser.parse_args()
    begun, missed = time.monotonic(), 0
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}: seconds of a round\n")
    print("| job | engine | precision | round | training | exchange and server | of the round | peak GB |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for (engine, precision), (title, job) in itertools.product(ROWS, JOBS.items()):
        if DEVICE.type == "cpu" and precision in ("default", "TF32"):
            continue
        if time.monotonic() - begun > given.total:
            missed += 1
        else:
            print(f"| {title} | {row(job, given, engine, precision)}", flush=True)
    if missed:
        print(f"\n{missed} rows were not reached within --total {given.total:g} seconds.")
    torch.set_float32_matmul_precision("highest")
    if FAILED:
        sys.exit(f"{len(FAILED)} rows failed: {FAILED[0]}")


def row(job: Job, given: argparse.Namespace, engine: str, precision: str) -> str:
    """The cells of one row; what fails says why, and what has no room says so."""
    head = f"{engine} | {precision} |"
    examples = max(2, job.examples // 10) if given.quick else job.examples
    try:
        whole, training = timed(job, examples, given.rounds, given.budget, engine, precision)
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if not isinstance(error, torch.cuda.OutOfMemoryError):
            FAILED.append(said)
        return f"{head} {said[:80]} |"
    peak = torch.cuda.max_memory_allocated() / 1e9 if DEVICE.type == "cuda" else float("nan")
    rest = whole - training
    return f"{head} {whole:.4f} | {training:.4f} | {rest:.4f} | {rest / whole:.1%} | {peak:.2f} |"


def timed(job: Job, examples: int, rounds: int, budget: float, engine: str, precision: str) -> tuple[float, float]:
    """Median seconds of a round, and of its local training."""
    table, shards = seated(job, examples, engine, precision)
    taken, training, begun = [], [], _now()
    spent = [0.0]
    train_all = table.cohort.train_all

    def watched(*args: object) -> dict[int, float]:
        before = _now()
        losses = train_all(*args)  # type: ignore[arg-type]
        spent[0] = _now() - before
        return losses

    table.cohort.train_all = watched  # type: ignore[assignment,method-assign]
    for number in range(rounds + 1):
        before = _now()
        play(table, shards, number)
        taken.append(_now() - before)
        training.append(spent[0])
        if number and _now() - begun > budget:
            break
    return median(taken[1:]), median(training[1:])


def seated(job: Job, examples: int, engine: str, precision: str) -> tuple[Table, dict[int, Shard]]:
    """A federation before its first round, and everybody's examples."""
    gc.collect()  # the table before is a circle, and its examples lie on the card
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    generator = torch.Generator().manual_seed(1)
    size = (job.participants * examples, *job.shape)
    words = len(job.shape) == 1
    x = torch.randint(1, 20_000, size, generator=generator) if words else torch.randn(size, generator=generator)
    dataset = TensorDataset(x, torch.randint(0, 2 if words else 10, size[:1], generator=generator))
    torch.manual_seed(0)
    network, everybody, server = job.network(), range(job.participants), job.server()
    for module in network.modules() if engine == "unfolded" else ():
        if type(module) is nn.Conv2d:
            module.__class__ = Unfolded
    if isinstance(network, MNISTCNN | CIFAR10CNN):
        network._made = _layout(network)  # by which it knows that it may leave out what pooling drops
    layers = layer_sizes(network)
    server.start(
        Task(
            examples=[examples for _ in everybody], classes=[10 for _ in everybody], layers=layers, learning_rate=0.1,
            seed=1, initial=flat_parameters(network).to(DEVICE), accuracy=None,
        )
    )  # fmt: skip
    federation = Federation(participants=job.participants, seed=1)
    table = Table(
        federation=federation,
        cohort=Cohort(network, everybody, job.optimizer, DEVICE, stacked=engine != "loop"),
        cast=Cast(federation, None),
        exchange=Exchange([everybody], 0, DEVICE, sum(layers)),
        server=server,
        schedule=Schedule(epochs=job.epochs),
        precision=Precision(precision),
    )
    owned = enumerate(torch.arange(len(x)).split(examples))
    return table, {i: Shard(Reader(dataset), own, job.batch) for i, own in owned}


def _now() -> float:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
