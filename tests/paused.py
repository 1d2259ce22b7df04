"""A run whose process stops itself in the middle, as the kernel stops one."""

from __future__ import annotations

import os
import signal

from lightning.pytorch import Callback, LightningModule, Trainer

from rffl_pl.module import FederatedModule

PAUSED = "PAUSED_IN_ROUND"
"""In the environment, so that the same words go on in another process."""


class Paused(Callback):
    """Nothing happens until somebody sends SIGCONT, once that many rounds have been played."""

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, FederatedModule)
        if str(pl_module.round) == os.environ.get(PAUSED):
            os.kill(os.getpid(), signal.SIGSTOP)
