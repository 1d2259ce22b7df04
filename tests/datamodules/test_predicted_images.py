"""Pictures, and rows of Hugging Face data, without labels: classes of them are what people want of a model."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rffl_pl.datamodules import FederatedDataModule, HFDataset, ImageFolder
from rffl_pl.datamodules.reading import Batches
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.models import Perceptron
from tests.conftest import Ended, only_run
from tests.datamodules.small import common
from tests.datamodules.test_image_folder import SMALL, folder, write_part

__all__ = ["folder"]  # a fixture


def picture(value: int) -> Image.Image:
    return Image.fromarray(np.full((8, 8, 3), value, dtype=np.uint8))


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """Five pictures in several folders, and what is none."""
    below = tmp_path / "asked"
    (below / "b" / "c").mkdir(parents=True)
    for value, name in enumerate(["b/c/1.png", "b/2.png", "a.png", "z.PNG", "b.png"]):
        picture(50 * value).save(below / name)
    (below / "notes.txt").write_text("none")
    (below / ".hidden.png").write_text("none")
    return below


def predicted(data: FederatedDataModule) -> tuple[Batches, list[int], Any]:
    """The batches that are predicted, the greys of their examples, and their dataset."""
    data.setup("predict")
    batches = common(data.predict_dataloader())
    values = [round((float(one[0, 0, 0]) + 1) * 127.5) for x, _ in batches for one in x]
    return batches, values, batches.reader.dataset


@pytest.mark.parametrize("own", [False, True])
def test_pictures_without_labels(folder: Path, asked: Path, own: bool) -> None:
    """They are another's, in another order, or those of a class alone."""
    options: dict[str, Any] = {}
    if own:
        (folder / "train").rename(folder / "all")
        for i in range(2):
            write_part(folder / "train" / str(i), 3)
        options = {"split": "OWN", "validation": 0, "watch": "test"}
    data = ImageFolder(
        Federation(participants=2), folder=str(folder), predict_folder=str(asked), eval_batch_size=2, image_size=8,
        **options,
    )  # fmt: skip
    with pytest.warns(UserWarning, match=r"1 files below --data.predict_folder are not read, .*/notes\.txt for one"):
        batches, values, dataset = predicted(data)
    assert len(batches) == 3
    assert dataset.places == ["a.png", "b.png", "b/2.png", "b/c/1.png", "z.PNG"]
    assert values == [100, 200, 50, 0, 150]


def test_where_pictures_lie(folder: Path) -> None:
    """A prediction is of another picture than is said, or a name that is no text ends the writing of all."""
    os.rename(folder / "test" / "dog" / "3.png", os.fsencode(folder / "test" / "dog") + b"/\xe9.png")
    data = ImageFolder(Federation(participants=2), folder=str(folder), image_size=8)
    _, _, dataset = predicted(data)
    numbers = [*range(10)], [*(i for i in range(10) if i != 3), "\\xe9"]
    assert dataset.places == [
        f"test/{name}/{i}.png" for name, of in zip(("cat", "dog"), numbers, strict=True) for i in of
    ]


def test_pictures_without_labels_by_the_command(rffl: Callable[..., Ended], folder: Path, asked: Path) -> None:
    """A file has other classes than the participant's model says, or the reading in other processes ends in no word."""
    run = ("--data", "ImageFolder", "--data.folder", folder, *SMALL, "--model.network.classes", 2)
    assert rffl("fit", *run).code == 0
    fitted = only_run(folder.parent / "runs")
    last = fitted / "checkpoints" / "last.ckpt"
    given = ("--ckpt_path", last, "--run.root", folder.parent / "asked for", "--data.num_workers", 1)
    ended = rffl("predict", *run, *given, "--data.predict_folder", asked)
    assert ended.code == 0, ended.err
    (path,) = (folder.parent / "asked for").rglob("participant_1.csv")
    rows = list(csv.DictReader(path.open()))
    network = Perceptron(192, 64, 2)
    network.load_state_dict(torch.load(fitted / "weights" / "participant_1.pt", weights_only=True))
    x = torch.stack([torch.full((3, 8, 8), v / 127.5 - 1) for v in (100, 200, 50, 0, 150)])
    assert [int(row["class"]) for row in rows] == network(x).argmax(1).tolist()
    (asked / "b" / "2.png").write_bytes(b"broken")
    ended = rffl("predict", *run, *given, "--data.predict_folder", asked)
    assert ended.code == 2
    assert f"Error: Expected images below --data.predict_folder, but {asked}/b/2.png cannot be read" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", "Expected --data.predict_folder to be a folder of images, but there is no folder .*/nowhere"),
        ("asked/a.png", "Expected --data.predict_folder to be a folder of images, but there is no folder .*/a.png"),
        ("empty", "Expected --data.predict_folder .*/empty to have images, files that end in .*, but it has none; put"),
        ("loop", "Expected every folder below --data.predict_folder once, but .*/loop/up is .*/loop again; take the"),
    ],
)
def test_a_folder_without_pictures(folder: Path, asked: Path, name: str, said: str) -> None:
    """It is told in a sentence, before anything is predicted."""
    for empty in ("empty", "loop"):
        (asked.parent / empty).mkdir()
    (asked.parent / "loop" / "up").symlink_to(asked.parent / "loop")
    data = ImageFolder(Federation(participants=2), folder=str(folder), predict_folder=str(asked.parent / name))
    with pytest.raises(UserError, match=said):
        data.setup("predict")
    data = ImageFolder(Federation(participants=2), folder=str(folder), predict_folder=str(asked.parent / name))
    data.setup("test")  # nobody looks there


