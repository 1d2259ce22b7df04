"""Cells of a study one after another and packed, their participants as one stack: cells per minute.

    PYTHONPATH=. python benchmarks/packed.py [--device cpu|gpu] [--cells 24] [--packs 1 4 24] [--repeats 3]

A cell is a whole run on the digits as a study plays it: set-up, rounds, a checkpoint after each, final evaluation and
report, but for the reading of its command line and the standalone reference. Cells differ in server and seed; all are
of ten honest participants and two who flip labels. Pack sizes, and on a CPU its default engine, take turns in one
process, after cells that warm up: medians, of the ratios to the first row too, of the time that passes and of the
processor's, and how far the final weights are from those of the stacked engine with the first pack size.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor
from torch.optim import SGD

from rffl_pl import RFFL, Digits, FedAvg, FederatedModule, Federation, LabelFlip, Median, RunFolder, TrimmedMean
from rffl_pl.callbacks import ReputationExchange, RoundCheckpoint, RunReport
from rffl_pl.models import Perceptron
from rffl_pl.servers import Server
from rffl_pl.strategy import FederatedStrategy, leave_process_group
from rffl_pl.studies.pack import together

SERVERS: tuple[Callable[[], Server], ...] = (RFFL, FedAvg, Median, TrimmedMean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--cells", type=int, default=24)
    parser.add_argument("--packs", type=int, nargs="+", default=[1, 4, 24], help="cells at a time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    on_cpu = given.device == "cpu" or not torch.cuda.is_available()
    kinds = [("loop", 1)] * on_cpu + [("stacked", pack) for pack in given.packs]
    seconds: dict[tuple[str, int], list[tuple[float, float]]] = {kind: [] for kind in kinds}
    models: dict[tuple[str, int], Tensor] = {}
    played(given, 2, "stacked", 2)
    for _ in range(given.repeats):
        for kind, taken in seconds.items():
            begun = time.perf_counter(), time.process_time()
            models[kind] = played(given, given.cells, *kind)
            taken.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    device = "CPU" if on_cpu else torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}, {given.cells} cells of {given.rounds} rounds, one thread")
    print(f"{'engine':<8}{'pack':>5}{'s':>8}{'of CPU':>8}{'cells/min':>11}{'ratio':>7}{'of CPU':>8}{'difference':>12}")
    for kind, taken in seconds.items():
        passed, worked = (median(part) for part in zip(*taken, strict=True))
        ratios = [[a / b for a, b in zip(*both, strict=True)] for both in zip(seconds[kinds[0]], taken, strict=True)]
        faster, leaner = (median(part) for part in zip(*ratios, strict=True))
        apart = float((models[kind] - models["stacked", given.packs[0]]).abs().max())
        rate = 60 * given.cells / passed
        print(
            f"{kind[0]:<8}{kind[1]:>5}{passed:>8.2f}{worked:>8.2f}{rate:>11.1f}{faster:>7.2f}{leaner:>8.2f}{apart:>12.1e}"
        )
    leave_process_group()


def played(given: argparse.Namespace, cells: int, engine: str, pack: int) -> Tensor:
    """The final models of some cells ``[cells, participants, D]``, so many of them at a time."""
    models = {}
    with tempfile.TemporaryDirectory() as folder:
        bodies = [partial(run, given, engine, k, Path(folder) / str(k)) for k in range(cells)]
        for start in range(0, cells, pack):
            if pack == 1:
                models[start] = bodies[start](time.monotonic)
            else:
                models |= {start + k: found for k, found in together(bodies[start : start + pack])}
    return torch.stack([models[k] for k in range(cells)])


def run(given: argparse.Namespace, engine: Any, number: int, folder: Path, clock: Callable[[], float]) -> Tensor:
    """One cell: its final models ``[participants, D]``."""
    torch.manual_seed(number)
    federation = Federation(participants=10, adversaries=2, seed=number)
    module = FederatedModule(
        federation, Perceptron(64, 64, 10), optimizer=partial(SGD, lr=0.1), engine=engine, adversaries=[LabelFlip()]
    )
    run_folder = RunFolder.make(folder)
    strategy = FederatedStrategy(given.device)
    trainer = Trainer(
        strategy=strategy,
        accelerator=strategy.root_device.type,
        max_epochs=given.rounds,
        callbacks=[
            ReputationExchange(SERVERS[number % len(SERVERS)]()),
            RunReport(run_folder.path, draw=False),
            RoundCheckpoint(run_folder.checkpoints),
        ],
        logger=CSVLogger(run_folder.path, name="", version="", flush_logs_every_n_steps=1),
        default_root_dir=str(run_folder.path),
        use_distributed_sampler=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
    )
    with (run_folder.path / "log.txt").open("w") as log, contextlib.redirect_stdout(log):
        trainer.fit(module, Digits(federation, examples_per_participant=100, adversary_examples=100, batch_size=16))
    weights: Tensor = module.cohort.weights
    return weights.cpu().clone()


if __name__ == "__main__":
    main()
