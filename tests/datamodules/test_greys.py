"""Greys of more than 8 bits that use few of them, as cameras of 12 bits make them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rffl_pl.callbacks.resuming import warn_of_changes
from rffl_pl.datamodules import HFDataset, ImageFolder
from rffl_pl.datamodules.pictures import Pixels
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.datamodules.test_image_folder import examples

VALUES = np.array([[0, 1023], [2048, 4095]])


def grey(largest: int) -> Image.Image:
    return Image.fromarray((VALUES * largest // 4095).astype(np.uint16))


def write(folder: Path, largest: int, each: int = 6) -> Path:
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / part / name).mkdir(parents=True)
            for i in range(each):
                grey(largest).save(folder / part / name / f"{i}.png")
    return folder


def told(folder: Path, **options: Any) -> tuple[ImageFolder, list[str]]:
    """The data, and what is warned of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        data = ImageFolder(Federation(participants=2), folder=str(folder), image_size=2, channels="grey", **options)
        data.setup("fit")
    return data, [str(one.message) for one in said]


def test_greys_of_twelve_bits(tmp_path: Path) -> None:
    """They are black, all of them, and nothing says so."""
    folder = write(tmp_path / "images", 4095)
    data, said = told(folder)
    assert said == [
        "Of 12 training images those in greys of more than 8 bits have values up to 4095, where 65535 is white: they "
        "are all but black; say which value is white, --data.white 4095 for instance."
    ]
    assert examples(data)[0][0].max() < -0.8
    data, said = told(folder, white=4095)
    assert said == []
    assert torch.allclose((examples(data)[0][0] + 1) * 127.5, torch.tensor(VALUES // 16).float(), atol=1e-3)


@pytest.mark.parametrize(("largest", "white"), [(4096, 65535), (65535, 65535), (16, 255), (255, 255), (0, 65535)])
def test_greys_that_are_as_they_are_said_to_be(tmp_path: Path, largest: int, white: int) -> None:
    """A warning where there is nothing to say is read by nobody the next time."""
    assert told(write(tmp_path / "images", largest), white=white)[1] == []


def test_one_that_is_bright_enough(tmp_path: Path) -> None:
    """Somebody's dark pictures among others are warned of."""
    folder = write(tmp_path / "images", 255)
    grey(65535).save(folder / "train" / "dog" / "3.png")
    assert told(folder)[1] == []


def test_other_pictures_and_broken_ones(tmp_path: Path) -> None:
    """Colours of 8 bits are taken for dark ones, or a file that cannot be read ends what is only looked at."""
    folder = write(tmp_path / "images", 255)
    for path in folder.glob("train/*/*.png"):
        Image.new("RGB", (2, 2), (9, 9, 9)).save(path)
    (folder / "train" / "dog" / "3.png").write_bytes(b"broken")
    assert told(folder)[1] == []


def test_dark_greys_of_ones_own(tmp_path: Path) -> None:
    """Nobody says so, or everybody's are told of."""
    folder = write(tmp_path / "images", 255)
    (folder / "train").rename(folder / "0")
    (folder / "train").mkdir()
    (folder / "0").rename(folder / "train" / "0")
    write(tmp_path / "more", 255)
    (tmp_path / "more" / "train").rename(folder / "train" / "1")
    _, said = told(folder, split="OWN", validation=0, watch="test")
    assert [one.partition(" have")[0] for one in said] == ["Of 12 training images those in greys of more than 8 bits"]


@pytest.mark.parametrize("white", [65535, 4095, 255, 100, 1])
def test_every_value_has_its_grey(white: int) -> None:
    """Of the default the upper 8 bits, as ever; else as much of white, and white above it."""
    values = np.arange(65536).reshape(256, 256)
    found = (Pixels(256, "grey", white)(Image.fromarray(values.astype(np.uint16)))[0].numpy() + 1) * 127.5
    share = np.minimum(values, white) / (white if white < 255 else white + 1)
    expected = values >> 8 if white == 65535 else np.floor(share * (255 if white < 255 else 256))
    assert np.allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize(("white", "said"), [(0, "at least 1, but got 0"), (65536, "at most 65535, but got 65536")])
def test_a_white_that_there_is_not(tmp_path: Path, white: int, said: str) -> None:
    """All pictures are white, or none can be."""
    with pytest.raises(UserError, match=f"Expected --data.white to be {said}; try 4095 for greys of 12 bits"):
        told(tmp_path, white=white)


def test_dark_greys_of_hugging_face(tmp_path: Path) -> None:
    """Likewise."""
    datasets: Any = pytest.importorskip("datasets", reason="datasets, an extra, is not installed")
    datasets.disable_progress_bars()
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    columns = {"image": [grey(4095)] * 20, "label": [0, 1] * 10}
    part = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict({"train": part, "test": part}).save_to_disk(str(tmp_path / "set"))
    options: dict[str, Any] = {"path": str(tmp_path / "set"), "image_size": 2, "channels": "grey"}
    with pytest.warns(UserWarning, match=r"Of 20 training images .* up to 4095, where 65535 is white: .*--data.white"):
        HFDataset(Federation(participants=2), **options).setup("fit")
    data = HFDataset(Federation(participants=2), white=4095, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.setup("fit")
    x, _ = data.example(0)
    assert torch.allclose((x[0] + 1) * 127.5, torch.tensor(VALUES // 16).float(), atol=1e-3)


def test_going_on_with_another_white() -> None:
    """A run that began before there was a choice is gone on with on other inputs, without a word."""
    with pytest.warns(UserWarning, match="--data.white 65535 -> 4095"):
        warn_of_changes({}, {"--data.white": "4095"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_changes({}, {"--data.white": "65535"})
