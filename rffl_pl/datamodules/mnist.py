"""MNIST and Fashion-MNIST, as torchvision reads and downloads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torchvision.datasets
from torch import Tensor

from rffl_pl.datamodules.torchvision_images import TorchvisionImages
from rffl_pl.federation import Federation

_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


class MNIST(TorchvisionImages):
    """70,000 images ``[1, 32, 32]`` of handwritten digits, padded from 28x28 and standardised by the training images.

    Args:
        federation: Who takes part.
        data_dir: Folder with ``MNIST/raw``; by default ``RFFL_DATA_DIR``, else ``data``. Downloaded when absent.
        examples_per_participant: Average size of the honest participants' shards (the paper's 600).
        kwargs: See `FederatedDataModule`.
    """

    title = "MNIST"
    folder = "MNIST/raw"
    reader = torchvision.datasets.MNIST
    num_classes = 10
    frame = 2

    def __init__(
        self,
        federation: Federation,
        *,
        data_dir: str | None = None,
        examples_per_participant: int | None = 600,
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, data_dir=data_dir, examples_per_participant=examples_per_participant, **kwargs)

    def checksums(self) -> Mapping[str, str | None]:
        return _MD5

    def tensors(self, dataset: Any) -> tuple[Tensor, Tensor]:
        return dataset.data.unsqueeze(1), dataset.targets


class FashionMNIST(MNIST):
    """70,000 images ``[1, 32, 32]`` of clothes in 10 classes, in MNIST's format and treated alike.

    Args:
        federation: Who takes part.
        data_dir: Folder with ``FashionMNIST/raw``; by default ``RFFL_DATA_DIR``, else ``data``. Downloaded when absent.
        examples_per_participant: Average size of the honest participants' shards, by default as with MNIST.
        kwargs: See `FederatedDataModule`.
    """

    title = "Fashion-MNIST"
    folder = "FashionMNIST/raw"
    reader = torchvision.datasets.FashionMNIST
    class_names = tuple(torchvision.datasets.FashionMNIST.classes)

    def checksums(self) -> Mapping[str, str | None]:
        return {Path(archive).stem: None for archive, _ in self.reader.resources}
