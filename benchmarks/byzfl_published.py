"""Servers' steps beside ByzFL's aggregators at the size of the experiment that ByzFL publishes.

    pip install byzfl
    python -m benchmarks.byzfl_published [--threads 2] [--repetitions 5]

No times and no workloads of aggregators were found in its documentation and repository, which measure accuracy. Their
sample configuration has ten honest clients and one to four others, `cnn_mnist` with 431,080
parameters, and the geometric median or the trimmed mean after nearest-neighbour mixing. This is one step of it
with four: 14 uploads. Times and brackets as in `benchmarks.peers`, but of the processor on one thread.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import byzfl
import torch

from benchmarks.servers import seconds, started
from rffl_pl.cli.process import keep_freed_memory
from rffl_pl.servers import NNM, GeometricMedian, Server, TrimmedMean

HONEST, BAD, ENTRIES = 10, 4, 431_080


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    keep_freed_memory()
    count = HONEST + BAD
    generator = torch.Generator().manual_seed(1)
    uploads = torch.randn(ENTRIES, generator=generator) + torch.randn(count, ENTRIES, generator=generator)
    mix, trimmed = byzfl.NNM(f=BAD), byzfl.TrMean(f=BAD)
    median, exact = byzfl.GeometricMedian(nu=0.1, T=3), byzfl.GeometricMedian(nu=1e-6, T=12)

    def ours(server: Callable[[], Server]) -> Callable[[], torch.Tensor]:
        return lambda: started(server, count, ENTRIES).step(uploads, range(count)).download(0)

    cases: dict[str, tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor]]] = {
        "trimmed mean": (ours(lambda: TrimmedMean(trim=BAD / count)), lambda: trimmed(uploads)),
        "geometric median, three iterations there": (ours(GeometricMedian), lambda: median(uploads)),
        "geometric median, twelve": (ours(GeometricMedian), lambda: exact(uploads)),
        "NNM, trimmed mean": (
            ours(lambda: NNM(rule=TrimmedMean(trim=BAD / count), tolerated=BAD)),
            lambda: trimmed(mix(uploads)),
        ),
        "NNM, geometric median": (
            ours(lambda: NNM(rule=GeometricMedian(), tolerated=BAD)),
            lambda: median(mix(uploads)),
        ),
    }
    print("| rule | rffl_pl, ms | ByzFL, ms | times as fast |\n|---|---|---|---|")
    for name, (mine, theirs) in cases.items():
        expected = mine()
        apart = float((theirs() - expected).abs().max() / expected.abs().max())
        pairs = [(1000 * seconds(mine), 1000 * seconds(theirs)) for _ in range(given.repetitions)]
        one, other = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        print(f"| {name} | {one:.0f} | {other:.0f} ({apart:.0e}) | {ratio:.1f} |", flush=True)


if __name__ == "__main__":
    main()
