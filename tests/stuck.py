"""Ranks that wait as in a collective operation whose other ranks never come."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from rffl_pl.module import FederatedModule


class Stuck(Callback):
    """All ranks wait for ever after some rounds, deaf to signals, and then their launcher is asked to end."""

    def __init__(self, after: int = 2) -> None:
        self.after = after

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        assert isinstance(pl_module, FederatedModule)
        if pl_module.round != self.after:
            return
        if trainer.global_rank == 0:
            threading.Timer(1, os.kill, (os.getppid(), signal.SIGTERM)).start()
        library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
        library.pthread_mutex_lock(mutex)
        library.pthread_mutex_lock(mutex)  # the C library goes on waiting after a signal, and Python never hears it
