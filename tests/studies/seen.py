"""A callback that tells which GPU its process was given, and how many threads."""

from __future__ import annotations

import os

import torch
from lightning import Callback, LightningModule, Trainer


class Device(Callback):
    """Prints the environment's word for it when training begins."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        print("sees GPU", os.environ.get("CUDA_VISIBLE_DEVICES"))
        print("threads:", torch.get_num_threads())
