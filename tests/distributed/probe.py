"""Callbacks that look at, or break, a run on ranks of its own; given by class path on the command line."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from rffl_pl.callbacks import ReputationExchange
from rffl_pl.callbacks.find import find
from rffl_pl.errors import UserError
from rffl_pl.module import FederatedModule
from rffl_pl.servers import RFFL


class Witness(Callback):
    """Writes what every rank holds after an exchange to ``<folder>/rank_<r>.json``."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, FederatedModule)
        exchange = find(trainer, ReputationExchange)
        assert exchange is not None
        assert isinstance(exchange.server, RFFL)
        dimension = pl_module.cohort.weights.shape[1]
        gc.collect()
        held = [x for x in gc.get_objects() if torch.is_tensor(x) and x.numel() and x.numel() % dimension == 0]
        by_memory = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() // (4 * dimension) for x in held}
        seen = {
            "hosted": list(pl_module.cohort.participants),
            "rows": sum(by_memory.values()),
            "verdict": exchange.verdict is not None,
            "traffic": exchange.traffic is not None,
            "reputations": exchange.server.reputations is not None,
            "known_members": sorted(pl_module.exchange.active),
            "accuracy": float(trainer.callback_metrics["accuracy/mean"]),
        }
        (self.folder / f"rank_{trainer.global_rank}.json").write_text(json.dumps(seen))


class Crash(Callback):
    """Fails on rank 1 in the second round."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_rank == 1 and trainer.current_epoch == 1:
            raise RuntimeError("rank 1 gave up")


class Mistaken(Callback):
    """A user's mistake that rank 1 alone sees, while the others wait for it."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_rank == 1:
            raise UserError("Expected this of rank 1 alone.")
