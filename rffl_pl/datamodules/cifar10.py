"""CIFAR-10 and CIFAR-100, as torchvision reads and downloads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torchvision.datasets
from torch import Tensor

from rffl_pl.datamodules.torchvision_images import TorchvisionImages
from rffl_pl.federation import Federation


class CIFAR10(TorchvisionImages):
    """60,000 colour images ``[3, 32, 32]`` in 10 classes, standardised per channel by the training images.

    Args:
        federation: Who takes part.
        data_dir: Folder with ``cifar-10-batches-py``; by default ``RFFL_DATA_DIR``, else ``data``. Downloaded when
            absent.
        examples_per_participant: Average size of the honest participants' shards (the paper's 2,000).
        validation: Share of the training data that is held out for watching (the paper's 20 %).
        kwargs: See `FederatedDataModule`.
    """

    title = "CIFAR-10"
    folder = "cifar-10-batches-py"
    reader = torchvision.datasets.CIFAR10
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
        super().__init__(
            federation,
            data_dir=data_dir,
            examples_per_participant=examples_per_participant,
            validation=validation,
            **kwargs,
        )

    def checksums(self) -> Mapping[str, str | None]:
        files = dict([*self.reader.train_list, *self.reader.test_list])
        return files | {self.reader.meta["filename"]: self.reader.meta["md5"]}

    def tensors(self, dataset: Any) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(dataset.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(dataset.targets)


class CIFAR100(CIFAR10):
    """60,000 colour images ``[3, 32, 32]`` in 100 classes, standardised per channel by the training images.

    Args:
        federation: Who takes part.
        data_dir: Folder with ``cifar-100-python``; by default ``RFFL_DATA_DIR``, else ``data``. Downloaded when
            absent.
        examples_per_participant: Average size of the honest participants' shards, by default as with CIFAR-10.
        validation: Share of the training data that is held out for watching, by default as with CIFAR-10.
        kwargs: See `FederatedDataModule`.
    """

    title = "CIFAR-100"
    folder = "cifar-100-python"
    reader = torchvision.datasets.CIFAR100
    num_classes = 100

    def tensors(self, dataset: Any) -> tuple[Tensor, Tensor]:
        self.class_names = tuple(dataset.classes)
        return super().tensors(dataset)
