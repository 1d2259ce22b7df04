"""A Hugging Face data set of images or numbers."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import IO, Any

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from rffl_pl.datamodules.hugging_face import HuggingFaceData
from rffl_pl.datamodules.inputs import spread
from rffl_pl.datamodules.labelled import Labelled
from rffl_pl.datamodules.pictures import WHITE, Channels, Pixels, told_if_dark
from rffl_pl.datamodules.sources import Sources
from rffl_pl.datamodules.telling import LOOKED_AT, beginning_of, fingerprint_of
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation


class HFDataset(HuggingFaceData):
    """A Hugging Face data set of images or numbers, from a folder or the hub, by the names of its columns.

    Images are decoded as they are needed, brought to one size and to values in -1 .. 1, as by `ImageFolder`. Numbers,
    lists and arrays of them are read into memory and every entry is standardised by the training examples. The extra
    ``datasets`` reads the files.

    Args:
        federation: Who takes part.
        inputs: The column of images, lists or arrays; or several columns, which are put side by side as ``[features]``.
        image_size: Height and width of images in pixels.
        channels: ``rgb`` or ``grey``: three channels of an image or one.
        white: Which value is white in greys of more than 8 bits: 4095 of 12 bits. Values above it are white too.
        kwargs: See `HuggingFaceData` and `FederatedDataModule`.

    Raises:
        UserError: As `HuggingFaceData`, and if columns hold neither images nor numbers of one shape.
    """

    def __init__(
        self,
        federation: Federation,
        *,
        inputs: list[str] | str = "image",
        image_size: int = 32,
        channels: Channels = "rgb",
        white: int = WHITE,
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, **kwargs)
        self.inputs = [inputs] if isinstance(inputs, str) else list(inputs)
        if not self.inputs:
            raise UserError("Expected --data.inputs to name at least one column, but got none.")
        if twice := [name for name in self.inputs if self.inputs.count(name) > 1]:
            raise UserError(
                f"Expected --data.inputs to name every column once, but got {twice[0]} twice; leave one out."
            )
        self.pixels = Pixels(image_size, channels, white)

    @property
    def columns(self) -> Mapping[str, str]:
        return dict.fromkeys(self.inputs, "--data.inputs")

    def load(self) -> Sources:
        train, val, test = self.parts()
        if len(self.inputs) == 1 and type(train.rows.features[self.inputs[0]]).__name__ == "Image":
            images = Images(train, self.inputs[0], self.pixels)
            if dark := told_if_dark(images, self.pixels.white):
                rank_zero_warn(dark)
            return Sources(
                train=images,
                test=Images(test, self.inputs[0], self.pixels),
                validation=None if val is None else Images(val, self.inputs[0], self.pixels),
                groups=train.groups,
            )
        x = self._numbers(train)  # in double precision: times in seconds differ in digits that single has not
        finite = x[x.isfinite().flatten(1).all(1)]  # the others are refused, by their own numbers
        mean, deviation = scale_of(finite)

        def standardised(part: Labelled, which: str, numbers: Tensor) -> TensorDataset:
            if numbers.shape[1:] != mean.shape:
                raise UserError(
                    f"Expected --data.{which} to have inputs of shape {list(mean.shape)}, as the training examples, "
                    f"but they have {list(numbers.shape[1:])}; name another split, or mend its columns."
                )
            return TensorDataset(((numbers - mean) / deviation).float(), torch.tensor(part.labels))

        return Sources(
            train=standardised(train, "train", x),
            test=standardised(test, "test", self._numbers(test)),
            validation=None if val is None else standardised(val, "val", self._numbers(val)),
            groups=train.groups,
        )

    def _numbers(self, part: Labelled) -> Tensor:
        """The inputs ``[n, ...]`` of one column, or ``[n, features]`` of several."""
        values = part.rows.select_columns(self.inputs).with_format("numpy")[:]
        columns = []
        for name in self.inputs:
            column = values[name]
            if getattr(column, "dtype", np.dtype(object)).kind not in "biuf":
                raise UserError(
                    f"Expected column {name} of --data.inputs to hold images, or numbers of one shape without a gap, "
                    f"but it holds {part.rows.features[name]}; name another, or take --data HFText for text."
                )
            if column.dtype.kind == "f":  # which the library reads in single precision unless it is asked
                rows = part.rows.select_columns([name]).with_format("numpy", dtype=np.float64)
                column = rows[:][name]
            numbers = torch.from_numpy(column.astype(np.float64))
            columns.append(numbers.unsqueeze(1) if numbers.dim() == 1 else numbers)
        return columns[0] if len(columns) == 1 else torch.cat([column.flatten(1) for column in columns], dim=1)


def scale_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every entry of examples ``[n, ...]``, 1 of one that never changes.

    NumPy sums alike with any number of threads, which torch does not.
    """
    if not len(x):
        return torch.zeros(x.shape[1:]), torch.ones(x.shape[1:])
    mean, deviation = (torch.as_tensor(of) for of in (x.numpy().mean(0), x.numpy().std(0)))
    return mean, deviation.where(x.amax(0) > x.amin(0), 1.0)


class Images(Dataset[tuple[Tensor, int]]):
    """The images of one part, decoded one at a time.

    Args:
        part: The rows and their classes; whoever saved them may have read them as bytes, or as tensors.
        column: The column of images.
        pixels: Makes an input of an image.
    """

    exact_targets = True
    """None need be decoded to see it."""

    def __init__(self, part: Labelled, column: str, pixels: Pixels) -> None:
        decoded = replace(part.rows.features[column], decode=True)
        rows = part.rows.select_columns([column]).with_format(None)
        self.rows = rows.cast_column(column, decoded)
        self._stored = rows.cast_column(column, replace(decoded, decode=False))
        self.column, self.pixels = column, pixels
        self.targets = torch.tensor(part.labels)

    @cached_property
    def fingerprint(self) -> str:
        """Of the bytes of some images, as they are stored."""
        some = spread(len(self), LOOKED_AT).tolist()
        return fingerprint_of([str(len(self)).encode()], (beginning_of(partial(self.opened, i)) for i in some))

    def opened(self, index: int) -> IO[bytes]:
        """An image as it is stored, among the rows or in a file beside them."""
        stored = self._stored[index][self.column]
        return open(stored["path"], "rb") if stored["bytes"] is None else io.BytesIO(stored["bytes"])

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        try:
            picture = self.rows[index][self.column]
            if picture is None:
                raise ValueError("there is none")
            return self.pixels(picture), int(self.targets[index])
        except Exception as error:  # whatever a decoder can meet in a damaged image
            raise UserError(
                f"Expected an image in column {self.column} of --data.inputs in every example, but number {index} "
                f"cannot be read ({type(error).__name__}: {' '.join(str(error).split())}); mend it or leave it out."
            ) from error
