"""The 8x8 digits that ship inside scikit-learn: no download, trains in seconds."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from rffl_pl.datamodules.base import FederatedDataModule
from rffl_pl.datamodules.sources import Sources


class Digits(FederatedDataModule):
    """1,797 images ``[1, 8, 8]`` of handwritten digits in 10 classes, standardised; every fifth is a test image."""

    num_classes = 10

    def load(self) -> Sources:
        images, labels = shipped()
        x, y = images.view(-1, 1, 8, 8), labels
        test = torch.arange(len(y)) % 5 == 4
        mean, deviation = x[~test].mean(), x[~test].std()
        x = (x - mean) / deviation
        return Sources(train=TensorDataset(x[~test], y[~test]), test=TensorDataset(x[test], y[test]))


@cache
def shipped() -> tuple[Tensor, Tensor]:
    """Images ``[1797, 64]`` float32 and labels ``[1797]`` int64, in scikit-learn's order.

    Read from its file where that is: importing scikit-learn takes twenty times as long as reading, half a second.
    """
    found = find_spec("sklearn")
    assert found is not None  # it is required
    assert found.origin is not None
    file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        table = np.loadtxt(file, delimiter=",")
        images, labels = table[:, :-1], table[:, -1]
    else:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32), torch.tensor(labels, dtype=torch.int64)
