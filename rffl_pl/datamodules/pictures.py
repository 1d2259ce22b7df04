"""From a picture of any size and kind to a network's input."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from PIL.Image import Image
from torch import Tensor
from torchvision.transforms import v2

from rffl_pl.errors import UserError, check_number

Channels = Literal["rgb", "grey"]


class Pixels:
    """Makes inputs ``[3 or 1, size, size]`` from -1 to 1 of pictures.

    The shorter side is brought to ``size``, then the middle of the longer one is kept.

    Args:
        size: Height and width in pixels.
        channels: ``rgb`` or ``grey``.

    Raises:
        UserError: If an argument is out of range.
    """

    def __init__(self, size: int, channels: Channels) -> None:
        check_number("--data.image_size", size, 1, 1 << 12, "try 32")
        if channels not in get_args(Channels):
            raise UserError(f"Expected --data.channels to be rgb or grey, but got {channels}.")
        self.mode = "RGB" if channels == "rgb" else "L"
        self.transform = v2.Compose(
            [
                v2.Resize(size, antialias=True),
                v2.CenterCrop(size),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * len(self.mode), [0.5] * len(self.mode)),
            ]
        )

    def __call__(self, picture: Image) -> Tensor:
        made: Tensor = self.transform(picture.convert(self.mode))
        return made.as_subclass(Tensor)  # torchvision's own kind of tensor brings nothing to a network but time
