"""The 8x8 digits that ship inside scikit-learn: no download, trains in seconds."""

from __future__ import annotations

import torch
from torch.utils.data import TensorDataset

from rffl_pl.datamodules.base import FederatedDataModule
from rffl_pl.datamodules.sources import Sources


class Digits(FederatedDataModule):
    """1,797 images ``[1, 8, 8]`` of handwritten digits in 10 classes, standardised; every fifth is a test image."""

    num_classes = 10

    def load(self) -> Sources:
        from sklearn.datasets import load_digits  # here: it takes a second to import, and no other data set needs it

        images, labels = load_digits(return_X_y=True)
        x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8)
        y = torch.tensor(labels, dtype=torch.int64)
        test = torch.arange(len(y)) % 5 == 4
        mean, deviation = x[~test].mean(), x[~test].std()
        x = (x - mean) / deviation
        return Sources(train=TensorDataset(x[~test], y[~test]), test=TensorDataset(x[test], y[test]))
