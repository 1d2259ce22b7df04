"""Callbacks: one tells which GPU its process was given, and how many threads; one has a number of every round."""

from __future__ import annotations

import os

import torch
from lightning import Callback, LightningModule, Trainer

from rffl_pl.callbacks import RoundCallback
from rffl_pl.runs import Round


class Device(Callback):
    """Prints the environment's word for it when training begins."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        print("sees GPU", os.environ.get("CUDA_VISIBLE_DEVICES"))
        print("threads:", torch.get_num_threads())


class Least(RoundCallback):
    """How well the honest participant reads that reads worst."""

    def numbers(self, played: Round) -> dict[str, float]:
        return {"least": min(played.measures["accuracy"][: played.honest])}
