"""Data sets of Hugging Face's `datasets`, by the names of splits and columns."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rffl_pl.datamodules import FederatedDataModule, HFDataset, HFText
from rffl_pl.datamodules.hf_dataset import Images, scale_of
from rffl_pl.datamodules.sentences import Sentences
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.conftest import QUICK, Ended
from tests.datamodules.test_real_data import tensors_of
from tests.ranks import forked

datasets: Any = pytest.importorskip("datasets", reason="datasets, an extra, is not installed")

SMALL = (
    "--federation.participants", 3, "--data.split", "UNI", "--data.batch_size", 8, "--trainer.max_epochs", 1, *QUICK,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is prepared lies in the test's own folder, and nothing waits for a network."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def test_scales_hang_on_no_number_of_threads() -> None:
    """Where an input is one number torch's own sums do, and a checkpoint of two threads was refused with one."""
    x, threads = torch.randn(70_000, 1, dtype=torch.float64), torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            found.append([part.item() for part in scale_of(x)])
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]
    deviation, mean = torch.std_mean(x, correction=0)
    assert found[0] == pytest.approx([mean.item(), deviation.item()], rel=1e-12)


@pytest.mark.parametrize("shape", [(700,), (17, 3), (60, 9, 9), (2, 1, 2, 3)])
def test_scales_of_ordinary_numbers_keep_their_bits(shape: tuple[int, ...]) -> None:
    """They are NumPy's own, whatever is done about numbers whose squares vanish or overflow."""
    x = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for numbers in (x, 255 * x, 1.7e9 + 1e5 * x, 1e-12 * x, x.round(), x * 0, (x > 0).double(), x.transpose(0, -1)):
        mean, deviation = scale_of(numbers)
        assert np.array_equal(mean, numbers.numpy().mean(0))
        changes = numbers.numpy().min(0) < numbers.numpy().max(0)
        assert np.array_equal(deviation, np.where(changes, numbers.numpy().std(0), 1.0))


