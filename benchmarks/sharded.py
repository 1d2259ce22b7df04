"""Peak memory of every rank and seconds of a round's exchange and server: rank 0 the server, or every rank a part.

    OMP_NUM_THREADS=1 python -m benchmarks.sharded [--participants 16] [--entries 11000000] [--ranks 2 4]

Every case has processes of its own, on gloo. Memory is what a rank holds at its peak beyond what it held before it made
the uploads of its own participants, which are in it: a run has them as well. Seconds are from the moment in which all
ranks begin to that in which all have their downloads, the better of two rounds after a first one. Linux alone resets a
peak.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from benchmarks.servers import memory
from rffl_pl.exchange import Exchange, Ranks
from rffl_pl.federation import Federation
from rffl_pl.servers import RFFL, FedAvg, Median, MultiKrum, Server, Task
from rffl_pl.servers.coordinates import Coordinates
from rffl_pl.sharded import Part

CPU = torch.device("cpu")
RULES: dict[str, Callable[[], Server]] = {"RFFL": RFFL, "FedAvg": FedAvg, "Multi-Krum": MultiKrum, "median": Median}


def play(exchange: Exchange, server: Server, rows: dict[int, Tensor]) -> None:
    """What is of a round beside training: up, the verdict, down."""
    exchange.ask_all()
    where, uploads = server.coordinates.where, dict[int, Tensor]()

    def arrived(participant: int, payload: Tensor) -> None:
        upload = server.unpack(payload, where.stop - where.start)
        uploads[participant] = rows[participant][where].copy_(upload) if participant in rows else upload

    exchange.gather_uploads(lambda i, where: server.pack(rows[i][where]), arrived)
    senders = sorted(uploads)
    verdict = server.step([uploads[i] for i in senders], senders) if exchange.serves else None
    for _ in exchange.scatter_downloads(verdict.download if verdict else None, verdict.removed if verdict else ()):
        pass


def one_rank(rank: int, ranks: int, rule: str, sharded: bool, participants: int, entries: int, folder: str) -> None:
    """Three rounds on one of several ranks: its peak in bytes and the seconds go to a file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(minutes=10))
    federation = Federation(participants=participants)
    hosting = [federation.hosted_by(other, ranks) for other in range(ranks)]
    exchange = Exchange(hosting, rank, CPU, entries, sharded=sharded)
    coordinates = Part(entries, Ranks(rank, ranks, CPU)) if sharded else Coordinates(entries)
    server = RULES[rule]()
    layers, initial = [entries // 2, entries - entries // 2], torch.zeros(coordinates.size)
    server.start(
        Task(
            examples=[100 + i for i in range(participants)], classes=[10] * participants, layers=layers,
            learning_rate=0.1, seed=1, initial=initial, accuracy=None, coordinates=coordinates,
        )
    )  # fmt: skip
    dist.barrier()
    before = memory("VmRSS")
    rows = {
        i: torch.empty(entries).uniform_(-1e-4, 1.2e-4, generator=torch.Generator().manual_seed(i))
        for i in hosting[rank]
    }
    Path("/proc/self/clear_refs").write_text("5")
    seconds = []
    for _ in range(3):
        dist.barrier()
        start = time.perf_counter()
        play(exchange, server, rows)
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    Path(f"{folder}/{rank}").write_text(f"{memory('VmHWM') - before} {min(seconds[1:])}")
    dist.barrier()
    dist.destroy_process_group()


def case(rule: str, ranks: int, sharded: bool, participants: int, entries: int) -> tuple[list[int], float]:
    """Every rank's peak in bytes, and seconds."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(one_rank, (ranks, rule, sharded, participants, entries, folder), nprocs=ranks)
        told = [Path(f"{folder}/{rank}").read_text().split() for rank in range(ranks)]
    return [int(peak) for peak, _ in told], max(float(seconds) for _, seconds in told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--participants", type=int, default=16)
    parser.add_argument("--entries", type=int, default=11_000_000)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rules", nargs="+", choices=RULES, default=["RFFL", "FedAvg", "Multi-Krum"])
    given = parser.parse_args()
    print(f"[P, D] = {4 * given.participants * given.entries / 2**20:.0f} MiB")
    print("rule        ranks  exchange  MiB of every rank                  most  seconds", flush=True)
    for ranks in given.ranks:
        for rule in given.rules:
            for sharded in (False, True):
                peaks, seconds = case(rule, ranks, sharded, given.participants, given.entries)
                shown = " ".join(f"{peak / 2**20:7.0f}" for peak in peaks)
                kind = "sharded" if sharded else "central"
                print(f"{rule:11} {ranks:5}  {kind:8} {shown:32} {max(peaks) / 2**20:7.0f} {seconds:8.2f}", flush=True)


if __name__ == "__main__":
    main()
