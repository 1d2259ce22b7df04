"""EMNIST, as torchvision reads and downloads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torchvision.datasets
from torch import Tensor

from rffl_pl.datamodules.torchvision_images import TorchvisionImages
from rffl_pl.federation import Federation

Subset = Literal["balanced", "byclass", "bymerge", "digits", "letters", "mnist"]


class EMNIST(TorchvisionImages):
    """Images ``[1, 32, 32]`` of handwritten digits and letters, in MNIST's format and treated alike.

    The images lie as in the files and as torchvision gives them: transposed, rows for columns. The classes of
    ``letters``, 1 to 26 in the files, are 0 to 25 here.

    Args:
        federation: Who takes part.
        subset: Which part, with training images and classes: ``balanced`` (112,800; 47), ``byclass`` (697,932; 62),
            ``bymerge`` (697,932; 47), ``digits`` (240,000; 10), ``letters`` (124,800; 26) or ``mnist`` (60,000; 10).
            The largest take 640 MB of memory on every rank.
        data_dir: Folder with ``EMNIST/raw``; by default ``RFFL_DATA_DIR``, else ``data``. Downloaded when absent.
        examples_per_participant: Average size of the honest participants' shards, by default as with MNIST.
        kwargs: See `FederatedDataModule`.

    Raises:
        UserError: If there is no such part.
    """

    title = "EMNIST"
    folder = "EMNIST/raw"
    reader = torchvision.datasets.EMNIST
    frame = 2

    def __init__(
        self,
        federation: Federation,
        *,
        subset: Subset = "balanced",
        data_dir: str | None = None,
        examples_per_participant: int | None = 600,
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, data_dir=data_dir, examples_per_participant=examples_per_participant, **kwargs)
        self.subset = subset
        names = self.reader.classes_split_dict[subset]
        self.class_names = tuple(names[1:] if subset == "letters" else names)  # no letter has number 0
        self.num_classes = len(self.class_names)

    def checksums(self) -> Mapping[str, str | None]:
        kinds = ("images-idx3", "labels-idx1")
        return {f"emnist-{self.subset}-{part}-{kind}-ubyte": None for part in ("train", "test") for kind in kinds}

    def opened(self, root: Path, *, train: bool, download: bool = False) -> Any:
        return self.reader(str(root), split=self.subset, train=train, download=download)

    def tensors(self, dataset: Any) -> tuple[Tensor, Tensor]:
        return dataset.data.unsqueeze(1), dataset.targets - int(self.subset == "letters")
