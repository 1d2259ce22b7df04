"""Uploads of a text federation on their way to the server: packed, without what is zero, against dense.

    OMP_NUM_THREADS=1 torchrun --nproc_per_node=2 benchmarks/uploads.py

Five participants with D = 6,346,754 parameters, of which 17, 32, 45, 55 and 62 % are not zero, in rows of 300, as in
the first rounds of MR. Both ways alternate in one process; the medians and their ratio are printed.
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist
from torch import Tensor

from rffl_pl.cli.process import keep_freed_memory
from rffl_pl.exchange import Exchange
from rffl_pl.federation import Federation
from rffl_pl.functional import wire

DIMENSION = 6_346_754
DENSITIES = (0.17, 0.32, 0.45, 0.55, 0.62)


def main() -> None:
    keep_freed_memory()  # as the command line does
    dist.init_process_group("gloo")
    federation, rank = Federation(participants=5), dist.get_rank()
    blocks = [federation.hosted_by(r, dist.get_world_size()) for r in range(dist.get_world_size())]
    exchange = Exchange(blocks, rank, torch.device("cpu"), DIMENSION)
    rows = torch.zeros(len(exchange.hosted), DIMENSION)
    for row, participant in zip(rows, exchange.hosted, strict=True):
        embeddings = row[: DIMENSION // 300 * 300].view(-1, 300)
        embeddings[torch.rand(len(embeddings)) < DENSITIES[participant]] = 1.0
    of = dict(zip(exchange.hosted, rows, strict=True))
    seconds: dict[str, list[float]] = {"packed": [], "dense": []}

    def unpacked(_: int, payload: Tensor) -> None:
        wire.unpack_blocks(payload, DIMENSION)

    for _ in range(7):
        for way in seconds:
            dist.barrier()
            start = time.perf_counter()
            if way == "packed":
                exchange.ask_all()
                exchange.gather_uploads(lambda i, where: wire.pack_blocks(of[i]), unpacked)
            else:
                exchange.gather_rows(rows)
            dist.barrier()
            seconds[way].append(time.perf_counter() - start)
    if rank == 0:
        packed, dense = (statistics.median(seconds[way]) for way in ("packed", "dense"))
        print(f"packed {packed:.3f} s, dense {dense:.3f} s, ratio dense/packed {dense / packed:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