@pytest.mark.parametrize("size", [1e-250, 1e-200, 1e200, 1e300])
def test_scales_of_numbers_of_any_size(size: float) -> None:
    """Inputs would be zeros, or NaN; an entry beside them has a scale of its own."""
    ordinary = torch.randn(50, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.cat([size * ordinary, ordinary], dim=1)
    mean, deviation = scale_of(x)
    scaled = (x - mean) / deviation
    torch.testing.assert_close(scaled[:, :1], scaled[:, 1:])


def table(count: int, label: Callable[[int], Any] = lambda i: i % 3) -> dict[str, list[Any]]:
    """Columns of several kinds."""
    return {
        "width": [float(i) for i in range(count)],
        "height": [2 * i for i in range(count)],
        "part": [(i % 9) / 8 for i in range(count)],
        "point": [[i, -i, 7.0] for i in range(count)],
        "big": [i % 2 == 0 for i in range(count)],
        "gap": [None if i == 5 else i for i in range(count)],
        "ragged": [[1.0] * (1 + i % 2) for i in range(count)],
        "review": [f"film {i} is {('good', 'bad')[i % 2]}" for i in range(count)],
        "label": [label(i) for i in range(count)],
    }


def saved(path: Path, **splits: Any) -> str:
    """A folder as `save_to_disk` leaves it."""
    made = {name: datasets.Dataset.from_dict(columns) for name, columns in splits.items()}
    datasets.DatasetDict(made).save_to_disk(str(path))
    return str(path)


def photos(path: Path) -> str:
    """Images, 60 for training and 20 for the test, with three named classes."""
    features = datasets.Features(
        {"photo": datasets.Image(), "animal": datasets.ClassLabel(names=["cat", "dog", "emu"])}
    )
    parts = {}
    for name, count in (("train", 60), ("test", 20)):
        pictures = [Image.fromarray(np.full((8, 12, 3), i, dtype=np.uint8)) for i in range(count)]
        columns = {"photo": pictures, "animal": [i % 3 for i in range(count)]}
        parts[name] = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict(parts).save_to_disk(str(path))
    return str(path)


def ready(kind: type[FederatedDataModule], path: str, **options: Any) -> Any:
    data = kind(Federation(participants=2), path=path, **options)  # type: ignore[call-arg]
    data.prepare_data()
    data.setup("fit")
    return data


def test_a_folder_that_is_called_like_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own files are read: by the name alone `datasets` reads those of all folders beside it."""
    for place, count in (("csv", 20), ("runs/old", 50)):
        (tmp_path / place).mkdir(parents=True)
        for part in ("train", "test"):
            rows = "".join(f"{i},{i % 2}\n" for i in range(count))
            (tmp_path / place / f"{part}.csv").write_text(f"x,label\n{rows}")
    monkeypatch.chdir(tmp_path)
    data = ready(HFDataset, "csv", inputs="x", validation=0, watch="test")
    assert (len(data.sources.train), len(data.sources.test)) == (20, 20)


@pytest.mark.slow
def test_images(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Images are decoded one at a time to the asked size and channels, classes keep their names, a round is trained."""
    path = photos(tmp_path / "photos")
    data = ready(HFDataset, path, inputs="photo", label="animal", image_size=8, channels="grey")
    assert (data.num_classes, data.class_names) == (3, ("cat", "dog", "emu"))
    assert isinstance(data.sources.train, Images)
    x, y = data.sources.train[44]
    assert (x.shape, type(x), y) == ((1, 8, 8), torch.Tensor, 2)
    assert torch.allclose(x, torch.tensor(44 / 255 * 2 - 1), atol=1e-6)
    ended = rffl(
        "fit", "--data", "HFDataset", "--data.path", path, "--data.inputs", "photo", "--data.label", "animal",
        "--data.image_size", 8, "--data.num_workers", 1, "--model.network", "Perceptron", "--model.network.inputs", 192,
        "--model.network.classes", 3, *SMALL,
    )  # fmt: skip
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    "kept",
    [
        lambda rows: rows.cast_column("photo", datasets.Image(decode=False)),
        lambda rows: rows.with_format("torch"),
        lambda rows: rows.with_format("numpy", columns=["animal"]),
    ],
    ids=["bytes", "torch", "without them"],
)
def test_images_that_were_kept_otherwise(kept: Callable[[Any], Any], tmp_path: Path) -> None:
    """How somebody had last read them stays with what is saved; they are the same images."""
    path = photos(tmp_path / "photos")
    expected = ready(HFDataset, path, inputs="photo", label="animal", image_size=8).sources.train[44]
    kept(datasets.load_from_disk(path)).save_to_disk(str(tmp_path / "kept"))
    x, y = ready(HFDataset, str(tmp_path / "kept"), inputs="photo", label="animal", image_size=8).sources.train[44]
    assert (torch.equal(x, expected[0]), y) == (True, expected[1])


def test_a_rare_class_is_trained_on(tmp_path: Path) -> None:
    """Whatever the seed, the one example of a class that only the rows name stays for training."""
    path = saved(tmp_path / "films", train=table(60, lambda i: "odd" if i == 7 else ("good", "bad")[i % 2]))
    for seed in range(12):
        data = HFText(Federation(participants=2, seed=seed), path=path, text="review", test_share=0.1)
        train, _, test = data.read()
        assert data.class_names == ("bad", "good", "odd")
        assert (2 in train.labels, len(train.labels), len(test.labels)) == (True, 54, 6)
        assert train.places[train.labels.index(2)] == "row 7"
        assert {*train.places, *test.places} == {f"row {i}" for i in range(60)}


