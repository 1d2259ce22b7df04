"""Folders of images that people have otherwise than they are expected, or that are left out."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from rffl_pl.errors import UserError
from tests.datamodules.test_image_folder import divided, folder, made, write_part

__all__ = ["divided", "folder"]  # fixtures

OWN: dict[str, Any] = {"split": "OWN"}


def unreadable(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a folder be one that cannot be read: who tests as root reads every other."""
    scan = os.scandir

    def scanned(path: Any = ".") -> Any:
        if os.fspath(path) == str(place):
            raise PermissionError(13, "Permission denied", str(place))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scanned)


@pytest.mark.parametrize("name", ["train/cat", "train/cat/more", "test/dog"])
def test_a_folder_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Its images dropped out of training without a word."""
    (folder / "train" / "cat" / "more").mkdir()
    shutil.copy(folder / "train" / "cat" / "0.png", folder / "train" / "cat" / "more" / "0.png")
    unreadable(folder / name, monkeypatch)
    with pytest.raises(UserError) as caught:
        made(folder)
    assert str(caught.value) == (
        f"Expected every folder below --data.folder to be one that can be read, but {folder / name} cannot "
        "(Permission denied); see to its permissions, or take it away."
    )


def test_a_disk_that_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no missing file, and ends in a sentence all the same."""
    scan = os.scandir

    def failing(path: Any = ".") -> Any:
        if os.fspath(path) == str(folder / "train"):
            raise OSError(5, "Input/output error", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(UserError, match=r"train of --data.folder to have images .*Input/output error"):
        made(folder)


def test_a_class_that_is_no_text(folder: Path) -> None:
    """Its name ended in a traceback where it is written, after training."""
    for part in ("train", "test"):
        os.rename(folder / part / "cat", os.fsencode(folder / part) + b"/caf\xe9")
    with pytest.raises(UserError) as caught:
        made(folder)
    assert str(caught.value) == (
        f"Expected the names of class folders in {folder}/train of --data.folder to be UTF-8, but caf\\xe9 is not; "
        "rename it."
    )


NAME = "Bär"
APART = normalize("NFD", NAME)


def test_a_class_as_other_systems_write_it(folder: Path) -> None:
    """What macOS has packed is another class than the same name given, or written elsewhere."""
    assert APART != NAME
    (folder / "train" / "cat").rename(folder / "train" / APART)
    (folder / "test" / "cat").rename(folder / "test" / NAME)
    for options in ({}, {"classes": [NAME, "dog"]}):
        data = made(folder, **options)
        assert data.class_names == (NAME, "dog")
        assert (sum(data.shard_sizes) + len(data.held_out), data.test_sample) == (60, (20, 20))
    write_part(folder / "train", 3, (NAME,))
    with pytest.raises(UserError, match=f"one folder for each class in {folder}/train .* two called {NAME}, whose"):
        made(folder)


def said_of(folder: Path, **options: Any) -> list[str]:
    """The warnings, without blanks."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made(folder, **options)
    return [str(one.message) for one in told]


def test_a_participant_more_than_there_are(divided: Path) -> None:
    """Its images are left out in silence."""
    assert said_of(divided, **OWN) == []
    write_part(divided / "train" / "2", 3)
    write_part(divided / "train" / "3", 3)
    assert said_of(divided, **OWN) == [
        f"Folder train/2 of --data.folder {divided} is not read, since participants are numbered 0 .. 1; raise "
        "--federation.participants, or take it away."
    ]


def test_a_participant_without_a_folder(divided: Path) -> None:
    """Somebody is told to make folders train and test that are there; where nobody has one all are told of."""
    shutil.rmtree(divided / "train" / "1")
    with pytest.raises(UserError) as caught:
        made(divided, **OWN)
    assert str(caught.value) == (
        f"Expected --data.folder {divided} to have a folder train/1 for participant 1, as others have theirs, but "
        "train/1 is missing; put it there, or have fewer participants."
    )
    shutil.rmtree(divided / "train")
    write_part(divided / "train", 3)
    with pytest.raises(UserError, match="the folders train/0 and so on for every participant, and test, with a folder"):
        made(divided, **OWN)


@pytest.mark.parametrize("name", ["valid", "validation", "dev", "Val"])
def test_images_to_watch_by_another_name(folder: Path, name: str) -> None:
    """They are not read, and a tenth of the training images is held out in their place, without a word."""
    write_part(folder / name, 4)
    assert said_of(folder) == [
        f"Folder {name} of --data.folder {folder} is not read; call it val to have it watched and validated on."
    ]
    write_part(folder / "val", 4)
    assert said_of(folder) == []
