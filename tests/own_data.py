"""A user's data set that is no tensor in memory."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rffl_pl.datamodules import FederatedDataModule, Sources
from rffl_pl.federation import Federation


class Halves(Dataset[tuple[Tensor, int]]):
    """Points of the plane, classed by the side they lie on; made one at a time."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not 0 <= index < self.size:
            raise IndexError(index)
        point = torch.randn(2, generator=torch.Generator().manual_seed(index))
        return point, int(point[0] > 0)


class OneByOne(FederatedDataModule):
    """Two classes."""

    num_classes = 2

    def load(self) -> Sources:
        return Sources(train=Halves(80), test=Halves(20))


class Jittered(Halves):
    """Moved a little each time that they are read, as augmented images are."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        point, label = super().__getitem__(index)
        return point + 0.2 * torch.rand(2) + 0.2 * random.random() + 0.2 * float(np.random.rand()), label


class Augmented(FederatedDataModule):
    """Training examples that draw at random from every stream that there is."""

    num_classes = 2

    def load(self) -> Sources:
        return Sources(train=Jittered(80), test=Halves(20))


class OneBroken(FederatedDataModule):
    """One training example is NaN."""

    num_classes = 2

    def load(self) -> Sources:
        return Sources(train=Broken(80), test=Halves(20))


class Broken(Halves):
    """Example 17 cannot be trained on."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        point, label = super().__getitem__(index)
        return (point * torch.nan if index == 17 else point), label


class Late(Halves):
    """Example 40 cannot be read, and classes are known without."""

    exact_targets = True

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.targets = [Halves(size)[i][1] for i in range(size)]

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == 40:
            raise OSError("the file is damaged")
        return super().__getitem__(index)


class TestedLate(FederatedDataModule):
    """One test example cannot be read; with ``mended`` it can."""

    num_classes = 2
    places = ("mended",)

    def __init__(self, federation: Federation, *, mended: bool = False, **options: Any) -> None:
        super().__init__(federation, **options)
        self.mended = mended

    def load(self) -> Sources:
        return Sources(train=Halves(80), test=Halves(50) if self.mended else Late(50))
