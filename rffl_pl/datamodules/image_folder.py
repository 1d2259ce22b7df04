"""Your own images in folders."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

import PIL.features
import PIL.Image
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torchvision.datasets import ImageFolder as TorchvisionImageFolder

from rffl_pl.datamodules.base import FederatedDataModule
from rffl_pl.datamodules.class_names import given_classes
from rffl_pl.datamodules.inputs import spread
from rffl_pl.datamodules.pictures import Channels, Pixels
from rffl_pl.datamodules.sources import HARM, Sources
from rffl_pl.datamodules.splits import OWN
from rffl_pl.datamodules.telling import LOOKED_AT, beginning_of, fingerprint_of
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

FORMATS = (".jpg", ".jpeg", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm") + (
    (".avif",) if "avif" in PIL.features.get_supported_modules() else ()
)
"""What the names of images end in, whatever their case."""


class ImageFolder(FederatedDataModule):
    """Your own images in folders ``train`` and ``test``, and ``val`` if there is one, with a folder per class in each.

    With ``--data.split OWN`` ``train`` has a folder per participant, named by its number, and in it those of the
    classes that it has images of. Each is read by the rank that hosts the participant and need not be anywhere else;
    ``test`` and ``val`` are the same everywhere, or with ``--data.own_test true`` made like ``train``.

    Images are files that end in ``.jpg``, ``.jpeg``, ``.jfif``, ``.png``, ``.gif``, ``.bmp``, ``.tif``, ``.tiff``,
    ``.webp``, ``.ppm`` or ``.pgm``, and in ``.avif`` where Pillow reads that; of several pictures in a file the first
    counts, and files and folders whose names begin with a dot do not. A warning says how many other files there are; a
    class folder that has only such is refused.

    Images are read as they are needed, so that not all need to fit into memory; ``num_workers`` processes read ahead.
    The shorter side is brought to ``image_size``, the middle of the longer one kept; values lie in -1 .. 1. Of greys
    of 16 bits the upper 8 count, so that 65535 is white; floats, and whole numbers beyond, are refused.

    Args:
        federation: Who takes part.
        folder: Where ``train`` and ``test`` lie; the names of the folders in them are the classes, with ``OWN`` those
            of ``test``.
        own_test: Whether ``test``, and ``val`` if there is one, have a folder per participant too: each is measured on
            images of its own.
        classes: The names of all classes, in their order, where no folder that all read has all of them; those that
            YAML takes for something else in quotes, ``['yes', 'no']`` or ``['007', '008']``.
        image_size: Height and width of the network's inputs in pixels.
        channels: ``rgb`` or ``grey``: three channels or one.
        kwargs: See `FederatedDataModule`.

    Raises:
        UserError: If an argument is out of range, in `setup` if a folder is missing, has no images or other classes
            than ``train``, or is there twice by a link, and from loaders with the name of an image that cannot be read.
    """

    num_classes = 0
    places = ("folder",)
    validation_remedy = "put them into a folder val of --data.folder, or "

    def __init__(
        self,
        federation: Federation,
        *,
        folder: str,
        own_test: bool = False,
        classes: list[str | int | float | bool] | None = None,
        image_size: int = 32,
        channels: Channels = "rgb",
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, **kwargs)
        self.folder = Path(os.path.expanduser(folder))
        self.pixels = Pixels(image_size, channels)
        self.own_test, self.given_classes = own_test, given_classes(classes)
        self._unread: list[str] = []
        if own_test and not isinstance(self.split, OWN):
            raise UserError(
                f"Expected --data.split OWN with --data.own_test true, but got {type(self.split).__name__}; everybody "
                "who is measured on images of its own trains on such too."
            )
        if own_test and self.given_classes is None:
            raise UserError(
                "Expected --data.classes with --data.own_test true, but got none; give all classes there are, for "
                "instance --data.classes '[cat, dog]': nobody reads everybody's folders."
            )

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if not self._unread:
            return
        warn = warnings.warn if isinstance(self.split, OWN) else rank_zero_warn  # of its own files a rank alone knows
        warn(
            f"{len(self._unread)} files in class folders of --data.folder are not read, {self._unread[0]} for one; "
            f"images are those that end in {', '.join(FORMATS)}.",
            stacklevel=2,
        )
        self._unread = []

    def load(self) -> Sources:
        if not self.folder.is_dir():
            self._read("train", None)
        parts = ["train", "test", *(["val"] if (self.folder / "val").is_dir() else [])]
        own = {"train": isinstance(self.split, OWN), "test": self.own_test, "val": self.own_test}
        self._check_apart({part: self._places_of(part, own[part]) for part in parts})
        common = {part: self._read(part, self.given_classes) for part in parts if not own[part]}
        self.class_names = self.given_classes or self._classes_of(*common.values())
        self.num_classes = len(self.class_names)
        read = {part: partial(self._own_images, part) for part in parts} | common
        return Sources(train=read["train"], test=read["test"], validation=read.get("val"))

    def _places_of(self, part: str, own: bool) -> dict[str, None]:
        """Where its folders lie, or everybody's, and the class folders in them, without links."""
        folders = [self.folder / part / str(i) for i in range(self.federation.total)] if own else [self.folder / part]
        return dict.fromkeys(os.path.realpath(place) for folder in folders for place in (folder, *folder.glob("*/")))

    def _check_apart(self, places: Mapping[str, Iterable[str]]) -> None:
        """See that no folder, whosever it is, is of two parts."""
        of: dict[str, str] = {}
        for part, found in places.items():
            both = next((place for place in found if place in of), None)
            if both is not None:
                raise UserError(
                    f"Expected {of[both]} and {part} of --data.folder {self.folder} to have folders of their own, but "
                    f"both have {both}; {HARM[of[both]]}; take the link away."
                )
            of |= dict.fromkeys(found, part)

    def _own_images(self, part: str, participant: int) -> TorchvisionImageFolder:
        """Those of a participant's own."""
        return self._read(f"{part}/{participant}", self.class_names)

    def _classes_of(self, first: TorchvisionImageFolder, *others: TorchvisionImageFolder) -> tuple[str, ...]:
        """Those of the first folder, which the others have too."""
        if len(first.classes) < 2:
            raise UserError(
                f"Expected at least two class folders in {first.root} of --data.folder, but there is "
                f"{first.classes[0]} alone."
            )
        for other in others:
            self._compare(first, other)
        return tuple(first.classes)

    def _read(self, part: str, classes: Sequence[str] | None) -> TorchvisionImageFolder:
        folder = self.folder / part
        if not folder.is_dir():
            missing = part if self.folder.is_dir() else "the folder itself"
            parts = "train/0, test/0 and so on for every participant," if self.own_test else "train and test"
            raise UserError(
                f"Expected --data.folder {self.folder} to have the folders {parts} with a folder per class in each, "
                f"but {missing} is missing."
            )
        try:
            images = _Images(folder, classes, self._whose_classes, loader=partial(_input, self.pixels))
        except (FileNotFoundError, PermissionError) as error:
            raise UserError(
                f"Expected {folder} of --data.folder to have images in a folder per class, but torchvision says: "
                f"{' '.join(str(error).split())}"
            ) from error
        self._unread += images.unread
        return images

    @property
    def _whose_classes(self) -> str:
        """Where classes come from that some folders may lack."""
        return "--data.classes" if self.given_classes else "those of test, without --data.own_test true"

    @staticmethod
    def _compare(train: TorchvisionImageFolder, other: TorchvisionImageFolder) -> None:
        unequal = sorted(set(train.classes) ^ set(other.classes))
        if unequal:
            has, lacks = (train, other) if unequal[0] in train.classes else (other, train)
            raise UserError(
                f"Expected the same class folders in {train.root} and {other.root} of --data.folder, but "
                f"{unequal[0]} is in {has.root} and not in {lacks.root} ({len(unequal)} differ)."
            )


