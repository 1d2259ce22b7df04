"""Callbacks with which one rank of several fails; given by class path on the command line."""

from __future__ import annotations

import os
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from rffl_pl.callbacks import RunReport
from rffl_pl.callbacks.find import find
from rffl_pl.errors import UserError


class Mistaken(Callback):
    """Rank 1 meets a mistake of its user's in the second round, as with an image that cannot be read."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if os.environ["RANK"] == "1" and trainer.current_epoch == 1:
            raise UserError("Expected b.png to be an image, but it is cut off; mend it.")


class Broken(Callback):
    """Likewise, but what it meets is nobody's mistake that is known."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if os.environ["RANK"] == "1" and trainer.current_epoch == 1:
            raise KeyError("b.png")


class NoRoom(Callback):
    """Rank 1 cannot write its participants' weights."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        report = find(trainer, RunReport)
        assert report is not None
        if os.environ["RANK"] == "1":
            report.folder.weights_file(1).mkdir(parents=True, exist_ok=True)
