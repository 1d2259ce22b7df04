"""Your own images in folders."""

from __future__ import annotations

import os
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import PIL.Image
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from rffl_pl.datamodules.base import FederatedDataModule
from rffl_pl.datamodules.class_folders import FORMATS, ClassFolders, Unlabelled, is_image
from rffl_pl.datamodules.class_names import given_classes
from rffl_pl.datamodules.pictures import WHITE, Channels, Pixels, told_if_dark
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.sources import HARM, Sources
from rffl_pl.datamodules.splits import OWN
from rffl_pl.errors import UserError, in_a_line, words_of
from rffl_pl.federation import Federation


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
    of 16 bits the upper 8 count, so that 65535 is white, unless `white` is another value; floats, and whole numbers
    beyond, are refused, and a warning says where such greys are all but black.

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
        white: Which value is white in greys of more than 8 bits: 4095 of 12 bits. Values above it are white too.
        predict_folder: For ``predict``: a folder of images, which need no labels, instead of the test set; all that are
            below it in whatever folders, by their paths.
        kwargs: See `FederatedDataModule`.

    Raises:
        UserError: If an argument is out of range, in `setup` if a folder is missing, has no images or other classes
            than ``train``, or is there twice by a link, or an image is of two parts by one, and from loaders with the
            name of an image that cannot be read.
    """

    num_classes = 0
    places = ("folder", "predict_folder")
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
        white: int = WHITE,
        predict_folder: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, **kwargs)
        self.folder = Path(os.path.expanduser(folder))
        self.pixels = Pixels(image_size, channels, white)
        self.own_test, self.given_classes = own_test, given_classes(classes)
        self.predict_folder = None if predict_folder is None else Path(os.path.expanduser(predict_folder))
        self._unread: list[str] = []
        self._told_of_dark = False
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
        self._warn_of_unread(self._unread, "in class folders of --data.folder")
        self._unread = []

    def _warn_of_unread(self, files: Sequence[str], where: str) -> None:
        if files:
            self._warn(
                f"{len(files)} files {where} are not read, {files[0]} for one; images are those that end in "
                f"{', '.join(FORMATS)}."
            )

    def _warn(self, message: str) -> None:
        """Warn on rank 0 alone, but under ``OWN`` on each rank, which alone knows its participants' files."""
        warn = warnings.warn if isinstance(self.split, OWN) else rank_zero_warn
        warn(message, stacklevel=3)

    @property
    def asked(self) -> Reader | None:
        return self._read_once(self.predict_folder, self._images_in)

    def _images_in(self, folder: Path) -> Unlabelled:
        option = "--data.predict_folder"
        asked = Unlabelled(folder, partial(_input, self.pixels, option=option), option)
        self._warn_of_unread(asked.unread, f"below {option}")
        return asked

    def load(self) -> Sources:
        if not self.folder.is_dir():
            self._read("train", None)
        parts = ["train", "test", *(["val"] if (self.folder / "val").is_dir() else [])]
        own = {"train": isinstance(self.split, OWN), "test": self.own_test, "val": self.own_test}
        self._warn_of_others([part for part in parts if own[part]])
        places = {part: self._places_of(part, own[part]) for part in parts}
        self._check_apart(places)
        self._check_images_apart(places)
        common = {part: self._read(part, self.given_classes) for part in parts if not own[part]}
        self.class_names = self.given_classes or self._classes_of(*common.values())
        self.num_classes = len(self.class_names)
        if "train" in common:
            self._warn_if_dark(common["train"])
        read = {part: partial(self._own_images, part) for part in parts} | common
        return Sources(train=read["train"], test=read["test"], validation=read.get("val"))

    def _warn_of_others(self, own: Sequence[str]) -> None:
        """Say which folders are not read, though they may well be meant to be; ``own`` are the parts by participant."""
        found = sorted(place.name for place in _folders_in(self.folder))
        watched = [name for name in found if name.lower() in _WATCHED]
        if watched and "val" not in found:
            self._warn(
                f"Folder {watched[0]} of --data.folder {self.folder} is not read; call it val to have it watched and "
                "validated on."
            )
        total = self.federation.total
        for part in own:
            numbers = _numbers_in(self.folder / part)
            if more := sorted(number for number in numbers if number >= total):
                self._warn(
                    f"Folder {part}/{more[0]} of --data.folder {self.folder} is not read, since participants are "
                    f"numbered 0 .. {total - 1}; raise --federation.participants, or take it away."
                )

    def _places_of(self, part: str, own: bool) -> dict[str, None]:
        """Real paths of a part's folder, or of everybody's if ``own``, and of the class folders in it."""
        folders = [self.folder / part / str(i) for i in range(self.federation.total)] if own else [self.folder / part]
        return dict.fromkeys(os.path.realpath(place) for folder in folders for place in (folder, *_folders_in(folder)))

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

    def _check_images_apart(self, places: Mapping[str, Mapping[str, None]]) -> None:
        """See that no image of a part is a link to one of another part, nor both to the same one."""
        links = {part: _links_in_all(found) for part, found in places.items()}
        for first, other in combinations(places, 2):
            both = _shared(links[other], links[first], places[first]) or _shared(links[first], (), places[other])
            if both is not None:
                raise UserError(
                    f"Expected {first} and {other} of --data.folder {self.folder} to have images of their own, but "
                    f"both have {both}; {HARM[first]}; take the link away."
                )

    def _own_images(self, part: str, participant: int) -> ClassFolders:
        """A participant's own images of a part."""
        images = self._read(f"{part}/{participant}", self.class_names)
        if part == "train":
            self._warn_if_dark(images)
        return images

    def _warn_if_dark(self, images: ClassFolders) -> None:
        if not self._told_of_dark and (dark := told_if_dark(images, self.pixels.white)):
            self._told_of_dark = True
            self._warn(dark)

    def _classes_of(self, first: ClassFolders, *others: ClassFolders) -> tuple[str, ...]:
        """The classes of the first folder, once it is seen that the others have the same."""
        if len(first.classes) < 2:
            raise UserError(
                f"Expected at least two class folders in {first.root} of --data.folder, but there is "
                f"{first.classes[0]} alone."
            )
        for other in others:
            self._compare(first, other)
        return tuple(first.classes)

    def _read(self, part: str, classes: Sequence[str] | None) -> ClassFolders:
        folder = self.folder / part
        if not folder.is_dir():
            self._check_participants(part)
            missing = part if self.folder.is_dir() else "the folder itself"
            parts = "train/0, test/0 and so on for every participant," if self.own_test else "train and test"
            if isinstance(self.split, OWN) and not self.own_test:
                parts = "train/0 and so on for every participant, and test,"
            raise UserError(
                f"Expected --data.folder {self.folder} to have the folders {parts} with a folder per class in each, "
                f"but {missing} is missing."
            )
        try:
            images = ClassFolders(
                folder, classes, self._whose_classes, self.folder, loader=partial(_input, self.pixels)
            )
        except OSError as error:  # as torchvision has it where there is no class, or disks and networks
            raise UserError(
                f"Expected {folder} of --data.folder to have images in a folder per class, but torchvision says: "
                f"{words_of(error)}"
            ) from error
        self._unread += images.unread
        return images

    def _check_participants(self, missing: str) -> None:
        """Say whose folder is missing, where others have theirs."""
        part, _, number = missing.partition("/")
        if number and _numbers_in(self.folder / part):
            raise UserError(
                f"Expected --data.folder {self.folder} to have a folder {missing} for participant {number}, as others "
                f"have theirs, but {missing} is missing; put it there, or have fewer participants."
            )

    @property
    def _whose_classes(self) -> str:
        """Where the list of classes comes from, for messages on a folder that lacks some."""
        return "--data.classes" if self.given_classes else "those of test, without --data.own_test true"

    @staticmethod
    def _compare(train: ClassFolders, other: ClassFolders) -> None:
        unequal = sorted(set(train.classes) ^ set(other.classes))
        if unequal:
            has, lacks = (train, other) if unequal[0] in train.classes else (other, train)
            raise UserError(
                f"Expected the same class folders in {train.root} and {other.root} of --data.folder, but "
                f"{unequal[0]} is in {has.root} and not in {lacks.root} ({len(unequal)} differ)."
            )


