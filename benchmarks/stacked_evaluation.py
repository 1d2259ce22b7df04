"""Evaluation of many models of the MNIST network: one after another, as runs do, and stacked, on the CPU.

    OMP_NUM_THREADS=1 python -m benchmarks.stacked_evaluation [--models 100] [--batches 16 64]

Both take turns in one process; ratios of the processor's time, pair by pair. Stacked is `torch.func.vmap` over the
parameters. The largest difference of logits says whether the bits stay.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from benchmarks.servers import seconds
from rffl_pl.cli.process import keep_freed_memory
from rffl_pl.models import MNISTCNN
from rffl_pl.training.cohort import Cohort

PAIRS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 64])
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    torch.manual_seed(1)
    cohort = Cohort(MNISTCNN(), range(given.models), lambda p: torch.optim.SGD(p, lr=0.1), torch.device("cpu"))
    cohort.weights += 0.01 * torch.randn_like(cohort.weights)
    one = MNISTCNN().eval()
    parameters, buffers = stack_module_state(cohort.networks)

    def of_one(values: dict[str, Tensor], x: Tensor) -> Tensor:
        logits: Tensor = functional_call(one, (values, buffers), (x,))
        return logits

    @torch.inference_mode()
    def loop(x: Tensor) -> Tensor:
        return torch.stack([cohort.logits(x, index) for index in range(given.models)])

    @torch.no_grad()
    def stacked(x: Tensor) -> Tensor:
        return vmap(of_one, (0, None))(parameters, cohort.placed(x))

    for batch in given.batches:
        x = torch.randn(batch, 1, 32, 32)
        apart = float((loop(x) - stacked(x)).abs().max())
        times = [(seconds(partial(loop, x)), seconds(partial(stacked, x))) for _ in range(PAIRS)]
        ours, theirs = (statistics.median(side) for side in zip(*times, strict=True))
        ratio = statistics.median(b / a for a, b in times)
        print(f"batch {batch}: loop {ours:.2f} s, stacked {theirs:.2f} s, {ratio:.2f} times; apart {apart:.0e}")


if __name__ == "__main__":
    main()