class _Images(TorchvisionImageFolder):  # type: ignore[misc]  # torchvision has no types
    """The images of a folder; of given classes some may have none, else those there are."""

    exact_targets = True
    """None need be decoded to see it, of each of many participants."""

    def __init__(self, folder: Path, classes: Sequence[str] | None, whose: str, **options: Any) -> None:
        self._given, self._whose = classes, whose
        self.unread: list[str] = []
        super().__init__(str(folder), **options)

    @cached_property
    def fingerprint(self) -> str:
        """Of all names below the folder, wherever that lies, and of the bytes of some files."""
        names = (os.fsencode(normalize("NFC", _below(self.root, path))) for path, _ in self.samples)
        some = spread(len(self.samples), LOOKED_AT).tolist()
        return fingerprint_of(names, (_bytes_of(self.samples[i][0]) for i in some))

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        found = [name for name in super().find_classes(directory)[0] if not name.startswith(".")]
        if not found:
            raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
        if self._given is None:
            return found, {name: number for number, name in enumerate(found)}
        unknown = sorted({*found} - {*self._given})
        if unknown:
            raise UserError(
                f"Expected the class folders in {directory} of --data.folder to be among {self._whose}, "
                f"{', '.join(self._given)}, but there is {unknown[0]} ({len(unknown)} are not)."
            )
        return [*self._given], {name: number for number, name in enumerate(self._given)}

    def make_dataset(self, directory: str, class_to_idx: dict[str, int], **_: Any) -> list[tuple[str, int]]:
        """Every image with its class, in torchvision's order; notes the other files, which torchvision says nothing of.

        Raises:
            UserError: If a class has other files alone, or no images at all where none of its classes may, or if a link
                leads to a folder that is there without it.
        """
        samples, known = [], {os.path.realpath(directory): directory}
        for name in sorted(class_to_idx):
            files = _files(os.path.join(directory, name), known)
            images = [file for file in files if _is_image(file)]
            others = [file for file in files if not _is_image(file)]
            if not images and (others or self._given is None):
                raise UserError(
                    f"Expected class folder {name} in {directory} of --data.folder to have images, files that end in "
                    f"{', '.join(FORMATS)}, but it has {f'others alone, say {others[0]}' if others else 'none'}; put "
                    "some there, or take the folder away."
                )
            self.unread += others
            samples += [(image, class_to_idx[name]) for image in images]
        return samples


