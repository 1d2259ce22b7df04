"""From a picture of any size and kind to a network's input."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

import numpy as np
import PIL.Image
import PIL.ImageOps
import torch
from torch import Tensor
from torchvision.transforms import v2

from rffl_pl.datamodules.inputs import spread
from rffl_pl.datamodules.telling import LOOKED_AT, Stored
from rffl_pl.errors import check_number

Channels = Literal["rgb", "grey"]
_ORIENTATION = 0x0112  # of EXIF
WHITE = 65535
"""The largest value of 16 bits."""
_DARK = 16
"""Greys below white by this share are all but black, as those of 12 bits are among 16."""


class Pixels:
    """Makes inputs ``[3 or 1, size, size]`` from -1 to 1 of pictures.

    They are turned as their cameras say, and what is transparent becomes white. The shorter side is brought to
    ``size``, then the middle of the longer one is kept.

    Args:
        size: Height and width in pixels.
        channels: ``rgb`` or ``grey``.
        white: Which value is white in greys of more than 8 bits.

    Raises:
        UserError: If an argument is out of range.
    """

    def __init__(self, size: int, channels: Channels, white: int = WHITE) -> None:
        check_number("--data.image_size", size, 1, 1 << 12, "try 32")
        check_number("--data.white", white, 1, WHITE, "try 4095 for greys of 12 bits")
        self.white = white
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

    def __call__(self, picture: PIL.Image.Image) -> Tensor:
        """The input that is made of a picture.

        Raises:
            ValueError: If its values have no white, or no colours are known for its kind.
        """
        made: Tensor = self.transform(on_white(in_eight_bits(upright(picture), self.white)).convert(self.mode))
        return made.as_subclass(Tensor)  # torchvision's own kind of tensor brings nothing to a network but time


def upright(picture: PIL.Image.Image) -> PIL.Image.Image:
    """A picture as every program shows it: cameras store it as they were held, and say how in its EXIF data."""
    turned = picture.getexif().get(_ORIENTATION, 1) != 1
    return PIL.ImageOps.exif_transpose(picture) if turned else picture


def on_white(picture: PIL.Image.Image) -> PIL.Image.Image:
    """A picture with what is transparent in white; Pillow's `convert` shows the colours that nobody sees there."""
    if not picture.has_transparency_data:
        return picture
    seen = picture.convert("RGBA")
    return PIL.Image.alpha_composite(PIL.Image.new("RGBA", seen.size, "white"), seen)


def in_eight_bits(picture: PIL.Image.Image, white: int) -> PIL.Image.Image:
    """A picture with at most 8 bits for a value: of 16 the upper 8, as Pillow itself takes them of colours.

    Where another value is white, values are spread over what lies below it, and above it all are white.

    Its `convert` makes 255 of every grey above that instead, which leaves one white picture for all. A grey that stands
    for what is transparent is told from its neighbours by all 16.

    Raises:
        ValueError: If its values are floats or leave 0 .. 65535: nothing says which one is white.
    """
    if picture.mode == "F":
        raise ValueError("its values are floats, which have no white; save it with 8 or 16 bits")
    if not picture.mode.startswith("I"):
        return picture
    values = np.asarray(picture.convert("I"))
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise ValueError(f"its values lie in {low} .. {high}, not in 0 .. 65535; save it with 8 or 16 bits")
    times, by = (256, white + 1) if white > 254 else (255, white)  # white is 255, also where there are fewer greys
    eight = values >> 8 if white == WHITE else np.minimum(values, white) * times // by
    grey = PIL.Image.fromarray(eight.astype(np.uint8))
    if "transparency" in picture.info:
        grey.putalpha(PIL.Image.fromarray(255 * (values != picture.info["transparency"]).astype(np.uint8)))
    return grey


def told_if_dark(pictures: Stored, white: int) -> str | None:
    """The sentence on greys of more than 8 bits, by some pictures, of which none comes near white; else None.

    Only such greys are decoded.
    """
    some = spread(len(pictures), LOOKED_AT).tolist()
    largest, dark = 0, (white + 1) // _DARK
    for i in some:
        largest = max(largest, _largest_grey(pictures, i))
        if largest >= dark:
            return None
    if not largest:
        return None
    return (
        f"Of {len(some)} training images those in greys of more than 8 bits have values up to {largest}, where {white} "
        f"is white: they are all but black; say which value is white, --data.white {2 ** largest.bit_length() - 1} "
        "for instance."
    )


def _largest_grey(pictures: Stored, index: int) -> int:
    """The largest value of a grey of more than 8 bits; 0 of other pictures, and of one that cannot be read.

    Whoever reads that one says so.
    """
    with suppress(Exception), pictures.opened(index) as file, PIL.Image.open(file) as picture:
        if picture.mode.startswith("I"):
            return int(np.asarray(picture.convert("I")).max())
    return 0
