"""A run that ends before its time; given by class path on the command line."""

from __future__ import annotations

import os
import signal
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from rffl_pl.module import FederatedModule


class PowerCut(Callback):
    """Breaks off in the round after some whole ones."""

    exception: BaseException = RuntimeError("power cut")

    def __init__(self, after: int = 2) -> None:
        self.after = after

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        assert isinstance(pl_module, FederatedModule)
        if pl_module.round == self.after:
            raise self.exception


class ControlC(PowerCut):
    """Likewise, by the user."""

    exception = KeyboardInterrupt()


class Killed(PowerCut):
    """Likewise, by the kernel."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