def test_several_columns_of_numbers(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """They lie side by side, every entry standardised by the training examples; one that never changes is 0."""
    path = saved(tmp_path / "numbers", train=table(60), test=table(20))
    x, y, x_test, _ = tensors_of(ready(HFDataset, path, inputs=["width", "height", "point"]))
    numbers = np.arange(60.0)
    scaled = (numbers - numbers.mean()) / numbers.std()
    expected = np.stack([scaled, scaled, scaled, -scaled, np.zeros(60)], axis=1)
    assert np.allclose(x, expected, atol=1e-5)
    assert np.allclose(x_test, expected[:20], atol=1e-5)
    assert y.tolist() == [i % 3 for i in range(60)]
    ended = rffl(
        "fit", "--data", "HFDataset", "--data.path", path, "--data.inputs", "[width, height]", "--model.network",
        "Perceptron", "--model.network.inputs", 2, "--model.network.classes", 3, *SMALL,
    )  # fmt: skip
    assert ended.code == 0, ended.err


def test_numbers_that_differ_in_late_digits(tmp_path: Path) -> None:
    """Times in seconds are all alike in single precision, and the column would be zeros."""
    seconds = {"width": [1.7e9 + i for i in range(60)]}
    path = saved(tmp_path / "numbers", train=table(60) | seconds, test=table(20))
    x = tensors_of(ready(HFDataset, path, inputs="width"))[0]
    numbers = np.arange(60.0)
    assert np.allclose(x.flatten(), (numbers - numbers.mean()) / numbers.std(), atol=1e-5)


def test_one_column_of_lists_keeps_its_shape(tmp_path: Path) -> None:
    """A row of three numbers is an input of three; a number or a truth value is an input of one."""
    path = saved(tmp_path / "numbers", train=table(60), test=table(20))
    assert tensors_of(ready(HFDataset, path, inputs="point"))[0].shape == (60, 3)
    assert tensors_of(ready(HFDataset, path, inputs="width"))[0].shape == (60, 1)
    assert tensors_of(ready(HFDataset, path, inputs="big"))[0].flatten().tolist() == [1, -1] * 30


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_text(rffl: Callable[..., Ended], ending: str, tmp_path: Path) -> None:
    """A folder of plain files: their names are the splits, strings as labels are sorted, and a network reads words."""
    folder = tmp_path / "films"
    folder.mkdir()
    for name, count in (("train", 60), ("test", 20)):
        columns = table(count, lambda i: ("yes", "no")[i % 2])
        rows = datasets.Dataset.from_dict({key: columns[key] for key in ("review", "label")})
        write = {"csv": rows.to_csv, "parquet": rows.to_parquet, "jsonl": rows.to_json}[ending]
        write(str(folder / f"{name}.{ending}"))
    data = ready(HFText, str(folder), text="review", vocabulary_size=50)
    assert data.class_names == ("no", "yes")
    assert isinstance(data.sources.train, Sentences)
    assert data.sources.train.labels.tolist() == [1, 0] * 30
    if ending == "csv":
        ended = rffl(
            "fit", "--data", "HFText", "--data.path", folder, "--data.text", "review", "--data.vocabulary_size", 50,
            "--model.network", "TextCNN", "--model.network.vocabulary", 50, *SMALL,
        )  # fmt: skip
        assert ended.code == 0, ended.err


@pytest.mark.slow
@pytest.mark.distributed
def test_a_folder_that_lies_elsewhere_on_another_machine(tmp_path: Path) -> None:
    """A copy will do; what other rows are is told by what is read of them, whatever the paths or names."""
    for name, label in (("a", lambda i: i % 3), ("b", lambda i: i % 3), ("other", lambda i: (i + (i == 8)) % 3)):
        saved(tmp_path / name, train=table(60, label), test=table(20))
    words = (
        "fit", "--data", "HFText", "--data.text", "review", "--model.network", "TextCNN", "--model.network.classes", 3,
        "--model.network.vocabulary", 70, "--data.vocabulary_size", 70, "--model.network.width", 8,
        "--model.network.kernels", 4, "--model.optimizer", "SGD", "--model.optimizer.lr", 0.1, *SMALL,
    )  # fmt: skip

    def on(*folders: str) -> Ended:
        each = [("--data.path", tmp_path / name) for name in folders]
        return forked(2, *words, root=tmp_path / " ".join(folders), each=each)

    ended = on("a", "b")
    assert ended.code == 0, ended.err
    assert "but the data of rank 1 differs from rank 0's; have all nodes read the same files" in on("a", "other").err


def test_a_share_for_the_test_is_asked_for(tmp_path: Path) -> None:
    """Without a split for the test there is a sentence, or the share that is named, apart from training examples."""
    path = str(tmp_path / "one")
    datasets.Dataset.from_dict(table(60)).save_to_disk(path)
    with pytest.raises(UserError, match=r"but got test and it has train; name one with .* --data.test_share 0.1"):
        ready(HFDataset, path, inputs="width")
    x, _, x_test, _ = tensors_of(ready(HFDataset, path, inputs="width", test_share=0.25))
    assert (len(x), len(x_test)) == (45, 15)
    assert len(torch.cat([x, x_test]).unique()) == 60


def test_a_split_for_watching(tmp_path: Path) -> None:
    """It is watched, and nothing is held out of the training examples."""
    path = saved(tmp_path / "three", train=table(60), test=table(20), dev=table(30))
    data = ready(HFDataset, path, inputs="width", val="dev")
    assert sum(len(y) for _, y in data.held_out_dataloader()) == 30
    assert sum(data.shard_sizes) == 60
    data = ready(HFDataset, path, inputs="width", val="test", test_share=0.2)  # nobody is tested on that split
    assert sum(len(y) for _, y in data.held_out_dataloader()) == 20


@pytest.mark.parametrize(
    ("label", "names"),
    [
        (lambda i: (10, -1, 9)[i % 3], ("-1", "9", "10")),
        (lambda i: str((10, 2)[i % 2]), ("2", "10")),
        (lambda i: (10.0, 2.0)[i % 2], ("2", "10")),
        (lambda i: i % 2 == 0, ("False", "True")),
        (lambda i: (" good", "bad", "good ", "bad\n")[i % 4], ("bad", "good")),
    ],
)
def test_labels_of_every_kind(label: Callable[[int], Any], names: tuple[str, ...], tmp_path: Path) -> None:
    """Whole numbers, whatever they are, numbers as strings and truth values: sorted, they are the classes."""
    data = ready(HFDataset, saved(tmp_path / "l", train=table(60, label), test=table(20, label)), inputs="width")
    assert data.class_names == names
    assert [names[y] for y in tensors_of(data)[1]] == [str(label(i)).strip().removesuffix(".0") for i in range(60)]


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no such column": ({"inputs": "widht"}, r"--data.inputs to be a column of split train .*did you mean width\?"),
    "one of several": ({"inputs": ["width", "depth"]}, "but got depth and it has width, height, part,"),
    "no column at all": ({"inputs": []}, "--data.inputs to name at least one column"),
    "a column twice": (
        {"inputs": ["width", "point", "width"]},
        "Expected --data.inputs to name every column once, but got width twice; leave one out.",
    ),
    "no such label": ({"inputs": "width", "label": "lable"}, r"--data.label to be .*did you mean label\? Name yours"),
    "no such split": ({"inputs": "width", "train": "training"}, r"--data.train to be a split .*did you mean train\?"),
    "no split to watch": ({"inputs": "width", "val": "dev"}, "--data.val to be a split .*but got dev"),
    "the same split twice": ({"inputs": "width", "test": "train"}, "to be another split than --data.train"),
    "the training split to watch": (
        {"inputs": "width", "val": "train"},
        "--data.val to be another split than --data.train, but both are train; .*; name another.",
    ),
    "the test split to watch": (
        {"inputs": "width", "val": "test"},
        "--data.val to be another split than --data.test, but both are test; .*; name another.",
    ),
    "a share and a split": ({"inputs": "width", "test": "test", "test_share": 0.1}, "but got both, test and 0.1"),
    "share": ({"inputs": "width", "test_share": 1.5}, "--data.test_share to lie between 0 and 1, but got 1.5"),
    "text as numbers": ({"inputs": "review"}, "column review .* holds Value.*string.*--data HFText"),
    "lists of several lengths": ({"inputs": "ragged"}, "column ragged .* numbers of one shape"),
    "a number that is missing": (
        {"inputs": "gap"},
        "column gap .* row 5 of --data.train has NaN|column gap .*without a gap",
    ),
    "decimals as labels": ({"inputs": "height", "label": "part"}, "column part .* holds Value.*float"),
    "whole numbers one of which is missing": (
        {"inputs": "width", "train": "holed"},
        "every example of --data.train, but example 7 has no label",
    ),
    "everybody its own class": ({"inputs": "width", "label": "height"}, "but there are 60 in 60 examples"),
    "a class in the test alone": (
        {"inputs": "width", "test": "more"},
        "of --data.test, but example 3 has label 3, which no",
    ),
    "the label as an input": (
        {"inputs": ["width", "label"]},
        "--data.label to be another column than those of --data.inputs, but got label in both",
    ),
    "another shape in the test": (
        {"inputs": "point", "test": "wide"},
        r"--data.test to have inputs of shape \[3\], as the training examples, but they have \[1\]",
    ),
    "a label of blanks": (
        {"inputs": "width", "train": "blank"},
        "every example of --data.train, but example 2 has no label",
    ),
    "a label of blanks, where a share is for the test": (
        {"inputs": "width", "train": "blank", "test_share": 0.2},
        "every example of --data.train, but example 2 has no label",  # which stands elsewhere behind the division
    ),
    "a number in two ways": (
        {"inputs": "width", "train": "twice"},
        "every number in column label of --data.path .*, but 1 and 1.0 are one, and would be two classes; write them",
    ),
    "a number in another way in the test": (
        {"inputs": "width", "test": "points"},
        "of --data.test, but example 0 has label 0.0, which is 0 written in another way; write them alike.$",
    ),
    "no label": ({"inputs": "width", "test": "secret"}, "every example of --data.test, but example 0 has no label"),
}


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Splits with which something can go wrong."""
    path = tmp_path_factory.mktemp("data") / "set"
    wide = table(20) | {"point": [[float(i)] for i in range(20)]}
    return saved(
        path, train=table(60), test=table(20), more=table(20, lambda i: i % 4), secret=table(20, lambda i: None),
        wide=wide, blank=table(60, lambda i: ("yes", "no", " ")[i % 3]),
        twice=table(60, lambda i: ("0", "1", "1.0")[i % 3]), points=table(20, lambda i: f"{i % 3}.0"),
        holed=table(60, lambda i: math.nan if i == 7 else float(i % 3)),
    )  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake(mistake: str, mistaken: str) -> None:
    """One sentence with the option as typed and what there is instead."""
    options, expected = MISTAKES[mistake]
    with pytest.raises(UserError, match=expected) as caught:
        ready(HFDataset, mistaken, **options)
    assert str(caught.value).startswith("Expected ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("nothing", [" ", None])
def test_sentences_of_nothing(tmp_path: Path, nothing: str | None) -> None:
    """They would all be the same unknown word."""
    path = saved(tmp_path / "films", train=table(60) | {"review": ["fine"] * 59 + [nothing]}, test=table(20))
    for more in ({}, {"test_share": 0.2}):
        with pytest.raises(
            UserError, match=r"sentences in column review of --data.train, but example 59 has none; name"
        ):
            ready(HFText, path, text="review", **more)


def test_numbers_as_text(mistaken: str) -> None:
    """A column without sentences is named."""
    with pytest.raises(UserError, match=r"sentences in column width .* example 0 has float; .*--data.text"):
        ready(HFText, mistaken, text="width")


def test_a_test_without_answers(tmp_path: Path) -> None:
    """Class labels of -1, as the hub has in tests whose answers are kept secret, are no class."""
    features = datasets.Features({"width": datasets.Value("float32"), "label": datasets.ClassLabel(names=["a", "b"])})
    made = {
        name: datasets.Dataset.from_dict({"width": [0.5] * 9, "label": labels}, features=features)
        for name, labels in (("train", [0, 1, 0] * 3), ("test", [-1] * 9))
    }
    datasets.DatasetDict(made).save_to_disk(str(tmp_path / "secret"))
    with pytest.raises(UserError, match=r"every example of --data.test, but example 0 has no label"):
        ready(HFDataset, str(tmp_path / "secret"), inputs="width")


def test_a_test_of_plain_numbers(tmp_path: Path) -> None:
    """They are what class labels are kept as, and it was said that no training example has such a label."""
    train = datasets.Dataset.from_dict(table(60)).cast_column("label", datasets.ClassLabel(names=["cat", "dog", "emu"]))
    for name, label, said in (
        ("numbers", 1, "1, a plain number, where --data.train has class labels, of which that is dog; cast it with "
         "cast_column('label', train.features['label'])."),
        ("more", 3, "3, which no training example has; name another split or column, or leave such examples out."),
    ):  # fmt: skip
        test = datasets.Dataset.from_dict(table(20, lambda i, label=label: label))  # type: ignore[misc]  # a number
        datasets.DatasetDict(train=train, test=test).save_to_disk(str(tmp_path / name))
        with pytest.raises(UserError) as caught:
            ready(HFDataset, str(tmp_path / name), inputs="width")
        assert str(caught.value).endswith(f"of --data.test, but example 0 has label {said}")


def test_an_image_that_cannot_be_read(tmp_path: Path) -> None:
    """The example is named when it is met."""
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    good = {"image": [Image.new("L", (4, 4))] * 8, "label": [0, 1] * 4}
    bad = {"image": [{"bytes": b"broken", "path": None}] * 8, "label": [0, 1] * 4}
    made = {"train": datasets.Dataset.from_dict(bad, features=features)}
    made["test"] = datasets.Dataset.from_dict(good, features=features)
    datasets.DatasetDict(made).save_to_disk(str(tmp_path / "images"))
    with pytest.raises(
        UserError, match=r"image in column image of --data.inputs .*row 0 of --data.train cannot be read"
    ):
        ready(HFDataset, str(tmp_path / "images"))


@pytest.mark.parametrize("seed", [0, 1])
def test_an_image_that_cannot_be_read_among_those_of_a_share(tmp_path: Path, seed: int) -> None:
    """The message had its number after rows were drawn, where somebody who looks finds a good one."""
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    images: list[Any] = [Image.fromarray(np.full((4, 4, 3), i, dtype=np.uint8)) for i in range(40)]
    images[27] = {"bytes": b"broken", "path": None}
    part = datasets.Dataset.from_dict({"image": images, "label": [0, 1] * 20}, features=features)
    part.save_to_disk(str(tmp_path / "images"))
    data = HFDataset(Federation(participants=2, seed=seed), path=str(tmp_path / "images"), test_share=0.5, image_size=4)
    sources: Any = data.load()
    said = []
    for dataset in (sources.train, sources.test):
        for i in range(len(dataset)):
            try:
                assert int((dataset[i][0][0, 0, 0] + 1) * 127.5 + 0.5) == int(dataset.places[i].removeprefix("row "))
            except UserError as mistake:
                said.append(str(mistake))
    (sentence,) = said
    assert "in every row, but row 27 of --data.train cannot be read" in sentence


@pytest.mark.parametrize("seed", range(4))
def test_numbers_that_are_none_among_those_of_a_share(tmp_path: Path, seed: int) -> None:
    """Likewise; of several columns the one is named."""
    columns = table(60) | {"width": [math.inf if i == 41 else float(i) for i in range(60)]}
    path = str(tmp_path / "one")
    datasets.Dataset.from_dict(columns).save_to_disk(path)
    data = HFDataset(Federation(participants=2, seed=seed), path=path, inputs=["height", "width"], test_share=0.4)
    with pytest.raises(
        UserError, match=r"finite numbers in column width of --data.inputs, but row 41 of --data.train has NaN or inf"
    ):
        data.setup("fit")


def test_where_examples_come_from(tmp_path: Path) -> None:
    """A prediction is of another row than is said."""
    path = saved(tmp_path / "numbers", train=table(60), test=table(20))
    data = ready(HFDataset, path, inputs="height", test_share=0.3)
    for dataset in (data.sources.train, data.sources.test):
        scaled = dataset.tensors[0].flatten()
        numbers = torch.tensor([float(place.removeprefix("row ")) for place in dataset.places])
        assert torch.equal(scaled.argsort(), numbers.argsort())
    data = ready(HFDataset, path, inputs="height")
    assert [*data.sources.test.places] == [f"row {i}" for i in range(20)]


def unreadable(folder: Path) -> None:
    (folder / "train.parquet").write_text("this is no Parquet")


def half(folder: Path) -> None:
    (folder / "train.jsonl").write_text('{"label": 1}\n{"label": \n')


def empty_split(folder: Path) -> None:
    saved(folder, train=table(20), test=table(0))


def empty_file(folder: Path) -> None:
    (folder / "train.csv").write_text("label\n1\n")
    (folder / "test.csv").write_text("label\n")


def several(folder: Path) -> None:
    (folder / "a.csv").write_text("label\n1\n")
    configs = "".join(f"  - config_name: {name}\n    data_files: a.csv\n" for name in ("big", "small"))
    (folder / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda folder: None, "doesn't contain any data files.*write the folder anew"),
        (unreadable, r"cannot \(ArrowInvalid: Parquet .*mend what it says"),
        (half, "cannot .*JSON"),
        (empty_split, "give it rows, or write the folder without that split"),
        (empty_file, "give it rows, or write the folder without that split"),
        (several, r"available configs: \['big', 'small'\].*--data.name"),
    ],
)
def test_a_folder_that_cannot_be_read(spoil: Callable[[Path], None], expected: str, tmp_path: Path) -> None:
    """The sentence has the folder, the reason and what to do."""
    folder = tmp_path / "set"
    folder.mkdir()
    spoil(folder)
    with pytest.raises(UserError, match=expected) as caught:
        ready(HFDataset, str(folder))
    assert f"--data.path {folder}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_neither_a_folder_nor_a_network(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """A name on the hub that cannot be reached, a folder that is not there and a file end with a sentence each."""
    (tmp_path / "a.csv").write_text("label\n1\n")
    ended = rffl(
        "fit", "--data", "HFText", "--data.path", "somebody/something", "--model.network", "TextCNN", *SMALL
    )  # fmt: skip
    assert ended.code == 2
    (error,) = [line for line in ended.err.splitlines() if line.startswith("Error: ")]
    assert "Expected --data.path somebody/something to be a data set" in error
    assert "is there a network?" in error
    for path, expected in ((tmp_path / "nowhere", "there is no folder"), (tmp_path / "a.csv", "is a file; give")):
        with pytest.raises(UserError, match=expected):
            ready(HFText, str(path))


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is said."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"Expected the package datasets .*pip install datasets"):
        HFText(Federation(participants=2), path="anything").prepare_data()


def test_a_file_in_the_place_of_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder of the data would be blamed for a file that only has the package's name."""
    named = {"file": "datasets.py", "folder": "datasets/notes.txt"}
    for kind, name in named.items():
        place = tmp_path / kind / name
        place.parent.mkdir(parents=True)
        place.write_text("")
        monkeypatch.setitem(sys.modules, "datasets", None)  # so that what is there now comes back at the end
        monkeypatch.delitem(sys.modules, "datasets")
        monkeypatch.setattr(sys, "path", [str(tmp_path / kind)])
        meant = place if kind == "file" else place.parent
        with pytest.raises(UserError, match=f"but {meant} stands in its place; give that another name"):
            HFText(Federation(participants=2), path="anything").prepare_data()