def _files(folder: str, known: dict[str, str]) -> list[str]:
    """All below a folder but hidden ones, in torchvision's order; none where there is no such folder.

    Args:
        folder: Where they lie.
        known: The folders that have been read, by their places without links; those below this one are added.

    Raises:
        UserError: If one is read again: by a link that leads upwards images were there forty times.
    """
    below = []
    for folder_below, folders, names in os.walk(folder, followlinks=True):
        folders[:] = (name for name in folders if not name.startswith("."))  # as .ipynb_checkpoints, of images as well
        place = os.path.realpath(folder_below)
        if place in known:
            raise UserError(
                f"Expected every folder below --data.folder once, but {folder_below} is {known[place]} again; take the "
                "link away."
            )
        known[place] = folder_below
        below.append((folder_below, [name for name in names if not name.startswith(".")]))
    return [os.path.join(place, name) for place, names in sorted(below) for name in sorted(names)]


def _below(folder: str, path: str) -> str:
    """A path from a folder on, the same on every system."""
    return path.removeprefix(folder).lstrip(os.sep).replace(os.sep, "/")


def _bytes_of(path: str) -> bytes:
    """A file as it is stored; nothing of one that cannot be read, as whoever decodes it says."""
    try:
        with open(path, "rb") as file:
            return beginning_of(file)
    except OSError:
        return b""


def _is_image(file: str) -> bool:
    """By its name, as torchvision has it."""
    return file.lower().endswith(FORMATS)


def _input(pixels: Pixels, path: str) -> Tensor:
    """The network's input of an image's file."""
    try:
        with PIL.Image.open(path) as image:
            return pixels(image)
    except Exception as error:  # whatever a decoder can meet in a damaged file
        raise UserError(
            f"Expected images below --data.folder, but {path} cannot be read ({type(error).__name__}: "
            f"{' '.join(str(error).split())}); mend it or take it out."
        ) from error
