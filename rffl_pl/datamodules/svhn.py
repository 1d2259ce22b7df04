"""SVHN, as torchvision reads and downloads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torchvision.datasets
from torch import Tensor

from rffl_pl.datamodules.torchvision_images import TorchvisionImages


class SVHN(TorchvisionImages):
    """99,289 colour images ``[3, 32, 32]`` of house numbers' digits, standardised per channel by the training images.

    73,257 for training and 26,032 for test; without the 531,131 easier extra images.

    Args:
        federation: Who takes part.
        data_dir: Folder with ``train_32x32.mat`` and ``test_32x32.mat``; by default ``RFFL_DATA_DIR``, else ``data``.
            Downloaded when absent.
        kwargs: See `FederatedDataModule`.
    """

    title = "SVHN"
    folder = ""
    reader = torchvision.datasets.SVHN
    num_classes = 10

    def checksums(self) -> Mapping[str, str | None]:
        return {file: md5 for _, file, md5 in (self.reader.split_list[part] for part in ("train", "test"))}

    def opened(self, root: Path, *, train: bool, download: bool = False) -> Any:
        return self.reader(str(root), split="train" if train else "test", download=download)

    def tensors(self, dataset: Any) -> tuple[Tensor, Tensor]:
        # The file has the images last: without copying, those of a batch would lie far apart.
        return torch.from_numpy(dataset.data).contiguous(), torch.from_numpy(dataset.labels)