_WATCHED = ("val", "valid", "validation", "dev")
"""What people call the folder that is to be called ``val``, whatever the case."""


def _folders_in(folder: Path) -> list[Path]:
    """The folders in a folder; none if it cannot be read, of which whoever needs it says so."""
    try:
        return [place for place in folder.iterdir() if place.is_dir()]
    except OSError:
        return []


def _links_in_all(folders: Mapping[str, None]) -> dict[str, None]:
    """Real paths of all images in or below folders that are links."""
    outermost = (folder for folder in folders if os.path.dirname(folder) not in folders)
    return dict.fromkeys(image for folder in outermost for image in _links_in(folder))


def _links_in(folder: str) -> Iterator[str]:
    """Real paths of the images in or below one folder that are links; none if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_symlink() and is_image(entry.name):
                yield os.path.realpath(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                yield from _links_in(entry.path)


def _shared(links: Iterable[str], others: Container[str], folders: Container[str]) -> str | None:
    """The first image that others are as well, or that lies below one of some folders."""
    homes = {os.path.dirname(link) for link in links}
    inside = {home for home in homes if any(str(above) in folders for above in (Path(home), *Path(home).parents))}
    return next((link for link in links if link in others or os.path.dirname(link) in inside), None)


def _numbers_in(folder: Path) -> list[int]:
    """The numbers that folders in one are called by."""
    return [int(place.name) for place in _folders_in(folder) if place.name.isdecimal()]


def _input(pixels: Pixels, path: str, option: str = "--data.folder") -> Tensor:
    """The network's input of an image's file, below the folder of an option."""
    try:
        with PIL.Image.open(path) as image:
            return pixels(image)
    except Exception as error:  # whatever a decoder can meet in a damaged file
        raise UserError(
            f"Expected images below {option}, but {path} cannot be read ({in_a_line(error)}); mend it or take it out."
        ) from error
