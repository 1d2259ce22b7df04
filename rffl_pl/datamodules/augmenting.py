"""What changes training examples at random whenever they are trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from rffl_pl.configured import Configured
from rffl_pl.datamodules.reading import Batch, Batches, Reader
from rffl_pl.errors import UserError, check_number, ones_own, path_of
from rffl_pl.functional.fingerprints import stays
from rffl_pl.functional.streams import Stream

OPTION = "--data.augment"


class Augmentation(Configured, ABC):
    """Changes training examples at random. Your own is a subclass with `__call__`.

    It is called with every mini-batch of local training, which draws anew each time, from torch's, NumPy's or Python's
    own streams: they are the participant's and the round's, the same on any number of ranks. One object serves all
    participants of a process, and keeps nothing from one call to the next. What is validated, tested or predicted, what
    a server trains on itself, and what the losses are of that it weighs by stays as it is.
    """

    _group: ClassVar[str] = OPTION

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Other inputs of the same shape and type.

        Args:
            x: Inputs of a mini-batch ``[B, ...]``, as the network takes them; they may be changed in place.
        """


class CropFlip(Augmentation):
    """Moves every image by up to some pixels and mirrors it with probability 1/2 (He et al. 2016, section 4.2).

    Each image is framed by zeros, the mean colour where images are standardised; of what comes of it a part as large as
    the image is cut out at a place drawn uniformly, and with probability 1/2 its left becomes its right.

    Args:
        padding: Width of the frame in pixels, hence the farthest an image moves; 0 moves none.
        flip: Whether images are mirrored; digits and letters had better not be.

    Raises:
        UserError: If ``padding`` is out of range or nothing is to be done, and when called with anything but images.
    """

    def __init__(self, *, padding: int = 4, flip: bool = True) -> None:
        check_number(f"{OPTION}.padding", padding, 0, 1 << 12, "try 4")
        if not padding and not flip:
            raise UserError(
                f"Expected {OPTION} CropFlip to move images or to mirror them, but got padding 0 and flip false; leave "
                f"{OPTION} out."
            )
        self.padding, self.flip = padding, flip

    def __call__(self, x: Tensor) -> Tensor:
        if x.dim() != 4:
            raise UserError(
                f"Expected images [channels, height, width] for {OPTION} CropFlip, but examples have shape "
                f"{list(x.shape[1:])}; leave it out."
            )
        count, channels, height, width = x.shape
        top, left = torch.randint(2 * self.padding + 1, (2, count))
        mirrored = torch.rand(count) < (0.5 if self.flip else 0.0)
        rows = top.unsqueeze(1) + torch.arange(height)
        across = torch.arange(width).expand(count, width)
        columns = left.unsqueeze(1) + torch.where(mirrored.unsqueeze(1), width - 1 - across, across)
        framed = pad(x, (self.padding,) * 4)
        image, channel = torch.arange(count)[:, None, None, None], torch.arange(channels)[None, :, None, None]
        return framed[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


class Augmented(Batches):
    """Mini-batches that are changed at random: no number of an example says what they hold.

    Args:
        reader: Reads them as they are.
        order: See `Batches`.
        augment: What changes them.
    """

    def __init__(self, reader: Reader, order: Sequence[Tensor], augment: Augmentation) -> None:
        super().__init__(reader, order)
        self.augment = augment

    @property
    def tensors(self) -> None:
        """None, since no tensor holds the inputs as they are trained on."""

    @property
    def prepare(self) -> None:
        """None, as there are no `tensors` to prepare."""

    def __iter__(self) -> Iterator[Batch]:
        return ((changed(self.augment, x), y) for x, y in super().__iter__())


def changed(augment: Augmentation, x: Tensor) -> Tensor:
    """What an augmentation makes of inputs ``[B, ...]``.

    Raises:
        UserError: If it fails, or what it makes are no such inputs.
    """
    shape, dtype = x.shape, x.dtype
    with torch.no_grad(), ones_own(augment, OPTION, f"change inputs {list(shape)}"):
        found = augment(x)
    if not isinstance(found, Tensor) or found.shape != shape or found.dtype != dtype:
        got = f"{list(found.shape)} {found.dtype}" if isinstance(found, Tensor) else type(found).__name__
        raise UserError(
            f"Expected {OPTION} {path_of(type(augment))} to make inputs of the same shape and type, of {list(shape)} "
            f"{dtype}, but got {got}; return such a tensor."
        )
    return found


def check_made(augment: object) -> None:
    """See that something is an augmentation, if it is anything.

    Raises:
        UserError: If it is not.
    """
    if augment is not None and not isinstance(augment, Augmentation):
        raise UserError(
            f"Expected {OPTION} to be an instance of Augmentation, CropFlip() or one of your own, but got {augment}."
        )


def _drawn_alike(augment: Augmentation, x: Tensor) -> Tensor:
    """What an augmentation makes of inputs, drawing the same each time; NaN as 0."""
    with Stream(1):
        return changed(augment, x.clone()).nan_to_num()


def check_augment(augment: Augmentation, x: Tensor) -> None:
    """Try an augmentation on inputs ``[B, ...]``, which may be changed.

    Raises:
        UserError: If it does not take them, or remembers what it did.
    """
    called = f"{OPTION} {path_of(type(augment))}"
    with Stream(0):
        found = changed(augment, x)  # the first time it may prepare something for good
        with stays(called, augment, "have it draw from the surrounding streams, and keep nothing"):
            changed(augment, found.clone())
    once, again = (_drawn_alike(augment, found) for _ in range(2))
    if not torch.equal(once, again):
        raise UserError(
            f"Expected {called} to draw from the streams around it, torch's, NumPy's or Python's own, but it makes "
            "something else of the same inputs where these are the same: results would depend on who shares a process; "
            "leave generators of its own out."
        )
    if found.is_floating_point() and not found.isfinite().all():
        raise UserError(f"Expected {called} to make finite inputs, but got NaN or infinity; mend it.")
