"""CIFAR-10, as torchvision reads and downloads it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset
from torchvision.datasets import CIFAR10 as TorchvisionCIFAR10

from rffl_pl.datamodules.base import FederatedDataModule, Sources
from rffl_pl.datamodules.files import data_dir, ensure
from rffl_pl.federation import Federation

_MD5 = {
    **dict(TorchvisionCIFAR10.train_list),
    **dict(TorchvisionCIFAR10.test_list),
    TorchvisionCIFAR10.meta["filename"]: TorchvisionCIFAR10.meta["md5"],
}


class CIFAR10(FederatedDataModule):
    """60,000 colour images ``[3, 32, 32]`` in 10 classes, standardised per channel by the training images.

    Args:
        federation: Who takes part.
        data_dir: Folder with ``cifar-10-batches-py``; by default ``RFFL_DATA_DIR``, else ``data``. Downloaded when
            absent.
        examples_per_participant: Average size of the honest participants' shards (the paper's 2,000).
        validation: Share of the training data that is held out for watching (the paper's 20 %).
        kwargs: See `FederatedDataModule`.
    """

    num_classes = 10

    def __init__(
        self,
        federation: Federation,
        *,
        data_dir: str | None = None,
        examples_per_participant: int | None = 2000,
        validation: float = 0.2,
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, examples_per_participant=examples_per_participant, validation=validation, **kwargs)
        self.data_dir = data_dir

    def prepare_data(self) -> None:
        root = data_dir(self.data_dir)
        ensure("CIFAR-10", root / "cifar-10-batches-py", _MD5, lambda: TorchvisionCIFAR10(str(root), download=True))

    def load(self) -> Sources:
        root = str(data_dir(self.data_dir))
        train, test = TorchvisionCIFAR10(root, train=True), TorchvisionCIFAR10(root, train=False)
        x, x_test = _channels_first(train.data), _channels_first(test.data)
        deviation, mean = torch.std_mean(x, dim=(0, 2, 3), keepdim=True)
        return Sources(
            train=TensorDataset((x - mean) / deviation, torch.tensor(train.targets)),
            test=TensorDataset((x_test - mean) / deviation, torch.tensor(test.targets)),
        )


def _channels_first(images: Any) -> Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().div(255)
