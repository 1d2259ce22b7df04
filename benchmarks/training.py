"""Local training and evaluation of the MNIST network: as a newcomer writes them against `rffl_pl.training.cohort`.

    python benchmarks/training.py [--threads 2] [--bare | --onednn] [--keep-memory]

Both take turns in one process and the ratio is taken pair by pair: machines are noisy. The newcomer's loop runs in
PyTorch's default layout with tanh before pooling, ours as `Cohort` has it. With ``--bare`` the loop has the network and
the layout of ours, and what is left is what our training costs beside the arithmetic; with ``--onednn`` it has the
network, but trains it through oneDNN, and ours goes by the products of `rffl_pl.models.windows`, whatever the CPU.
``--keep-memory`` has glibc keep freed memory, as the command line does; compare the figures of a run with it to those
of one without.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from rffl_pl.cli.process import keep_freed_memory
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.models import MNISTCNN, onednn, windows
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Schedule

EXAMPLES, BATCH, PAIRS = 960, 32, 7


class ThroughOneDNN(MNISTCNN):
    """Ours, with its first convolution in oneDNN too where gradients are asked for."""

    def forward(self, x: Tensor) -> Tensor:
        return onednn.forward(self, x[..., :30, :30])


def newcomer(bare: bool, through_onednn: bool) -> nn.Module:
    """The paper's network with its layers in the order of the paper's text, or ours and its layout."""
    if through_onednn:
        return ThroughOneDNN()
    if bare:
        return MNISTCNN().to(memory_format=torch.channels_last)
    return nn.Sequential(
        nn.Conv2d(1, 64, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(64, 16, 7), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 200), nn.Tanh(), nn.Linear(200, 10),
    )  # fmt: skip


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    network_of_ours = parser.add_mutually_exclusive_group()
    network_of_ours.add_argument("--bare", action="store_true")
    network_of_ours.add_argument("--onednn", action="store_true")
    parser.add_argument("--keep-memory", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.onednn:
        windows._WITHOUT_AVX512 = True
    if given.keep_memory:
        keep_freed_memory()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(EXAMPLES, 1, 32, 32), torch.randint(0, 10, (EXAMPLES,)))
    network = newcomer(given.bare, given.onednn)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.15)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    cohort = Cohort(MNISTCNN(), [0], lambda p: torch.optim.SGD(p, lr=0.15), torch.device("cpu"))
    shard = Shard(Reader(data), torch.arange(EXAMPLES), BATCH)
    schedule = Schedule(epochs=1)

    def train_newcomer() -> None:
        network.train()
        for x, y in loader:
            optimizer.zero_grad()
            cross_entropy(network(x), y).backward()
            optimizer.step()

    @torch.inference_mode()
    def evaluate_newcomer() -> None:
        for x, _ in DataLoader(data, batch_size=64):
            network(x)

    @torch.inference_mode()
    def evaluate_ours() -> None:
        for x in data.tensors[0].split(64):
            cohort.logits(x, 0)

    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "training": (train_newcomer, lambda: cohort.train(0, shard, schedule, 0, seed=0)),
        "evaluation": (evaluate_newcomer, evaluate_ours),
    }
    for name, (theirs, ours) in pairs.items():
        theirs(), ours()
        times = [(seconds(theirs), seconds(ours)) for _ in range(PAIRS)]
        a, b = (EXAMPLES / statistics.median(side) for side in zip(*times, strict=True))
        ratio = statistics.median(x / y for x, y in times)
        print(f"{name}: newcomer {a:,.0f} examples/s, ours {b:,.0f} examples/s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
