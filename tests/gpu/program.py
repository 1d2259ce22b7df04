"""A federation on the digits through the library's Python doors, which need no command line; also as a script of ranks.

python tests/gpu/program.py DEVICE SERVER FOLDER ROUNDS ENGINE [CHECKPOINT]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD

import rffl_pl
from rffl_pl import Digits, FederatedModule, Federation, RunFolder, SignRandom, federated_trainer
from rffl_pl.strategy import leave_process_group

SERVERS: dict[str, Callable[[], Any]] = {
    name: getattr(rffl_pl, name)
    for name in (
        "RFFL",
        "FedAvg",
        "QFFL",
        "AFL",
        "TERM",
        "CFFL",
        "CGSV",
        "IAFL",
        "MultiKrum",
        "Bulyan",
        "FoolsGold",
        "SignSGD",
        "Median",
        "TrimmedMean",
        "GeometricMedian",
        "CenteredClipping",
        "NormBound",
        "FLAME",
        "DnC",
        "NNM",
        "ARC",
        "Bucketing",
        "FLTrust",
        "FedMGDA",
        "FedOpt",
        "Standalone",
    )
} | {preset: partial(rffl_pl.RFFL, preset=preset) for preset in ("guarded", "paper")}


def network() -> nn.Module:
    """A small convolution, a hidden layer, dropout nowhere."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 32), nn.Tanh(), nn.Linear(32, 10)
    )


def play(device: str, server: str, folder: Path, rounds: int, engine: str, checkpoint: str | None = None) -> Path:
    """Train for some rounds; the folder of the run."""
    warnings.filterwarnings("ignore", message="Round")  # a removal is told as a warning
    federation = Federation(participants=5, adversaries=1, seed=1)
    data = Digits(federation, examples_per_participant=60, adversary_examples=60, batch_size=16)
    module = FederatedModule(
        federation, network(), optimizer=partial(SGD, lr=0.1, momentum=0.5), local_epochs=2,
        adversaries=[SignRandom()], engine=engine,
    )  # fmt: skip
    run = RunFolder.make(folder)
    options: dict[str, Any] = {"enable_progress_bar": False, "accelerator": device}
    trainer = federated_trainer(SERVERS[server](), folder=run, max_epochs=rounds, **options)
    trainer.fit(module, data, ckpt_path=checkpoint)
    return Path(run.path)


if __name__ == "__main__":
    play(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
    leave_process_group()
