"""A run that ends before its time; given by class path on the command line."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from rffl_pl.callbacks import RoundCallback
from rffl_pl.models import Perceptron
from rffl_pl.module import FederatedModule
from rffl_pl.runs import Round


class PowerCut(Callback):
    """Breaks off in the round after some whole ones."""

    exception: BaseException = RuntimeError("power cut")

    def __init__(self, after: int = 2) -> None:
        self.after = after

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        assert isinstance(pl_module, FederatedModule)
        if pl_module.round == self.after:
            raise self.exception


class Unmade(Perceptron):
    """A network in the making of which the user loses patience."""

    def __init__(self) -> None:
        raise KeyboardInterrupt


class ControlC(PowerCut):
    """Likewise, by the user."""

    exception = KeyboardInterrupt()


class Killed(PowerCut):
    """Likewise, by the kernel."""

    number: int = signal.SIGKILL

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        os.kill(os.getpid(), self.number)


class KilledOnce(Killed):
    """Likewise, or by another signal, unless a file is there that the first time leaves."""

    def __init__(self, mark: str, number: int = signal.SIGKILL) -> None:
        self.mark, self.number = Path(mark), number

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if not self.mark.exists():
            self.mark.touch()
            super().on_train_batch_start(trainer, pl_module, batch, batch_idx)


class Awaits(Callback):
    """Begins once a file is there."""

    def __init__(self, file: str) -> None:
        self.file = Path(file)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        while not self.file.exists():
            time.sleep(0.02)


class Enough(RoundCallback):
    """Has training end after a round."""

    def __init__(self, after: int = 2) -> None:
        self.after = after

    def on_round_end(self, trainer: Trainer, played: Round) -> None:
        trainer.should_stop = trainer.should_stop or played.number == self.after


class Signalled(Callback):
    """Gets a signal once: in the round after some whole ones, or after the last one.

    Args:
        number: The signal's.
        after: In the round after so many.
        at: ``round``, or ``end`` for what follows the last one.
        rank: Which rank alone gets it; all if None.
        launcher: The process that started this one gets it instead.
    """

    def __init__(
        self, number: int = 15, after: int = 2, at: str = "round", rank: int | None = None, launcher: bool = False
    ) -> None:
        self.number, self.after, self.at, self.rank, self.launcher = number, after, at, rank, launcher

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        assert isinstance(pl_module, FederatedModule)
        if self.at == "round" and pl_module.round == self.after:
            self._send(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The reference is trained after this, and models are tested."""
        if self.at == "end":
            self._send(trainer)

    def _send(self, trainer: Trainer) -> None:
        if self.rank in (None, trainer.global_rank):
            os.kill(os.getppid() if self.launcher else os.getpid(), self.number)
