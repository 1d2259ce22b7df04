"""Servers' steps beside the same rules of ByzFL and of ByzPy, on the workloads that ByzPy publishes.

    pip install byzfl byzpy
    python -m benchmarks.peers [--threads 2]

Ours is the whole step as a run takes it: screening, statistics, aggregate. ByzPy runs in this process and in its pools
of two threads and of two processes. In brackets how far the peers' results are from ours, as a share of the largest
entry: ByzPy's median of an even number is the lower of the middle two. Medians of the wall clock over repetitions that
take turns: the machine has to be idle. The process keeps freed memory, as the command line has it, for everybody.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import byzfl
import torch
from byzpy.aggregators.coordinate_wise.median import CoordinateWiseMedian
from byzpy.aggregators.coordinate_wise.trimmed_mean import CoordinateWiseTrimmedMean
from byzpy.aggregators.geometric_wise.geometric_median import GeometricMedian as TheirMedian
from byzpy.aggregators.geometric_wise.krum import MultiKrum as TheirKrum
from byzpy.aggregators.norm_wise.center_clipping import CenteredClipping as TheirClipping
from byzpy.engine.graph.executor import OperatorExecutor
from byzpy.engine.graph.pool import ActorPoolConfig
from torch import Tensor

from benchmarks.servers import started
from rffl_pl.cli.process import keep_freed_memory
from rffl_pl.servers import CenteredClipping, GeometricMedian, Median, MultiKrum, Server, TrimmedMean

ENTRIES, RADIUS = 65_536, 100.0
Call = Callable[[Tensor], Tensor]


def ours(server: Callable[[], Server]) -> Call:
    """The first step of a server."""

    def step(uploads: Tensor) -> Tensor:
        begun = started(server, len(uploads), uploads.shape[1])
        return begun.step(uploads, range(len(uploads))).download(0)

    return step


def cases() -> dict[str, tuple[int, Call, dict[str, Call], Any]]:
    """By rule: m, ours, ByzFL's, and ByzPy's operator. Both count Krum's neighbours as we do with one more f."""
    return {
        "median": (64, ours(Median), {"ByzFL": byzfl.Median()}, CoordinateWiseMedian()),
        "trimmed mean": (
            64,
            ours(lambda: TrimmedMean(trim=0.125)),
            {"ByzFL": byzfl.TrMean(f=8)},
            CoordinateWiseTrimmedMean(f=8),
        ),
        "Multi-Krum": (
            80,
            ours(lambda: MultiKrum(byzantine=17, selected=64)),
            {"ByzFL": byzfl.MultiKrum(f=16)},
            TheirKrum(f=16, q=64),
        ),
        "geometric median": (
            64,
            ours(GeometricMedian),
            {"ByzFL": byzfl.GeometricMedian(nu=1e-6, T=12), "three iterations:": byzfl.GeometricMedian(nu=0.1, T=3)},
            TheirMedian(),
        ),
        "centered clipping": (
            64,
            ours(lambda: CenteredClipping(radius=RADIUS)),
            {"ByzFL": lambda rows: byzfl.CenteredClipping(tau=RADIUS)(rows)},
            TheirClipping(c_tau=RADIUS, M=1, init="zero"),
        ),
    }


def timed(calls: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, float]:
    """Median milliseconds of each, taking turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repetitions):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            found[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(values[1:]) for name, values in found.items()}


async def pooled(operator: Any, rows: list[Tensor], backend: str, repetitions: int) -> float:
    """Median milliseconds of ByzPy's operator in a pool of two."""
    executor = OperatorExecutor(operator, pool_config=ActorPoolConfig(backend=backend, count=2))
    times = []
    async with executor:
        for _ in range(repetitions):
            start = time.perf_counter()
            await executor.run({"gradients": rows})
            times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=11)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    keep_freed_memory()
    print("| rule | m | rffl_pl | ByzFL | ByzPy | ByzPy's pools | times as fast as the fastest |")
    print("|---|---|---|---|---|---|---|")
    for rule, (count, mine, byzfls, operator) in cases().items():
        uploads = torch.randn(count, ENTRIES, generator=torch.Generator().manual_seed(1))
        print(row(rule, uploads, mine, byzfls, operator, given.repetitions), flush=True)


def row(rule: str, uploads: Tensor, mine: Call, byzfls: dict[str, Call], operator: Any, repetitions: int) -> str:
    """One line of the table."""
    rows, expected = list(uploads), mine(uploads)
    calls: dict[str, Call] = {"ours": mine, **byzfls, "ByzPy": lambda uploads: operator.aggregate(rows)}
    times = timed({name: partial(call, uploads) for name, call in calls.items()}, repetitions)
    apart = {name: float((call(uploads) - expected).abs().max() / expected.abs().max()) for name, call in calls.items()}
    pools = [asyncio.run(pooled(operator, rows, kind, repetitions)) for kind in ("thread", "process")]
    shown = {name: f"{times[name]:.1f} ({apart[name]:.0e})" for name in calls}
    best = min(times["ByzFL"], times["ByzPy"], *pools) / times["ours"]
    theirs = "; ".join(f"{name} {shown[name]}".removeprefix("ByzFL ") for name in byzfls)
    in_pools = " / ".join(f"{value:.1f}" for value in pools)
    return f"| {rule} | {len(rows)} | {times['ours']:.1f} | {theirs} | {shown['ByzPy']} | {in_pools} | {best:.1f} |"


if __name__ == "__main__":
    main()