def saved(path: Path, parts: dict[str, dict[str, Any]]) -> str:
    datasets: Any = pytest.importorskip("datasets", reason="datasets, an extra, is not installed")
    datasets.disable_progress_bars()
    kinds = {"image": datasets.Image(), "label": datasets.Value("int64"), "width": datasets.Value("float64")}
    made = {
        name: datasets.Dataset.from_dict(columns, features=datasets.Features({key: kinds[key] for key in columns}))
        for name, columns in parts.items()
    }
    datasets.DatasetDict(made).save_to_disk(str(path))
    return str(path)


def test_images_of_a_split_without_labels(tmp_path: Path) -> None:
    """They need labels, or are the test set's."""
    labelled = {"image": [picture(i) for i in range(20)], "label": [0, 1] * 10}
    parts: dict[str, dict[str, Any]] = {
        "train": labelled,
        "test": labelled,
        "new": {"image": [picture(9 * i) for i in range(7)]},
    }
    path = saved(tmp_path / "set", parts)
    data = HFDataset(Federation(participants=2), path=path, predict="new", image_size=8, eval_batch_size=4)
    batches, values, dataset = predicted(data)
    assert (len(batches), values) == (2, [9 * i for i in range(7)])
    assert [*dataset.places] == [f"row {i}" for i in range(7)]
    again = HFDataset(Federation(participants=2), path=path, predict="newer", image_size=8)
    with pytest.raises(UserError, match=r"--data.predict to be a split of .* did you mean new\?"):
        again.setup("predict")


def test_a_split_without_rows(tmp_path: Path) -> None:
    """Its first batch ended in a traceback."""
    datasets: Any = pytest.importorskip("datasets", reason="datasets, an extra, is not installed")
    numbers = datasets.Dataset.from_dict({"width": [float(i) for i in range(60)], "label": [i % 3 for i in range(60)]})
    parts = {"train": numbers, "test": numbers, "new": numbers.filter(lambda row: row["width"] < 0)}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path))
    data = HFDataset(Federation(participants=2), path=str(tmp_path), inputs="width", predict="new")
    with pytest.raises(UserError, match=r"rows in split new of --data.predict, but it has none; name another"):
        data.setup("predict")


def test_numbers_of_a_split_without_labels(tmp_path: Path) -> None:
    """They are scaled by themselves; or a label that no training example has, or none, is refused."""
    numbers = {"width": [float(i) for i in range(60)], "label": [i % 3 for i in range(60)]}
    new = {"width": [100.0, 29.5, -41.0], "label": [None, 7, 0]}
    wrong = {"width": [0.0, float("nan")]}
    parts: dict[str, dict[str, Any]] = {"train": numbers, "test": numbers, "new": new, "wrong": wrong}
    path = saved(tmp_path / "set", parts)
    data = HFDataset(Federation(participants=2), path=path, inputs="width", predict="new")
    data.setup("predict")
    (batch,) = common(data.predict_dataloader())
    scale = np.arange(60.0)
    assert np.allclose(batch[0].flatten(), (np.array(new["width"]) - scale.mean()) / scale.std(), atol=1e-5)
    assert data.predicted_places(1, data.predict_dataloader()) == ["row 0", "row 1", "row 2"]
    with pytest.raises(UserError, match=r"finite numbers in column width .* row 1 of --data.predict has NaN"):
        HFDataset(Federation(participants=2), path=path, inputs="width", predict="wrong").setup("predict")


def test_a_split_without_images(tmp_path: Path) -> None:
    """It ends in a traceback."""
    datasets: Any = pytest.importorskip("datasets", reason="datasets, an extra, is not installed")
    labelled = {"image": [picture(i) for i in range(20)], "label": [0, 1] * 10}
    path = saved(tmp_path / "set", {"train": labelled, "test": labelled})
    datasets.DatasetDict(
        {**datasets.load_from_disk(path), "new": datasets.Dataset.from_dict({"image": [1, 2, 3]})}
    ).save_to_disk(str(tmp_path / "other"))
    data = HFDataset(Federation(participants=2), path=str(tmp_path / "other"), predict="new", image_size=8)
    with pytest.raises(UserError, match=r"column image of --data.predict to hold images, as that of --data.train, but"):
        data.setup("predict")


def test_the_test_set_as_ever(folder: Path) -> None:
    """Without the option something else is predicted."""
    data = ImageFolder(Federation(participants=2), folder=str(folder), image_size=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.setup("predict")
    assert sum(len(y) for _, y in common(data.predict_dataloader())) == 20
