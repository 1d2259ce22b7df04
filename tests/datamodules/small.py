"""Data sets small enough to see through."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from rffl_pl.datamodules import FederatedDataModule, Sources
from rffl_pl.datamodules.reading import Batches

TRAIN, TEST, CLASSES = 200, 37, 4


def tensors(n: int) -> TensorDataset:
    """Example i is the number i; its class is i mod 4."""
    return TensorDataset(torch.arange(n).float().view(n, 1), torch.arange(n) % CLASSES)


class InMemory(FederatedDataModule):
    num_classes = CLASSES

    def load(self) -> Sources:
        return Sources(train=tensors(TRAIN), test=tensors(TEST))


class Plain(Dataset[tuple[Tensor, int]]):
    """The same examples one at a time, with nothing but `__len__` and `__getitem__`."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.tensor([float(index)]), index % CLASSES


class OneAtATime(FederatedDataModule):
    num_classes = CLASSES

    def load(self) -> Sources:
        return Sources(train=Plain(TRAIN), test=Plain(TEST))


class WithValidation(FederatedDataModule):
    num_classes = CLASSES

    def load(self) -> Sources:
        return Sources(train=tensors(TRAIN), test=tensors(TEST), validation=tensors(11))


def ready(data: FederatedDataModule) -> FederatedDataModule:
    data.setup("fit")
    return data


def common(loader: object) -> Batches:
    """A loader of examples that all participants are measured on."""
    assert isinstance(loader, Batches)
    return loader


def contents(loader: Any) -> list[int]:
    """The numbers behind the examples of a loader, in its order."""
    return torch.cat([x.flatten() for x, _ in loader]).long().tolist()


both_kinds = pytest.mark.parametrize("kind", [InMemory, OneAtATime])
