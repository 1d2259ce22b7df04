"""Images that stay the bytes they came as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import TensorDataset


class ByteImages(TensorDataset):
    """Images of bytes with their classes, standardised when they are read: a quarter of the memory of float32.

    An index gives one image ``[channels, height, width]`` and its class, a tensor of B indices a batch of them.

    Args:
        pixels: ``[n, channels, height, width]`` uint8.
        classes: ``[n]``.
        standardise: Makes float32 inputs of bytes ``[..., channels, height, width]``.
    """

    def __init__(self, pixels: Tensor, classes: Tensor, standardise: Callable[[Tensor], Tensor]) -> None:
        super().__init__(pixels, classes)
        self.standardise = standardise

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        pixels, classes = self.tensors
        return self.standardise(pixels[index]), classes[index]


class Standardise:
    r""":math:`(b / 255 - \mu_c) / \sigma_c` for bytes b of channel c, in a frame of zeros.

    Args:
        pixels: The images by which they are standardised, ``[n, channels, height, width]`` uint8.
        frame: Width of the frame, which counts in mean and deviation.

    Attributes:
        mean: :math:`\mu_c`, ``[channels, 1, 1]``.
        deviation: :math:`\sigma_c`, with n - 1, ``[channels, 1, 1]``.
    """

    def __init__(self, pixels: Tensor, frame: int = 0) -> None:
        self.frame = frame
        count, channels, height, width = pixels.shape
        outside = count * ((height + 2 * frame) * (width + 2 * frame) - height * width)
        values = (torch.arange(256).float() / 255).double()
        found = []
        for channel in range(channels):  # how often every byte occurs says it exactly, without a copy in float32
            often = torch.bincount(pixels[:, channel].flatten(), minlength=256).double()
            often[0] += outside
            mean = often.dot(values) / often.sum()
            variance = often.dot((values - mean) ** 2) / (often.sum() - 1)
            found.append(torch.stack([mean, variance.sqrt()]))
        self.mean, self.deviation = torch.stack(found, 1).float()[..., None, None]
        self._placed = {self.mean.device: (self.mean, self.deviation)}

    def __eq__(self, other: object) -> bool:
        """Whether it makes the same inputs of the same bytes."""
        return (
            isinstance(other, Standardise)
            and self.frame == other.frame
            and torch.equal(self.mean, other.mean)
            and torch.equal(self.deviation, other.deviation)
        )

    def __call__(self, pixels: Tensor) -> Tensor:
        if pixels.device not in self._placed:  # once: every copy to a GPU would have the host wait for it
            self._placed[pixels.device] = self.mean.to(pixels.device), self.deviation.to(pixels.device)
        mean, deviation = self._placed[pixels.device]
        framed = pad(pixels, (self.frame,) * 4) if self.frame else pixels
        return framed.float().div_(255).sub_(mean).div_(deviation)
