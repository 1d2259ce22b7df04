"""A training step and an evaluation of the network for sentences, on batches of MR: as textbooks write it, and ours.

    RFFL_DATA_DIR=... python -m benchmarks.sentences [--vocabulary 5000] [--passes 5]

Four networks with the same weights take turns in one process, on one thread: three convolutions as modules, one product
over all windows (ours where layers are watched or stacked), ours, and ours with Adam's fused steps. Medians of passes
over the 15 batches of one participant, in milliseconds per batch.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rffl_pl import Federation
from rffl_pl.datamodules import MR
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.models import TextCNN

Batches = list[tuple[Tensor, Tensor]]
EXAMPLES, BATCH = 1919, 128


class Textbook(TextCNN):
    """The convolutions one after another, on the embeddings of every place."""

    def forward(self, x: Tensor) -> Tensor:
        embedded = self.embedding(x).transpose(1, 2)
        strongest = torch.cat([convolution(embedded).relu().amax(2) for convolution in self.convolutions], 1)
        logits: Tensor = self.linear(self.dropout(strongest))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=5000)
    parser.add_argument("--passes", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    batches = sentences(given.vocabulary)
    windows = TextCNN(vocabulary=given.vocabulary)
    windows.embedding.register_forward_hook(lambda *_: None)  # who is watched computes every window
    networks: dict[str, tuple[nn.Module, bool]] = {
        "three modules": (Textbook(vocabulary=given.vocabulary), False),
        "windows": (windows, False),
        "words": (TextCNN(vocabulary=given.vocabulary), False),
        "words, fused": (TextCNN(vocabulary=given.vocabulary), True),
    }
    steps = [training(network, fused) for network, fused in networks.values()]
    trained = in_turns(steps, batches, given.passes)
    evaluated = in_turns([evaluation(network) for network, _ in networks.values()], batches, given.passes)
    print(f"torch {torch.__version__}, vocabulary of {given.vocabulary}, ms per batch of {BATCH} sentences")
    print(f"{'':<16}{'step':>8}{'ratio':>8}{'evaluation':>14}{'ratio':>8}")
    for name, step, batch in zip(networks, trained, evaluated, strict=True):
        print(f"{name:<16}{step:>8.1f}{trained[0] / step:>8.2f}{batch:>14.1f}{evaluated[0] / batch:>8.2f}")


def sentences(vocabulary: int) -> Batches:
    """The batches of a participant of the paper, whose sentences come together by length."""
    data = MR(federation=Federation(participants=5), vocabulary_size=vocabulary)
    data.prepare_data()
    data.setup("fit")
    (own, *_) = [shard for shard in data.shards if len(shard) >= EXAMPLES]
    return [(x, y) for x, y in Shard(data._reader_of(0), own[:EXAMPLES], BATCH).in_order()]


def training(network: nn.Module, fused: bool) -> Callable[[Tensor, Tensor], None]:
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-5, fused=fused)

    def step(x: Tensor, y: Tensor) -> None:
        network.train()
        optimizer.zero_grad()
        cross_entropy(network(x), y).backward()
        optimizer.step()

    return step


def evaluation(network: nn.Module) -> Callable[[Tensor, Tensor], None]:
    @torch.no_grad()
    def evaluate(x: Tensor, y: Tensor) -> None:
        network.eval()
        network(x)

    return evaluate


def in_turns(works: list[Callable[[Tensor, Tensor], None]], batches: Batches, passes: int) -> list[float]:
    """Median milliseconds per batch of each; the first pass warms up."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(passes + 1):
        for work, seconds in zip(works, taken, strict=True):
            begun = time.perf_counter()
            for x, y in batches:
                work(x, y)
            seconds.append(time.perf_counter() - begun)
    return [1000 * median(seconds[1:]) / len(batches) for seconds in taken]


if __name__ == "__main__":
    main()
