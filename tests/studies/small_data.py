"""Examples drawn at random of the kinds that the package's larger networks take, for cells that need no files."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from rffl_pl.datamodules import FederatedDataModule, Sources


def _stream(count: int) -> tuple[Tensor, torch.Generator]:
    """Classes of so many examples, and what draws them."""
    return torch.arange(count) % 2, torch.Generator().manual_seed(count)


class Drawn(FederatedDataModule):
    """A hundred examples to train on and twenty to test on."""

    num_classes = 2

    def load(self) -> Sources:
        return Sources(train=self.drawn(100), test=self.drawn(20))

    @staticmethod
    @abstractmethod
    def drawn(count: int) -> TensorDataset:
        """So many."""


class Pictures(Drawn):
    """Of one channel, 32 x 32, where one class is brighter on the left."""

    @staticmethod
    def drawn(count: int) -> TensorDataset:
        y, stream = _stream(count)
        x = torch.randn(count, 1, 32, 32, generator=stream)
        x[:, :, :, :16] += y.view(-1, 1, 1, 1)
        return TensorDataset(x, y)


class Sentences(Drawn):
    """Of up to twelve words of 1,000, where one class has more of the first half; zeros behind."""

    @staticmethod
    def drawn(count: int) -> TensorDataset:
        y, stream = _stream(count)
        x = torch.randint(1, 1000, (count, 12), generator=stream)
        x = torch.where((y == 1).unsqueeze(1) & (torch.rand(count, 12, generator=stream) < 0.5), x // 2 + 1, x)
        lengths = torch.randint(5, 13, (count, 1), generator=stream)
        return TensorDataset(x * (torch.arange(12) < lengths), y)
