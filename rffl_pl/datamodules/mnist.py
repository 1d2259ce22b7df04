"""MNIST, as torchvision reads and downloads it."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import TensorDataset
from torchvision.datasets import MNIST as TorchvisionMNIST

from rffl_pl.datamodules.base import FederatedDataModule, Sources
from rffl_pl.datamodules.files import data_dir, ensure
from rffl_pl.federation import Federation

_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


class MNIST(FederatedDataModule):
    """70,000 images ``[1, 32, 32]`` of handwritten digits, padded from 28x28 and standardised by the training images.

    Args:
        federation: Who takes part.
        data_dir: Folder with ``MNIST/raw``; by default ``RFFL_DATA_DIR``, else ``data``. Downloaded when absent.
        examples_per_participant: Average size of the honest participants' shards (the paper's 600).
        kwargs: See `FederatedDataModule`.
    """

    num_classes = 10

    def __init__(
        self,
        federation: Federation,
        *,
        data_dir: str | None = None,
        examples_per_participant: int | None = 600,
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, examples_per_participant=examples_per_participant, **kwargs)
        self.data_dir = data_dir

    def prepare_data(self) -> None:
        root = data_dir(self.data_dir)
        ensure("MNIST", root / "MNIST" / "raw", _MD5, lambda: TorchvisionMNIST(str(root), download=True))

    def load(self) -> Sources:
        root = str(data_dir(self.data_dir))
        train, test = TorchvisionMNIST(root, train=True), TorchvisionMNIST(root, train=False)
        x, x_test = _padded(train.data), _padded(test.data)
        deviation, mean = x.std(), x.mean()
        return Sources(
            train=TensorDataset((x - mean) / deviation, train.targets),
            test=TensorDataset((x_test - mean) / deviation, test.targets),
        )


def _padded(images: Tensor) -> Tensor:
    return pad(images.unsqueeze(1).float().div(255), (2, 2, 2, 2))
