"""Inputs that do not lie in memory, or are somebody's own: a run does not go on with others in their place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from rffl_pl.datamodules import FederatedDataModule, HFDataset, ImageFolder, Sources
from rffl_pl.datamodules.hf_dataset import Images
from rffl_pl.datamodules.labelled import Labelled, Lines
from rffl_pl.datamodules.pictures import Pixels
from rffl_pl.datamodules.sentences import Sentences
from rffl_pl.datamodules.telling import told_by
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.runs.identity import Identity, check_identity, identity
from tests.conftest import QUICK, Ended, only_run
from tests.datamodules.small import Plain, ready


def of(data: FederatedDataModule) -> Identity:
    """The identity of a run on this data."""
    network = nn.Linear(2, 2)
    return identity(network, data.federation, ready(data).identity(), torch.optim.SGD(network.parameters(), lr=0.1))


def picture(value: int) -> Image.Image:
    return Image.fromarray(np.full((6, 6, 3), value, dtype=np.uint8))


def write(folder: Path, part: str, each: int) -> None:
    for name, first in (("cat", 0), ("dog", 100)):
        (folder / part / name).mkdir(parents=True)
        for i in range(each):
            picture(first + i).save(folder / part / name / f"{i:02}.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty training and ten test images of each of two classes."""
    write(tmp_path / "images", "train", 40)
    write(tmp_path / "images", "test", 10)
    return tmp_path / "images"


def images(folder: Path, **options: Any) -> Identity:
    return of(ImageFolder(Federation(participants=2), folder=str(folder), image_size=4, **options))


def one_for_another(folder: Path) -> None:
    (folder / "cat" / "00.png").rename(folder / "cat" / "99.png")


def other_contents(folder: Path) -> None:
    for path in folder.glob("*/*.png"):
        picture(200).save(path)


CHANGES = pytest.mark.parametrize("change", [one_for_another, other_contents])


@CHANGES
@pytest.mark.parametrize("training", [True, False])
def test_other_pictures_in_a_folder(folder: Path, change: Callable[[Path], None], training: bool) -> None:
    """Shards were cut anew of other pictures with the same labels, and what was held out was trained on."""
    saved = images(folder)
    change(folder / "train")
    with pytest.raises(UserError, match=r"data: .*inputs is .* there and .* here.*, and data as it was then\.$"):
        check_identity(saved, images(folder), training=training)


@CHANGES
def test_other_pictures_to_test_on(folder: Path, change: Callable[[Path], None]) -> None:
    """A run goes on with them in silence; or it cannot be measured on newly labelled ones."""
    saved = images(folder)
    change(folder / "test")
    here = images(folder)
    with pytest.raises(UserError, match=r"data: inputs is"):
        check_identity(saved, here, training=True)
    assert not check_identity(saved, here, training=False)


def test_the_same_pictures_elsewhere(folder: Path) -> None:
    """A folder that was moved is another one, or a checkpoint of an earlier version is refused."""
    saved = images(folder)
    moved = images(folder.rename(folder.with_name("moved")))
    assert saved == moved
    for key in ("inputs", "training inputs"):
        del saved["data"][key]  # as earlier versions have it
    for training in (True, False):
        assert check_identity(saved, moved, training=training)


@CHANGES
def test_other_pictures_of_ones_own(folder: Path, change: Callable[[Path], None]) -> None:
    """Participant 1's pictures change, and nobody sees it."""
    shutil.rmtree(folder / "train")
    for i in range(2):
        write(folder, f"train/{i}", 6)
    own: dict[str, Any] = {"split": "OWN", "validation": 0, "watch": "test"}
    saved = images(folder, **own)
    assert images(folder, **own) == saved
    change(folder / "train" / "1")
    for training in (True, False):
        with pytest.raises(UserError, match=r"inputs is .* there and .* here"):
            check_identity(saved, images(folder, **own), training=training)


def test_going_on_with_other_pictures(rffl: Callable[..., Ended], folder: Path) -> None:
    """The command trained on what it had held out."""
    run = (
        "--data", "ImageFolder", "--data.folder", folder, "--data.image_size", 4, "--federation.participants", 2,
        "--data.split", "UNI", "--model.network", "Perceptron", "--model.network.inputs", 48,
        "--model.network.classes", 2, *QUICK,
    )  # fmt: skip
    assert rffl("fit", *run, "--trainer.max_epochs", 1).code == 0
    last = only_run(folder.parent / "runs") / "checkpoints" / "last.ckpt"
    assert rffl("fit", *run, "--trainer.max_epochs", 2, "--ckpt_path", last).code == 0
    one_for_another(folder / "train")
    ended = rffl("fit", *run, "--trainer.max_epochs", 3, "--ckpt_path", last)
    assert ended.code == 2
    assert "of this run, but data: inputs is" in ended.err


