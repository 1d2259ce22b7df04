"""Bad data is said where it comes in."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from rffl_pl.datamodules import FederatedDataModule, Sources
from rffl_pl.datamodules.border import labels_of
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import RoundLoader, Shard
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.datamodules.small import *

class Mislabelled(FederatedDataModule):
    """One label of the training or of the test data is replaced."""

    num_classes: ClassVar[int] = CLASSES

    def __init__(self, federation: Federation, *, where: str, index: int, label: int) -> None:
        super().__init__(federation)
        self.where, self.index, self.label = where, index, label

    def load(self) -> Sources:
        sources = Sources(train=tensors(TRAIN), test=tensors(TEST))
        labels_of(getattr(sources, self.where))[self.index] = self.label
        return sources


@pytest.mark.parametrize("label", [4, 9, -1])
@pytest.mark.parametrize(("where", "word"), [("train", "training"), ("test", "test")])
def test_label_outside_the_classes(where: str, word: str, label: int) -> None:
    """The message has the example, its label, the range and how many there are."""
    data = Mislabelled(Federation(participants=2), where=where, index=7, label=label)
    with pytest.raises(UserError, match=rf"in 0 \.\. 3, but {word} example 7 has label {label} \(1 of (200|37)"):
        data.setup("fit")


def test_labels_of_every_kind_of_data_set() -> None:
    """Classes are found in tensors, in `targets` or `labels`, or example by example, always as int64."""
    expected = torch.arange(9) % CLASSES
    listed, array, labelled = Plain(9), Plain(9), Plain(9)
    listed.targets = expected.tolist()  # type: ignore[attr-defined]
    array.targets = np.array(expected.tolist(), dtype=np.uint8)  # type: ignore[attr-defined]
    labelled.labels = expected.int()  # type: ignore[attr-defined]
    in_memory = TensorDataset(torch.zeros(9, 1), expected.to(torch.uint8))
    for dataset in (listed, array, labelled, in_memory, tensors(9), Plain(9), Subset(tensors(20), range(9))):
        assert torch.equal(labels_of(dataset), expected)
        assert labels_of(dataset).dtype == torch.int64


def test_targets_save_reading_every_example() -> None:
    """With `targets`, no example is read for its label."""

    class Unreadable(Plain):
        targets: ClassVar[list[int]] = [3, 1, 2]

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            raise AssertionError(index)

    assert labels_of(Unreadable(3)).tolist() == [3, 1, 2]
