"""Tables of what a card does: rounds with either engine and in several precisions, others' too, and what was aimed at.

    make gpu        # after its tests; alone: PYTHONPATH=. python3 benchmarks/gpu.py [--quick] [--jobs 1 2]

Jobs are named after who published them; data is random, of the real data's shape and number. "unfolded" is the stacked
engine with convolutions as products of matrices, as which n models are one batched product instead of n groups. Medians
of rounds after the first one, with the card waited for; without a card, on the CPU and by the processor's time, to see
that it runs. Where models are measured, every one is on so many held-out images after the rounds, in batches of 64.
Others (`benchmarks/card_peers.py`) play the first job: in the manner of the authors' script, layer by layer, and
pfl-research, FedAvg with our network, where it is installed. What tells most comes first; what is not reached in time
is said at the end, and in the last table it is "not measured".
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
from dataclasses import dataclass, fields
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from benchmarks.card_peers import Played, Script, pfl_rounds, script_round
from benchmarks.card_peers import Task as PeersTask
from rffl_pl.adversaries import Cast
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.evaluation import Evaluation
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

T = TypeVar("T")
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
    held_out: int = 0


@dataclass(frozen=True, kw_only=True)
class Round:
    """Seconds of a round, of its local training, and of measuring every model beside it; NaN where it is not."""

    whole: float
    training: float
    measuring: float = float("nan")

    @property
    def rest(self) -> float:
        """Exchange and server."""
        return self.whole - self.training


MNIST, BLAZEFL = "MNIST, 10 x 600, E = 3, RFFL", "BlazeFL's CIFAR-10, 100 x 500, E = 5, FedAvg"
SCRIPT, PFL = "in the manner of the authors' script", "pfl-research, FedAvg"
JOBS = {
    MNIST: Job(
        network=MNISTCNN, shape=(1, 32, 32), participants=10, examples=600, batch=32, epochs=3,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.15), server=RFFL, held_out=6_000,
    ),
    "CIFAR-10, 10 x 2000, E = 3, RFFL": Job(
        network=CIFAR10CNN, shape=(3, 32, 32), participants=10, examples=2000, batch=128, epochs=3,
        optimizer=lambda p: torch.optim.SGD(p, lr=0.015), server=RFFL,
    ),
    "MR, 5 x 1919, E = 3, RFFL": Job(
        network=lambda: TextCNN(vocabulary=20_000), shape=(40,), participants=5, examples=1919, batch=128, epochs=3,
        optimizer=lambda p: torch.optim.Adam(p, lr=5e-5), server=RFFL,
    ),
    BLAZEFL: Job(
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
    given = options()
    begun, missed = time.monotonic(), 0
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}: seconds of a round\n")
    print("| job | engine | precision | round | training | exchange and server | of the round | measuring | peak GB |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    found: dict[tuple[str, str, str], Round] = {}
    try:
        for title, engine, precision in asked(given):
            if time.monotonic() - begun > given.total:
                missed += 1
            else:
                print(f"| {title} | {row(title, given, engine, precision, found)}", flush=True)
    except KeyboardInterrupt:  # as `make gpu` ends it
        print("\nEnded before all rows were reached.")
    if missed:
        print(f"\n{missed} rows were not reached within --total {given.total:g} seconds.")
    torch.set_float32_matmul_precision("highest")
    print_aims({} if given.quick or given.examples else found)
    if FAILED:
        sys.exit(f"{len(FAILED)} rows failed: {FAILED[0]}")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the examples, to see that it runs")
    parser.add_argument("--examples", type=int, help="so many of each participant, in place of the job's")
    parser.add_argument("--jobs", nargs="+", type=int, help="the first is 1; by default all")
    parser.add_argument("--engines", nargs="+", help="loop, stacked, unfolded, peers")
    parser.add_argument("--precisions", nargs="+", help="default, float32, TF32, bf16")
    parser.add_argument("--rounds", type=int, default=3, help="timed, after one that warms up")
    parser.add_argument("--budget", type=float, default=25, help="seconds after which a row takes no further round")
    parser.add_argument("--total", type=float, default=3600, help="seconds after which no further row is begun")
    return parser.parse_args()


def asked(given: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Job, engine and precision of every row; others come after our first of every job."""
    rows = [(title, *kind) for kind, title in itertools.product(ROWS, JOBS)]
    if DEVICE.type == "cpu":
        rows = [row for row in rows if row[2] not in ("default", "TF32")]
    kinds = [row for row in rows if not given.precisions or row[2] in given.precisions]
    kinds = [row for row in kinds if not given.engines or row[1] in given.engines]
    if not given.engines or "peers" in given.engines:
        kinds[len(JOBS) : len(JOBS)] = [
            (MNIST, who, "default" if DEVICE.type == "cuda" else "float32") for who in (SCRIPT, PFL)
        ]
    titles = list(JOBS) if not given.jobs else [list(JOBS)[number - 1] for number in given.jobs]
    return [row for row in kinds if row[0] in titles]


