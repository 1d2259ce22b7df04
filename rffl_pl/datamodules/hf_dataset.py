"""A Hugging Face data set of images or numbers."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import IO, Any

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.utils.data import Dataset

from rffl_pl.datamodules.class_names import check_once
from rffl_pl.datamodules.hugging_face import HuggingFaceData
from rffl_pl.datamodules.labelled import Labelled, Lines, Placed
from rffl_pl.datamodules.pictures import WHITE, Channels, Pixels, told_if_dark
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.sources import Sources
from rffl_pl.datamodules.telling import fingerprint_of
from rffl_pl.errors import UserError, in_a_line
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
        predict: For ``predict``: a split instead of the test set, whose labels, if it has any, nobody reads.
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
        predict: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, **kwargs)
        self.inputs = [inputs] if isinstance(inputs, str) else list(inputs)
        if not self.inputs:
            raise UserError("Expected --data.inputs to name at least one column, but got none.")
        check_once("--data.inputs", self.inputs)
        self._scale: tuple[Tensor, Tensor] | None = None  # of numbers, once they are read
        self.split_names["predict"] = predict
        self.pixels = Pixels(image_size, channels, white)

    @property
    def columns(self) -> Mapping[str, str]:
        return dict.fromkeys(self.inputs, "--data.inputs")

    def load(self) -> Sources:
        train, val, test = self.parts()
        examples: Images | Placed
        if self._holds_images(train.rows):
            examples = self._images(train, "train")
            if dark := told_if_dark(examples, self.pixels.white):
                rank_zero_warn(dark)
        else:
            x = self._numbers(train, "train")  # in double precision: times in seconds differ in digits single has not
            self._scale = scale_of(x)
            examples = self._standardised(train, "train", x)
        return Sources(
            train=examples,
            test=self._examples(test, "test"),
            validation=None if val is None else self._examples(val, "val"),
            groups=train.groups,
        )

    @property
    def asked(self) -> Reader | None:
        return self._read_once(self.split_names["predict"], self._rows_of)

    def _rows_of(self, split: str) -> Images | Placed:
        rows = self._split(self._found(), "predict")
        if not len(rows):
            raise UserError(f"Expected rows in split {split} of --data.predict, but it has none; name another.")
        if self._scale is None and not self._holds_images(rows):
            raise UserError(
                f"Expected column {self.inputs[0]} of --data.predict to hold images, as that of --data.train, but it "
                f"holds {rows.features[self.inputs[0]]}; name another split."
            )
        part = Labelled(rows=rows, labels=[0] * len(rows), places=Lines("row", range(len(rows))))
        return self._examples(part, "predict")

    def _examples(self, part: Labelled, which: str) -> Images | Placed:
        """Images, or numbers where the training examples are such."""
        if self._scale is None:
            return self._images(part, which)
        return self._standardised(part, which, self._numbers(part, which))

    def _holds_images(self, rows: Any) -> bool:
        return len(self.inputs) == 1 and type(rows.features[self.inputs[0]]).__name__ == "Image"

    def _images(self, part: Labelled, which: str) -> Images:
        return Images(part, self.inputs[0], self.pixels, self.option_of(which))

    def _standardised(self, part: Labelled, which: str, numbers: Tensor) -> Placed:
        """Inputs by the means and deviations of the training examples."""
        assert self._scale is not None
        mean, deviation = self._scale
        if numbers.shape[1:] != mean.shape:
            raise UserError(
                f"Expected {self.option_of(which)} to have inputs of shape {list(mean.shape)}, as the training "
                f"examples, but they have {list(numbers.shape[1:])}; name another split, or mend its columns."
            )
        inputs = ((numbers - mean) / deviation).float()
        return Placed(inputs, torch.tensor(part.labels), places=part.places)

    def _numbers(self, part: Labelled, which: str) -> Tensor:
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
            self._check_finite(columns[-1], name, part, which)
        return columns[0] if len(columns) == 1 else torch.cat([column.flatten(1) for column in columns], dim=1)

    def _check_finite(self, numbers: Tensor, column: str, part: Labelled, which: str) -> None:
        """See that all numbers ``[n, ...]`` of a column are, by the numbers that rows have where somebody looks."""
        unfit = ~numbers.flatten(1).isfinite().all(1)
        if unfit.any():
            first = part.places[int(unfit.nonzero()[0])]
            raise UserError(
                f"Expected finite numbers in column {column} of --data.inputs, but {first} of "
                f"{self.option_of(which)} has NaN or infinity ({int(unfit.sum())} of {len(numbers)} rows have); leave "
                "such rows out or mend them."
            )


def scale_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every entry of examples ``[n, ...]``, 1 of one that never changes.

    NumPy sums alike with any number of threads, which torch does not.
    """
    if not len(x):
        return torch.zeros(x.shape[1:]), torch.ones(x.shape[1:])
    low, high = x.amin(0), x.amax(0)
    power = np.frexp(torch.maximum(high, -low).numpy())[1]  # beside which squares neither overflow nor vanish
    scaled = np.ldexp(x.numpy(), -power)
    mean = scaled.mean(0)
    scaled -= mean
    deviation = np.sqrt(np.square(scaled, out=scaled).mean(0))
    mean, deviation = (torch.as_tensor(np.ldexp(of, power)) for of in (mean, deviation))
    return mean, deviation.where(high > low, 1.0)


class Images(Dataset[tuple[Tensor, int]]):
    """The images of one part, decoded one at a time.

    Args:
        part: The rows and their classes; whoever saved them may have read them as bytes, or as tensors.
        column: The column of images.
        pixels: Makes an input of an image.
        option: Which names the split that they are of, for messages.
    """

    exact_targets = True
    """Classes are surely those of the examples, so that no image has to be decoded to check them."""

    def __init__(self, part: Labelled, column: str, pixels: Pixels, option: str) -> None:
        decoded = replace(part.rows.features[column], decode=True)
        rows = part.rows.select_columns([column]).with_format(None)
        self.rows = rows.cast_column(column, decoded)
        self._stored = rows.cast_column(column, replace(decoded, decode=False))
        self.column, self.pixels, self.option = column, pixels, option
        self.places = part.places
        self.targets = torch.tensor(part.labels)

    @cached_property
    def fingerprint(self) -> str:
        """Of the bytes of some images, as they are stored."""
        return fingerprint_of([str(len(self)).encode()], self)

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
                f"Expected an image in column {self.column} of --data.inputs in every row, but {self.places[index]} of "
                f"{self.option} cannot be read ({in_a_line(error)}); mend it or leave it out."
            ) from error