def test_a_picture_that_is_gone(folder: Path) -> None:
    """A traceback ends the run, where whoever reads the picture has a sentence."""
    data = ImageFolder(Federation(participants=2), folder=str(folder), image_size=4)
    ready(data)
    (folder / "train" / "dog" / "39.png").unlink()
    assert data.identity()["inputs"]


class Said(Plain):
    """Examples that are read one at a time, and what their dataset says of them."""

    def __init__(self, n: int, fingerprint: object) -> None:
        super().__init__(n)
        self.fingerprint = fingerprint


class Own(FederatedDataModule):
    """Everybody's own examples, as they are given."""

    num_classes = 4

    def __init__(self, federation: Federation, examples: Dataset[Any]) -> None:
        super().__init__(federation, split="OWN", validation=0, watch="test")
        self.examples = examples

    def load(self) -> Sources:
        return Sources(train=lambda _: self.examples, test=Plain(20))


def rows(x: Tensor) -> Dataset[Any]:
    return TensorDataset(x, torch.arange(len(x)) % 4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (rows(torch.zeros(8, 2)), rows(torch.ones(8, 2))),
        (Sentences([[2, 3]] * 8, [0] * 8), Sentences([[2, 4]] * 8, [0] * 8)),
        (Said(8, "a"), Said(8, "b")),
    ],
    ids=["tensors", "sentences", "said"],
)
def test_other_inputs_of_ones_own(one: Dataset[Any], other: Dataset[Any]) -> None:
    """Their labels alone were compared; a checkpoint of an earlier version knows no more."""
    saved, same, here = (of(Own(Federation(participants=2), examples)) for examples in (one, one, other))
    assert saved == same
    for training in (True, False):
        with pytest.raises(UserError, match=r"inputs is \w+ there and \w+ here"):
            check_identity(saved, here, training=training)
    for key in ("own inputs", "training inputs", "own training examples"):
        del saved["data"][key]
    for training in (True, False):
        assert check_identity(saved, here, training=training)


@pytest.mark.parametrize("said", [None, 7, lambda: "text"])
def test_what_says_nothing_of_inputs(said: object) -> None:
    """Whatever else a user's own dataset calls so ends in a traceback, or in another digest every time."""
    assert told_by(Said(8, said)) == ""


def photos(path: Path, order: list[int], *, more: int = 0, files: Path | None = None) -> str:
    """A Hugging Face data set of images, saved; in files beside it, where they are given."""
    datasets: Any = pytest.importorskip("datasets", reason="datasets, an extra, is not installed")
    datasets.disable_progress_bars()
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    made: list[Any] = [picture(i + more) for i in order]
    if files is not None:
        files.mkdir(exist_ok=True)
        for i, one in zip(order, made, strict=True):
            one.save(files / f"{i}.png")
        made = [str(files / f"{i}.png") for i in order]
    columns = {"image": made, "label": [i % 2 for i in order]}
    part = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict({"train": part, "test": part.select(range(10))}).save_to_disk(str(path))
    return str(path)


def hugging_face(path: str) -> Identity:
    return of(HFDataset(Federation(participants=2), path=path, image_size=4))


@pytest.mark.parametrize(
    ("order", "more"),
    [([*range(2, 60), 0, 1], 0), ([*range(60)], 7)],
    ids=["rows moved", "other contents"],
)
def test_other_images_of_hugging_face(tmp_path: Path, order: list[int], more: int) -> None:
    """Rows that moved with their labels, or other pictures in them, were taken for the same."""
    saved = hugging_face(photos(tmp_path / "a", [*range(60)]))
    assert hugging_face(photos(tmp_path / "again", [*range(60)])) == saved
    here = hugging_face(photos(tmp_path / "b", order, more=more))
    for training in (True, False):
        with pytest.raises(UserError, match=r"inputs is .* there and .* here"):
            check_identity(saved, here, training=training)


def test_images_of_hugging_face_in_files(tmp_path: Path) -> None:
    """What lies in files beside the rows is another data set than the same images among the rows."""
    datasets: Any = pytest.importorskip("datasets", reason="datasets, an extra, is not installed")
    saved = hugging_face(photos(tmp_path / "a", [*range(60)]))
    assert hugging_face(photos(tmp_path / "b", [*range(60)], files=tmp_path / "files")) == saved
    rows = datasets.Dataset.from_dict({"image": [str(tmp_path / "files" / f"{i}.png") for i in range(60)]})
    part = Labelled(
        rows=rows.cast_column("image", datasets.Image()),
        labels=[i % 2 for i in range(60)],
        places=Lines("row", range(60)),
    )
    found = Images(part, "image", Pixels(4, "rgb"), "--data.train")
    kept = datasets.load_from_disk(str(tmp_path / "a"))["train"]
    among = Labelled(rows=kept, labels=part.labels, places=Lines("row", range(60)))
    expected = Images(among, "image", Pixels(4, "rgb"), "--data.train")
    assert found.fingerprint == expected.fingerprint
    shutil.rmtree(tmp_path / "files")
    assert Images(part, "image", Pixels(4, "rgb"), "--data.train").fingerprint != expected.fingerprint
