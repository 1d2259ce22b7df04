"""What the image data sets share that torchvision reads and downloads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from rffl_pl.datamodules.base import FederatedDataModule
from rffl_pl.datamodules.byte_images import ByteImages, Standardise
from rffl_pl.datamodules.files import data_dir, ensure
from rffl_pl.datamodules.sources import Sources
from rffl_pl.errors import UserError, in_a_line
from rffl_pl.federation import Federation


class TorchvisionImages(FederatedDataModule):
    """Base of the image data sets that torchvision downloads and reads, standardised by the training images.

    Args:
        federation: Who takes part.
        data_dir: The folder that torchvision calls ``root``.
        kwargs: See `FederatedDataModule`.

    Raises:
        UserError: If files are missing and cannot be downloaded, or cannot be read.
    """

    title: ClassVar[str]
    """What the data set is called."""
    folder: ClassVar[str]
    """Where its files lie in ``data_dir``."""
    reader: ClassVar[type[Any]]
    """torchvision's class."""
    frame: ClassVar[int] = 0
    """Pixels of background that are put around every image."""

    def __init__(self, federation: Federation, *, data_dir: str | None = None, **kwargs: Any) -> None:
        super().__init__(federation, **kwargs)
        self.data_dir = data_dir

    @abstractmethod
    def checksums(self) -> Mapping[str, str | None]:
        """MD5 of every file by its name; None where only the archive's is published."""

    @abstractmethod
    def tensors(self, dataset: Any) -> tuple[Tensor, Tensor]:
        """Images ``[n, channels, height, width]`` of bytes and classes ``[n]`` of what the reader has read."""

    def opened(self, root: Path, *, train: bool, download: bool = False) -> Any:
        """The reader's training or test images below a root."""
        return self.reader(str(root), train=train, download=download)

    def prepare_data(self) -> None:
        def download(root: Path) -> None:
            for train in (True, False):
                self.opened(root, train=train, download=True)

        ensure(self.title, data_dir(self.data_dir), self.folder, self.checksums(), download)

    def load(self) -> Sources:
        (x, y), (x_test, y_test) = self._read(train=True), self._read(train=False)
        standardise = Standardise(x, self.frame)
        return Sources(train=ByteImages(x, y, standardise), test=ByteImages(x_test, y_test, standardise))

    def _read(self, *, train: bool) -> tuple[Tensor, Tensor]:
        try:
            x, y = self.tensors(self.opened(data_dir(self.data_dir), train=train))
            if len(x) != len(y):
                raise ValueError(f"{len(x)} images, but {len(y)} labels")
        except Exception as error:  # whatever a reader can meet in a damaged file
            raise UserError(
                f"Expected the {'training' if train else 'test'} files of {self.title} in "
                f"{data_dir(self.data_dir) / self.folder}/ to be as published, but torchvision cannot read them "
                f"({in_a_line(error)}); delete them there, and they are "
                "downloaded again."
            ) from error
        return x, y