def row(
    title: str, given: argparse.Namespace, engine: str, precision: str, found: dict[tuple[str, str, str], Round]
) -> str:
    """The cells of one row, which is kept; what fails says why, and what has no room or is not there says so."""
    job, head = JOBS[title], f"{engine} | {precision} |"
    examples = given.examples or (max(2, job.examples // 10) if given.quick else job.examples)
    try:
        took = played(job, examples, given, engine, precision)
    except ImportError as error:
        return f"{head} not installed: {error} |"
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if not isinstance(error, torch.cuda.OutOfMemoryError):
            FAILED.append(said)
        return f"{head} {said[:80]} |"
    found[title, engine, precision] = took
    peak = torch.cuda.max_memory_allocated() / 1e9 if DEVICE.type == "cuda" else float("nan")
    seconds = f"{took.whole:.4f} | {took.training:.4f} | {took.rest:.4f} | {took.rest / took.whole:.1%}"
    return f"{head} {seconds} | {took.measuring:.4f} | {peak:.2f} |"


def played(job: Job, examples: int, given: argparse.Namespace, engine: str, precision: str) -> Round:
    """Median seconds of ours, or of others'."""
    _fresh()
    held_out = job.held_out if examples == job.examples else job.held_out * examples // job.examples
    if engine in (SCRIPT, PFL):
        with Precision(precision).train_step_context():
            return of_others(job, examples, held_out, given, engine)
    return timed(job, examples, held_out, given, engine, precision)


def of_others(job: Job, examples: int, held_out: int, given: argparse.Namespace, who: str) -> Round:
    """The first job as others play it."""
    x, y = drawn(job, job.participants * examples + held_out)
    parts = [TensorDataset(*pair) for pair in zip(x.split(examples), y.split(examples), strict=True)]
    task = PeersTask(
        shards=parts[: job.participants], held_out=TensorDataset(x[-held_out:], y[-held_out:]), device=DEVICE,
        batch=job.batch, epochs=job.epochs, rate=0.15,
    )  # fmt: skip
    if who == PFL:
        torch.manual_seed(0)
        rounds = pfl_rounds(task, job.network(), _now)
        whole = median(repeated(lambda: rounds(1), given))
        return Round(whole=whole, training=float("nan"))  # its parts are not told apart
    script = Script(task)
    turns = repeated(lambda: script_round(script, _now), given)
    parted = Played(*(median(getattr(turn, part.name) for turn in turns) for part in fields(Played)))
    print(f"| {MNIST} | what the next row measures beside, and throws away | | | | | | {parted.wasted:.4f} | |")
    return Round(whole=parted.training + parted.serving, training=parted.training, measuring=parted.measuring)


def repeated(round_: Callable[[], T], given: argparse.Namespace) -> list[T]:
    """What so many rounds after the first one return, fewer if they take too long."""
    taken, begun = [], time.monotonic()
    for number in range(given.rounds + 1):
        taken.append(round_())
        if number and time.monotonic() - begun > given.budget:
            break
    return taken[1:]


def timed(job: Job, examples: int, held_out: int, given: argparse.Namespace, engine: str, precision: str) -> Round:
    """Median seconds of our rounds, of their local training, and of measuring all models afterwards."""
    table, shards = seated(job, examples, engine, precision)
    spent = [0.0]
    train_all = table.cohort.train_all
    numbers = itertools.count()

    def watched(*args: Any) -> dict[int, float]:
        before = _now()
        losses = train_all(*args)
        spent[0] = _now() - before
        return losses

    def one_round() -> tuple[float, float]:
        before = _now()
        play(table, shards, next(numbers))
        return _now() - before, spent[0]

    setattr(table.cohort, "train_all", watched)  # noqa: B010  # mypy takes no method
    whole, training = (median(part) for part in zip(*repeated(one_round, given), strict=True))
    if not held_out:
        return Round(whole=whole, training=training)
    x, y = drawn(job, held_out)
    batches = list(zip(x.split(64), y.split(64), strict=True))

    def measured() -> float:
        before = _now()
        with torch.inference_mode(), Precision(precision).val_step_context():
            Evaluation([], {}).of(iter(batches), table.cohort)
        return _now() - before

    return Round(whole=whole, training=training, measuring=median(repeated(measured, given)))


def print_aims(found: dict[tuple[str, str, str], Round]) -> None:
    """What was aimed at on one H200 and what came of it, by the fastest rows."""
    ours = [took for (title, engine, _), took in found.items() if title == MNIST and engine not in (SCRIPT, PFL)]
    blazes = [took.whole for (title, _, _), took in found.items() if title == BLAZEFL]
    others = {engine: took for (title, engine, _), took in found.items() if engine in (SCRIPT, PFL)}
    best = min(ours, key=lambda took: took.whole, default=None)
    script, pfl = others.get(SCRIPT), others.get(PFL)
    lines = [
        (
            f"{MNIST}: a round against the authors' script",
            "20 times",
            best and script and f"{script.whole / best.whole:.1f} times",
        ),
        (
            "the same, every model measured in both",
            "",
            best and script and f"{(script.whole + script.measuring) / (best.whole + best.measuring):.1f} times",
        ),
        ("against pfl-research, FedAvg", "5 times", best and pfl and f"{pfl.whole / best.whole:.1f} times"),
        (f"{BLAZEFL}: 5 rounds", "under 5 s", blazes and f"{5 * min(blazes):.1f} s"),
        ("exchange and server of a round, MNIST", "under 5 %", best and f"{best.rest / best.whole:.1%}"),
        ("the local epoch as one CUDA graph", "", "not written"),
    ]
    print("\n| on one H200 | aimed at | found |\n|---|---|---|")
    for what, aim, what_came in lines:
        print(f"| {what} | {aim} | {what_came if what_came and DEVICE.type == 'cuda' else 'not measured'} |")


def _fresh() -> None:
    """As if nothing had been on the card before."""
    gc.collect()  # a table is a circle, and its examples lie on the card
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def drawn(job: Job, count: int) -> tuple[Tensor, Tensor]:
    """So many random examples of a job's kind."""
    generator = torch.Generator().manual_seed(1)
    size, words = (count, *job.shape), len(job.shape) == 1
    x = torch.randint(1, 20_000, size, generator=generator) if words else torch.randn(size, generator=generator)
    return x, torch.randint(0, 2 if words else 10, size[:1], generator=generator)


def seated(job: Job, examples: int, engine: str, precision: str) -> tuple[Table, dict[int, Shard]]:
    """A federation before its first round, and everybody's examples."""
    x, y = drawn(job, job.participants * examples)
    dataset = TensorDataset(x, y)
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
    if DEVICE.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
