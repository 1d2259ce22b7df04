"""Runs on the digits in this process, and servers that keep what they are told."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rffl_pl.adversaries import Adversary
from rffl_pl.callbacks import ReputationExchange
from rffl_pl.datamodules import Digits, FederatedDataModule
from rffl_pl.federation import Federation
from rffl_pl.functional.blocks import Rows
from rffl_pl.models import Perceptron
from rffl_pl.module import FederatedModule
from rffl_pl.runs.checkpoint import load
from rffl_pl.servers import CFFL, FedAvg, Server
from rffl_pl.servers.base import Task, Verdict
from rffl_pl.strategy import FederatedStrategy, leave_process_group

MOST_HERE = 10_000
"""More participants than a run of the tests has."""


class Recorded(Server):
    """A server that keeps what it is told; to be mixed into another."""

    task: Task
    seen: list[tuple[Tensor, list[int]]]
    reported: list[Tensor | None]

    def start(self, task: Task) -> None:
        self.task, self.seen, self.reported = task, [], []
        super().start(task)

    def step(self, uploads: Rows, senders: Sequence[int], losses: Tensor | None = None) -> Verdict:
        self.seen.append((torch.stack(list(uploads)) if len(uploads) else torch.empty(0), list(senders)))
        self.reported.append(losses)
        return super().step(uploads, senders, losses)


class RecordedFedAvg(Recorded, FedAvg):
    """The mean."""


class RecordedCFFL(Recorded, CFFL):
    """Validates."""


class Diary:
    """What an attack under test writes down beside its state: a run looks at no object's attributes but its own."""

    def __init__(self) -> None:
        self.lines: list[Any] = []


def federate(
    server: Server,
    attacks: Sequence[Adversary] = (),
    *callbacks: Callback,
    rounds: int = 2,
    adversaries: int | None = None,
    network: Callable[[], nn.Module] = lambda: Perceptron(64, 64, 10),
    seed: int = 1,
    participation: float = 1.0,
    coalition: list[int] | None = None,
    loss: nn.Module | None = None,
    personal: float = 0.0,
    proximal: float = 0.0,
    scaffold: bool = False,
    local_steps: int | None = None,
    engine: Literal["auto", "loop", "stacked"] = "auto",
    optimizer: OptimizerCallable = lambda p: torch.optim.SGD(p, lr=0.1),
    **data: Any,
) -> FederatedModule:
    """A run on the digits in this process: five honest participants and one adversary per attack."""
    federation = Federation(
        participants=5,
        adversaries=len(attacks) if adversaries is None else adversaries,
        participation=participation,
        coalition=coalition,
        seed=seed,
    )
    torch.manual_seed(1)
    module = FederatedModule(
        federation,
        network(),
        optimizer=optimizer,
        loss=loss,
        personal=personal,
        proximal=proximal,
        scaffold=scaffold,
        local_steps=local_steps,
        engine=engine,
        adversaries=list(attacks),
    )
    trainer = Trainer(
        max_epochs=rounds,
        accelerator="cpu",
        strategy=FederatedStrategy("cpu"),
        callbacks=[*callbacks, ReputationExchange(server)],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*many workers|.*treespec|.*steepness")
        try:
            trainer.fit(module, datamodule=digits(federation, **data))
        finally:
            leave_process_group()
    return module


def kept_in(path: str | Path) -> dict[str, Any]:
    """Every participant's part and the server's."""
    return load(Path(path), range(MOST_HERE), server=True)


def digits(federation: Federation, **options: Any) -> Digits:
    """The run's data."""
    data = Digits(
        federation, **{"examples_per_participant": 100, "adversary_examples": 100, "batch_size": 16} | options
    )
    data.setup("fit")
    return data


def training_examples(data: FederatedDataModule) -> tuple[Tensor, Tensor]:
    """All inputs and all classes that shards are cut from, by example."""
    assert data.sources is not None
    assert isinstance(data.sources.train, TensorDataset)
    x, y = data.sources.train.tensors
    return x, y


def whole(batches: Any) -> tuple[Tensor, Tensor]:
    """All inputs and all classes of a loader."""
    x, y = zip(*batches, strict=True)
    return torch.cat(x), torch.cat(y)
