"""Networks and data of a user's own."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from rffl_pl.callbacks import RoundCallback
from rffl_pl.datamodules import Digits, FederatedDataModule, Sources
from rffl_pl.runs import Round


class Functional(nn.Module):
    """Computes by what no layer of it prints."""

    scale: Tensor

    def __init__(self, *, act: str = "relu", dropout: float = 0.0, scale: float = 1.0) -> None:
        super().__init__()
        self.act, self.dropout = act, dropout
        self.hidden, self.head = nn.Linear(64, 16), nn.Linear(16, 10)
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        hidden = getattr(torch, self.act)(self.hidden(x.flatten(1)) * self.scale)
        logits: Tensor = self.head(functional.dropout(hidden, self.dropout, self.training))
        return logits


class Points(Dataset[Any]):
    """Points of the plane as NumPy's arrays, classed by the side they lie on."""

    def __init__(self, size: int) -> None:
        self.x = np.random.default_rng(0).normal(size=(size, 2)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], int(self.x[index, 0] > 0)


class Arrays(FederatedDataModule):
    """Two classes."""

    num_classes = 2

    def load(self) -> Sources:
        return Sources(train=Points(80), test=Points(20))


class Turned(Digits):
    """The digits, some of them upside down: labels, shards and the first of them stay as they are."""

    def __init__(self, *, after: int = 10**6, **options: Any) -> None:
        super().__init__(**options)
        self.after = after

    def load(self) -> Sources:
        sources = super().load()
        assert isinstance(sources.train, TensorDataset)
        x, y = sources.train.tensors
        later = (torch.arange(len(x)) >= self.after).view(-1, 1, 1, 1)
        return replace(sources, train=TensorDataset(torch.where(later, x.flip(2), x), y))


class Single(Dataset[Any]):
    """Reads one example after another."""

    def __init__(self, dataset: TensorDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]


class FromFile(FederatedDataModule):
    """Points of the plane in a file, at once or one by one."""

    num_classes = 2

    def __init__(self, *, path: str, single: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.path, self.single = path, single

    def load(self) -> Sources:
        x, y = torch.load(self.path)
        train, test = TensorDataset(x[:60], y[:60]), TensorDataset(x[60:], y[60:])
        return Sources(train=Single(train), test=Single(test)) if self.single else Sources(train=train, test=test)


class Locked(RoundCallback):
    """Keeps what cannot be saved."""

    def state_dict(self) -> dict[str, Any]:
        return {"lock": threading.Lock()}


class Best(Callback):
    """Remembers a number of NumPy's, from the second round on."""

    best: Any = None

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.best = np.float64(1) if trainer.current_epoch else 1.0

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}


class Adding(Callback):
    """Puts a number of NumPy's into the checkpoint itself."""

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["best"] = np.float64(1)


class Counted(Digits):
    """Data whose state has one."""

    def state_dict(self) -> dict[str, Any]:
        return {"read": np.int64(1)}


class Stepping(torch.optim.SGD):
    """Likewise, from the first step on."""

    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["scale"] = np.float32(1)
        return super().step(closure)


class Renaming(RoundCallback):
    """Calls a number what another one is called."""

    def __init__(self, name: str = "accuracy/mean") -> None:
        self.name = name

    def numbers(self, played: Round) -> dict[str, float]:
        return {self.name: 1.0}


class Failing(RoundCallback):
    """Is wrong."""

    def on_round_end(self, trainer: Trainer, played: Round) -> None:
        raise KeyError("accuracies")
