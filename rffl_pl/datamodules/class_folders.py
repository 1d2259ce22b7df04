"""Images in a folder per class."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, Any
from unicodedata import normalize

import PIL.features
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder as TorchvisionImageFolder

from rffl_pl.datamodules.telling import fingerprint_of
from rffl_pl.errors import UserError

FORMATS = (".jpg", ".jpeg", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm") + (
    (".avif",) if "avif" in PIL.features.get_supported_modules() else ()
)
"""What the names of images end in, whatever their case."""


class ClassFolders(TorchvisionImageFolder):  # type: ignore[misc]  # torchvision has no types
    """The images of a folder; of given classes some may have none, else those there are.

    Names that only differ in how Unicode writes a character, as macOS and other systems do, are one class.

    Args:
        folder: Where the class folders lie.
        classes: The names of all classes, if they are given.
        whose: Where these come from, for messages.
        base: The folder that `places` are told from.
        options: Of torchvision's class.

    Attributes:
        unread: The files that are no images.

    Raises:
        UserError: If a class is another than those given, or has two folders or a name that is no UTF-8, has other
            files alone, or no images at all where none of the classes may; if a link leads to a folder that is there
            without it, or one cannot be read.
    """

    exact_targets = True
    """Classes are surely those of the examples, so that no image has to be decoded to check them."""

    def __init__(self, folder: Path, classes: Sequence[str] | None, whose: str, base: Path, **options: Any) -> None:
        self._given, self._whose, self._base = classes, whose, str(base)
        self._folders: dict[str, str] = {}  # by the class
        self.unread: list[str] = []
        super().__init__(str(folder), **options)

    @cached_property
    def fingerprint(self) -> str:
        """Of all names below the folder, wherever that lies, and of the bytes of some files."""
        names = (os.fsencode(normalize("NFC", below(self.root, path))) for path, _ in self.samples)
        return fingerprint_of(names, self)

    @cached_property
    def places(self) -> list[str]:
        """Where each image lies."""
        return [shown(below(self._base, path)) for path, _ in self.samples]

    def opened(self, index: int) -> IO[bytes]:
        """The file of an image."""
        return open(self.samples[index][0], "rb")

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        self._folders = _folders_of(directory, super().find_classes(directory)[0])
        found = sorted(self._folders)
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
        for name in sorted(self._folders):
            files = files_below(os.path.join(directory, self._folders[name]), known)
            images = [file for file in files if is_image(file)]
            others = [file for file in files if not is_image(file)]
            if not images and (others or self._given is None):
                raise UserError(
                    f"Expected class folder {name} in {directory} of --data.folder to have images, files that end in "
                    f"{', '.join(FORMATS)}, but it has {f'others alone, say {others[0]}' if others else 'none'}; put "
                    "some there, or take the folder away."
                )
            self.unread += others
            samples += [(image, class_to_idx[name]) for image in images]
        return samples


class Unlabelled(Dataset[tuple[Tensor, int]]):
    """All images below a folder, whatever folders they lie in, by their paths; of no class, which is number 0.

    Args:
        folder: Where they lie.
        loader: Makes an input of a file.
        option: Which names the folder, for messages.

    Attributes:
        places: Where each lies, from the folder on.
        unread: The files that are no images.

    Raises:
        UserError: If there is no such folder, or no image in it, or a folder below it cannot be read.
    """

    def __init__(self, folder: Path, loader: Callable[[str], Tensor], option: str) -> None:
        if not folder.is_dir():
            raise UserError(f"Expected {option} to be a folder of images, but there is no folder {folder}.")
        files = sorted(files_below(str(folder), {}, option))
        self.loader = loader
        self.paths = [file for file in files if is_image(file)]
        self.unread = [file for file in files if not is_image(file)]
        self.places = [shown(below(str(folder), path)) for path in self.paths]
        if not self.paths:
            raise UserError(
                f"Expected {option} {folder} to have images, files that end in {', '.join(FORMATS)}, but it has none; "
                "put some there, or name another folder."
            )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.loader(self.paths[index]), 0


def _folders_of(directory: str | Path, names: Sequence[str]) -> dict[str, str]:
    """Class folders by their classes.

    Raises:
        UserError: If two are of one class, or one cannot be written as text.
    """
    folders: dict[str, str] = {}
    for name in names:
        if name.startswith("."):
            continue
        if (written := shown(name)) != name:
            raise UserError(
                f"Expected the names of class folders in {directory} of --data.folder to be UTF-8, but {written} is "
                "not; rename it."
            )
        called = normalize("NFC", name)
        if called in folders:
            raise UserError(
                f"Expected one folder for each class in {directory} of --data.folder, but there are two called "
                f"{called}, whose names only differ in how Unicode writes a character; put their images into one."
            )
        folders[called] = name
    return folders


def files_below(folder: str, known: dict[str, str], option: str = "--data.folder") -> list[str]:
    """All below a folder but hidden ones, in torchvision's order.

    Args:
        folder: Where they lie.
        known: The folders that have been read, by their places without links; those below this one are added.
        option: Which names the folder, for messages.

    Raises:
        UserError: If one cannot be read, or is read again: by a link that leads upwards images were there forty times.
    """

    def unreadable(error: OSError) -> None:
        remedy = "see to its permissions" if isinstance(error, PermissionError) else "mend it"
        raise UserError(
            f"Expected every folder below {option} to be one that can be read, but {error.filename} cannot "
            f"({error.strerror}); {remedy}, or take it away."
        ) from error

    found = []
    for place, folders, names in os.walk(folder, onerror=unreadable, followlinks=True):
        folders[:] = (name for name in folders if not name.startswith("."))  # as .ipynb_checkpoints, of images as well
        real = os.path.realpath(place)
        if real in known:
            raise UserError(
                f"Expected every folder below {option} once, but {place} is {known[real]} again; take the link away."
            )
        known[real] = place
        found.append((place, [name for name in names if not name.startswith(".")]))
    return [os.path.join(place, name) for place, names in sorted(found) for name in sorted(names)]


def below(folder: str, path: str) -> str:
    """A path from a folder on, the same on every system."""
    return path.removeprefix(folder).lstrip(os.sep).replace(os.sep, "/")


def shown(name: str) -> str:
    """A file's name as text, with backslashes for bytes that are no UTF-8."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def is_image(file: str) -> bool:
    """By its name, as torchvision has it."""
    return file.lower().endswith(FORMATS)
