"""A callback that ends training on one rank alone; given by class path on the command line."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from rffl_pl.module import FederatedModule


class OneStops(Callback):
    """Sets `should_stop` on rank 0 after the second round: by a clock or a file of its own, say.

    Args:
        at: After the round is played (``batch``), or where it ends (``epoch``).
    """

    def __init__(self, at: str = "epoch") -> None:
        self.at = at

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A user's callbacks come before the one that plays the round: it has not been counted yet."""
        assert isinstance(pl_module, FederatedModule)
        if self.at == "batch" and trainer.global_rank == 0 and pl_module.round == 1:
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, FederatedModule)
        if self.at == "epoch" and trainer.global_rank == 0 and pl_module.round == 2:
            trainer.should_stop = True
