# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# ruff: noqa: ANN001  # that arguments have no type is what is tried
"""Classes of one's own that need an argument and do not say of which type: nobody may be given None for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from rffl_pl.callbacks import RoundCallback
from rffl_pl.datamodules import Augmentation, Digits
from rffl_pl.datamodules.splits import Pool, Split
from rffl_pl.training.objective import LocalRound, Objective


class Net(nn.Linear):
    """A network."""

    def __init__(self, width) -> None:
        super().__init__(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))


def net(width) -> nn.Module:
    """Makes one."""
    return Net(width)


class Loss(nn.CrossEntropyLoss):
    """A loss."""

    def __init__(self, width) -> None:
        super().__init__()


class Goal(Objective):
    """An objective."""

    def __init__(self, width) -> None:
        self.width = width

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        return local.criterion(network(x), y)


class Numerals(Digits):
    """Data."""

    def __init__(self, federation, width, **kwargs: Any) -> None:
        super().__init__(federation, **kwargs)


class Cut(Split):
    """A split."""

    def __init__(self, width) -> None:
        self.width = width

    def cut(self, pool: Pool) -> list[Tensor]:
        return list(torch.arange(len(pool.labels)).chunk(pool.participants))


class Same(Augmentation):
    """Changes nothing."""

    def __init__(self, width) -> None:
        self.width = width

    def __call__(self, x: Tensor) -> Tensor:
        return x


class Steps(torch.optim.SGD):
    """An optimizer."""

    def __init__(self, params, *, lr: float = 0.1, width) -> None:
        super().__init__(params, lr=lr)


def steps(params, lr: float = 0.1) -> torch.optim.Optimizer:
    """Makes one."""
    return torch.optim.SGD(params, lr=lr)


class Measure(MulticlassAccuracy):
    """A measure."""

    def __init__(self, width) -> None:
        super().__init__(10)


class Hearing(RoundCallback):
    """A callback."""

    def __init__(self, width) -> None:
        self.width = width


class Bent(nn.Linear):
    """A network with a function for an option."""

    def __init__(self, bend: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__(64, 10)
        self.bend = bend

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.bend(x.flatten(1)))
