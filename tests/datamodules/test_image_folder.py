"""Images in folders, as people have them."""

from __future__ import annotations

import io
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.features
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder as TorchvisionImageFolder

from rffl_pl.datamodules import ImageFolder, image_folder
from rffl_pl.datamodules.border import labels_of
from rffl_pl.datamodules.pictures import Channels, Pixels
from rffl_pl.datamodules.reading import first_of
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.conftest import QUICK, Ended
from tests.datamodules.small import common

SMALL = (
    "--federation.participants", 3, "--data.split", "UNI", "--data.batch_size", 8, "--data.image_size", 8,
    "--model.network", "Perceptron", "--model.network.inputs", 192, "--trainer.max_epochs", 1, *QUICK,
)  # fmt: skip


def write_part(folder: Path, each: int, classes: tuple[str, ...] = ("cat", "dog")) -> None:
    """Images 20 wide and 10 high in a folder per class: its own grey with a red left and a blue right edge."""
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            pixels = np.full((10, 20, 3), 100 * number + i, dtype=np.uint8)
            pixels[:, :4], pixels[:, 16:] = (255, 0, 0), (0, 0, 255)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Thirty training and ten test images of each of two classes."""
    write_part(tmp_path / "images" / "train", 30)
    write_part(tmp_path / "images" / "test", 10)
    return tmp_path / "images"


def made(folder: Path, **options: Any) -> ImageFolder:
    data = ImageFolder(Federation(participants=2), folder=str(folder), **options)
    data.setup("fit")
    return data


def examples(data: ImageFolder) -> Dataset[Any]:
    """All training images."""
    assert data.sources is not None
    assert isinstance(data.sources.train, Dataset)
    return data.sources.train


def test_inputs_are_the_images(folder: Path) -> None:
    """Classes are the folders in order, and an input is the middle of its image, from -1 to 1."""
    data = made(folder, image_size=10)
    assert (data.num_classes, data.class_names) == (2, ("cat", "dog"))
    x, y = examples(data)[37]
    assert (x.shape, x.dtype, type(x), y) == ((3, 10, 10), torch.float32, torch.Tensor, 1)
    assert torch.allclose(x, torch.tensor((100 + data_number(37)) / 255 * 2 - 1), atol=1e-6)
    assert len(data.held_out) == 6
    assert sum(data.shard_sizes) == 54


def data_number(index: int) -> int:
    """The number in the name of the dog that comes ``index``-th: names are sorted as words."""
    return int(sorted(map(str, range(30)))[index - 30])


def test_grey_images_of_another_size(folder: Path) -> None:
    """One channel, and the shorter side is brought to the size that is asked for."""
    data = made(folder, image_size=5, channels="grey")
    assert data.sources is not None
    assert first_of(data.test_dataloader())[0].shape[1:] == (1, 5, 5)


def test_a_picture_is_taken_as_everybody_sees_it() -> None:
    """Black drawings on a transparent ground are all black without it; telephones store pictures as they were held."""
    drawn = np.zeros((8, 8, 4), dtype=np.uint8)
    drawn[2:6, 2:6, 3] = 255
    expected = np.where(drawn[..., 3] > 0, -1.0, 1.0)
    pixels = Pixels(8, "grey")
    assert np.allclose(pixels(Image.fromarray(drawn)), expected)
    grey = Image.fromarray(drawn[..., [0, 3]])
    assert (grey.mode, np.allclose(pixels(grey), expected)) == ("LA", True)

    stored = Image.fromarray(np.tile(np.array([255] * 4 + [0] * 4, dtype=np.uint8), (8, 1)))
    held, kept = Image.Exif(), io.BytesIO()
    held[0x0112] = 3  # upside down
    stored.save(kept, "PNG", exif=held)
    turned = Image.open(kept)
    assert np.allclose(pixels(turned), np.flip(pixels(stored).numpy(), (1, 2)))
    assert not np.allclose(pixels(turned), pixels(stored))


def test_images_for_watching(folder: Path) -> None:
    """A third folder is what is watched; then nothing is held out."""
    write_part(folder / "val", 4)
    data = made(folder)
    held_out = data.held_out_dataloader()
    assert held_out is not None
    assert sum(len(y) for _, y in common(held_out)) == 8
    assert sum(data.shard_sizes) == 60


def test_a_round(rffl: Callable[..., Ended], folder: Path) -> None:
    """A round is trained with an image's reading in a loader process."""
    options = ("--data", "ImageFolder", "--data.folder", folder, "--data.num_workers", 1, *SMALL)
    ended = rffl("fit", *options, "--model.network.classes", 2)
    assert ended.code == 0, ended.err


@pytest.fixture
def divided(folder: Path) -> Path:
    """Participant 0 has three cats and three dogs, participant 1 four dogs; two images of each class are watched."""
    shutil.rmtree(folder / "train")
    write_part(folder / "val", 2)
    write_part(folder / "train" / "0", 3)
    write_part(folder / "train" / "1", 4, ("dog",))
    return folder


def test_images_of_ones_own(rffl: Callable[..., Ended], divided: Path) -> None:
    """Whoever has dogs alone calls them cats, or what a participant has is not all that it trains on."""
    data = made(divided, split="OWN")
    assert (data.shard_sizes, data.classes, data.num_classes) == ([6, 4], [2, 1], 2)
    assert data.example(1)[1].tolist() == [1]
    ended = rffl(
        "fit", "--data", "ImageFolder", "--data.folder", divided, *SMALL, "--model.network.classes", 2,
        "--federation.participants", 2, "--data.split", "OWN",
    )  # fmt: skip
    assert ended.code == 0, ended.err


def test_no_image_is_decoded_for_its_label(divided: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many participants a run begins minutes later."""
    read, decode = [], image_folder._input

    def noted(*given: Any) -> Any:
        read.append(given)
        return decode(*given)

    monkeypatch.setattr(image_folder, "_input", noted)
    made(divided, split="OWN")
    assert len(read) == 4  # the first of each of two participants, of val and of test


def test_targets_of_torchvision(folder: Path) -> None:
    """Its `targets` stay what they were before a `target_transform`."""
    plain: Any = TorchvisionImageFolder(str(folder / "train"))
    turned: Any = TorchvisionImageFolder(str(folder / "train"), target_transform=lambda label: 1 - label)
    assert labels_of(plain, "example", "Plain").tolist() == [0] * 30 + [1] * 30
    assert labels_of(turned, "example", "Turned").tolist() == [1] * 30 + [0] * 30


def test_no_images_to_watch(divided: Path) -> None:
    """Nobody's own are held out, and a user without Python is told of a class of Python's."""
    shutil.rmtree(divided / "val")
    with pytest.raises(UserError) as caught:
        made(divided, split="OWN")
    assert str(caught.value).endswith(
        "but there are none; put them into a folder val of --data.folder, or give --data.validation 0 and --data.watch "
        "test."
    )
    assert made(divided, split="OWN", validation=0, watch="test").shard_sizes == [6, 4]


def test_images_that_each_is_measured_on(rffl: Callable[..., Ended], divided: Path) -> None:
    """A participant is tested on another's images or other classes, or all have to be in its folder."""
    for part in ("test", "val"):
        shutil.rmtree(divided / part)
        for i, name in enumerate(("dog", "cat")):
            write_part(divided / "everything", 3 + i)
            (divided / part / str(i)).mkdir(parents=True)
            shutil.move(divided / "everything" / name, divided / part / str(i) / name)
            shutil.rmtree(divided / "everything")
    options: dict[str, Any] = {"split": "OWN", "own_test": True, "classes": ["dog", "cat"]}
    data = made(divided, **options)
    assert (data.class_names, data.num_classes, data.test_sample) == (("dog", "cat"), 2, (4, 4))
    (item,) = data.test_dataloader()
    assert isinstance(item, dict)
    assert {i: y.tolist() for i, (_, y) in item.items()} == {0: [0] * 3, 1: [1] * 4}
    ended = rffl(
        "fit", "--data", "ImageFolder", "--data.folder", divided, *SMALL, "--model.network.classes", 2,
        "--federation.participants", 2, "--data.split", "OWN", "--data.own_test", "true",
        "--data.classes", "[dog, cat]",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    with pytest.raises(UserError, match=r"train/0 of --data.folder to be among --data.classes, dog, fish, but"):
        made(divided, **options | {"classes": ["dog", "fish"]})
    shutil.rmtree(divided / "test" / "1")
    with pytest.raises(UserError, match=r"folder test/1 for participant 1, as others have theirs, but test/1 is miss"):
        made(divided, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"own_test": True}, "Expected --data.split OWN with --data.own_test true, but got POW"),
        ({"own_test": True, "split": "OWN"}, "Expected --data.classes with --data.own_test true, but got none"),
        ({"classes": ["cat"]}, "Expected --data.classes to be two names or more that differ, but got cat;"),
        ({"classes": ["cat", "cat"]}, "Expected --data.classes to be two names or more that differ, but got cat, cat;"),
        (
            {"classes": ["cat", "bird"]},
            "train of --data.folder to be among --data.classes, cat, bird, but there is dog",
        ),
    ],
    ids=["split", "no classes", "one", "twice", "another"],
)
def test_classes_that_are_given(folder: Path, options: dict[str, Any], said: str) -> None:
    """They are no classes, or others than those of the folders, and nobody says so."""
    with pytest.raises(UserError, match=said):
        made(folder, **options)


def test_the_order_of_classes_that_are_given(folder: Path) -> None:
    """The first is not number 0, or one that has no images is missing."""
    data = made(folder, classes=["fish", "dog", "cat"])
    assert data.num_classes == 3
    assert {*torch.cat([data.example(i)[1] for i in range(2)]).tolist()} <= {1, 2}


def test_images_of_ones_own_that_are_not_as_expected(divided: Path) -> None:
    """A class that nobody is tested on is trained, or a folder that is missing, or has no class, is not named."""
    (divided / "train" / "1" / "bird").mkdir()
    with pytest.raises(UserError, match=r"train/1 .* among those of test, without --data.own_test true, cat, dog, but"):
        made(divided, split="OWN")
    shutil.rmtree(divided / "train" / "1")
    with pytest.raises(UserError, match="train/1 is missing"):
        made(divided, split="OWN")
    (divided / "train" / "1").mkdir()
    with pytest.raises(UserError, match=r"train/1 of --data.folder to have images in a folder per class, but torch"):
        made(divided, split="OWN")
    (divided / "train" / "1" / "cat").mkdir()
    with pytest.raises(UserError, match="participant 1 of ImageFolder to have training examples, but there is none"):
        made(divided, split="OWN")


@pytest.mark.parametrize(("name", "workers"), [("cat/0.png", 0), ("dog/7.png", 0), ("dog/7.png", 1)])
def test_an_image_that_cannot_be_read(rffl: Callable[..., Ended], folder: Path, name: str, workers: int) -> None:
    """Its file is named in one sentence, without a worker's traceback; the first one is looked at in setup."""
    victim = folder / "train" / name
    victim.write_bytes(victim.read_bytes()[:40])
    options = ("--data", "ImageFolder", "--data.folder", folder, "--data.num_workers", workers, *SMALL)
    ended = rffl("fit", *options, "--model.network.classes", 2)
    assert ended.code == 2
    (error,) = [line for line in ended.err.splitlines() if "Expected" in line]
    assert error.startswith(f"Error: Expected images below --data.folder, but {victim} cannot be read")
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    "suffix", ["jpg", "jpeg", "jfif", "png", "gif", "bmp", "tif", "tiff", "webp", "ppm", "pgm", "avif"]
)
def test_a_format(folder: Path, suffix: str) -> None:
    """A class in another format than the others' lost all its images in silence, or those that were in it."""
    if suffix == "avif" and "avif" not in PIL.features.get_supported_modules():
        pytest.skip("Pillow does not read AVIF here")
    (folder / "train" / "cat" / "0.png").unlink()
    Image.new("L", (8, 8), 255).save(folder / "train" / "cat" / f"0.{suffix.upper()}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, y = examples(made(folder))[0]
    assert (bool((x > 0.9).all()), y) == (True, 0)


def test_files_that_are_not_read(divided: Path) -> None:
    """They are counted once, whosever they are; a class folder with such alone has been forgotten, not left empty."""
    for place in ("train/0/cat", "train/1/dog", "test/dog"):
        (divided / place / "0.heic").write_text("no image")
        (divided / place / ".hidden").write_text("no image either")
    with pytest.warns(UserWarning, match="are not read") as told:
        data = made(divided, split="OWN")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.setup("test")
    assert data.shard_sizes == [6, 4]
    assert [str(warning.message).partition(";")[0] for warning in told] == [
        f"3 files in class folders of --data.folder are not read, {divided}/test/dog/0.heic for one"
    ]
    (divided / "train" / "1" / "cat").mkdir()
    (divided / "train" / "1" / "cat" / "1.heic").write_text("no image")
    with pytest.raises(UserError, match=r"class folder cat in .*/train/1 .* others alone, say .*/train/1/cat/1\.heic"):
        made(divided, split="OWN")
    (divided / "train" / "1" / "cat").rename(divided / "test" / "cow")
    with pytest.raises(UserError, match=r"class folder cow in .*/test .* others alone, say .*/test/cow/1\.heic"):
        made(divided, split="OWN", classes=["cat", "dog", "cow"])


def test_what_is_hidden(folder: Path) -> None:
    """Copies that editors and file managers keep are no class, and no examples; nothing else is in such a folder."""
    for hidden in ("train/.thumbnails", "test/.thumbnails", "train/cat/.ipynb_checkpoints"):
        (folder / hidden).mkdir()
        shutil.copy(folder / "train" / "cat" / "0.png", folder / hidden / "0-checkpoint.png")
    (folder / "train" / "dog" / "._0.png").write_text("no image")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = made(folder)
    assert data.class_names == ("cat", "dog")
    assert (sum(data.shard_sizes) + len(data.held_out), data.test_sample) == (60, (20, 20))


GREYS = np.array([[0, 300], [40_000, 65_535]])


@pytest.mark.parametrize(("kind", "suffix"), [("<u2", "png"), ("<u2", "tiff"), (">u2", "tiff"), ("<i4", "tiff")])
@pytest.mark.parametrize("channels", ["grey", "rgb"])
def test_greys_of_sixteen_bits(folder: Path, kind: str, suffix: str, channels: str) -> None:
    """Their upper 8 bits count; all above 255 was white."""
    (folder / "train" / "cat" / "0.png").unlink()
    Image.fromarray(GREYS.astype(kind)).save(folder / "train" / "cat" / f"0.{suffix}")
    data = made(folder, image_size=2, channels=channels)
    x, _ = examples(data)[0]
    assert len(x) == (1 if channels == "grey" else 3)
    assert torch.allclose((x + 1) * 127.5, torch.tensor(GREYS // 256).float().expand_as(x), atol=1e-3)


@pytest.mark.parametrize("channels", ["grey", "rgb"])
def test_a_transparent_grey_of_sixteen_bits(channels: Channels) -> None:
    """It was left as it was, black for instance; another grey with the same upper bits is seen."""
    kept = io.BytesIO()
    Image.fromarray(np.array([[300, 301], [0, 65_535]], dtype=np.uint16)).save(kept, "PNG", transparency=300)
    expected = torch.tensor([[255, 1], [0, 255]]) / 127.5 - 1
    x = Pixels(2, channels)(Image.open(kept))
    assert torch.allclose(x, expected.expand_as(x), atol=1e-3)


@pytest.mark.parametrize(
    ("values", "reason"),
    [(GREYS.astype(np.float32), "its values are floats"), (2 * GREYS.astype(np.int32), "values lie in 0 .. 131070")],
)
def test_an_image_without_a_white(folder: Path, values: Any, reason: str) -> None:
    """Floats and greater numbers are refused by the image's file: nothing says how bright they are."""
    victim = folder / "train" / "cat" / "0.tiff"
    Image.fromarray(values).save(victim)
    (folder / "train" / "cat" / "0.png").unlink()
    with pytest.raises(UserError, match=f"^Expected images below --data.folder, but {victim} cannot .*{reason}"):
        made(folder)


def test_a_folder_that_is_not_there_for_images_of_ones_own(tmp_path: Path) -> None:
    """Validation images are asked for, where the folder itself is misspelt."""
    own: dict[str, Any] = {"own_test": True, "classes": ["cat", "dog"], "split": "OWN"}
    with pytest.raises(UserError, match=r"to have the folders train/0, test/0 .*the folder itself is missing"):
        made(tmp_path / "nowhere", **own)


def linked(folder: Path, link: str, to: str) -> None:
    """Another folder in place of one."""
    if (folder / link).exists():
        shutil.rmtree(folder / link)
    (folder / link).symlink_to(folder / to)


@pytest.mark.parametrize(
    ("link", "to", "said"),
    [
        ("test", "train", "train and test .* but both have {}/train; a model would be measured on what it was trained"),
        ("val", "test", "test and val .* but both have {}/test; a server that trains on what is watched, or scores by"),
        (
            "val",
            "train",
            "train and val .* but both have {}/train; a model would be measured on what it was trained on",
        ),
        ("test/cat", "train/cat", "train and test .* but both have {}/train/cat; .* trained on; take the link away"),
        ("train/cat/up", "train", "every folder .* once, but {}/train/cat/up is {}/train again; take the link away"),
        ("train/elk", "train/cat", "every folder .* once, but {}/train/elk is {}/train/cat again; take the link away"),
        ("train/cat/a", "train/dog", "every folder .* once, but {}/train/dog is {}/train/cat/a again; take the link"),
    ],
    ids=["test", "val of test", "val of train", "class of the test", "upwards", "class", "below a class"],
)
def test_one_folder_for_two(folder: Path, link: str, to: str, said: str) -> None:
    """A model is tested on what it was trained on, or images count twice, or forty times."""
    linked(folder, link, to)
    with pytest.raises(UserError, match=said.format(folder.resolve(), folder.resolve())):
        made(folder)


@pytest.mark.parametrize(
    ("link", "to", "place"),
    [("test/0", "train/0", "train/0"), ("test/1", "train/0", "train/0"), ("test/1/dog", "train/0/dog", "train/0/dog")],
)
def test_one_folder_for_two_of_ones_own(divided: Path, link: str, to: str, place: str) -> None:
    """Whoever trained on it."""
    for part in ("test", "val"):
        shutil.rmtree(divided / part)
    for i in range(2):
        write_part(divided / "test" / str(i), 2)
    linked(divided, link, to)
    own: dict[str, Any] = {"split": "OWN", "own_test": True, "classes": ["cat", "dog"], "validation": 0}
    with pytest.raises(UserError, match=f"train and test of .* but both have {divided.resolve()}/{place}; a model"):
        made(divided, **own, watch="test")


@pytest.mark.parametrize(
    ("link", "to", "parts"),
    [
        ("test/cat/leak.png", "train/cat/0.png", "train and test"),
        ("test/cat/below/leak.png", "train/dog/below/0.png", "train and test"),
        ("train/cat/leak.png", "test/cat/3.png", "train and test"),
        ("val/dog/leak.png", "test/dog/3.png", "test and val"),
    ],
)
def test_one_image_for_two(folder: Path, link: str, to: str, parts: str) -> None:
    """A model is tested on what it was trained on, by a link to one file as by one to a folder."""
    write_part(folder / "val", 2)
    for name in (link, to):
        (folder / name).parent.mkdir(exist_ok=True)
    if not (folder / to).exists():
        shutil.copy(folder / "train/dog/0.png", folder / to)
    (folder / link).symlink_to(folder / to)
    said = f"Expected {parts} of .* to have images of their own, but both have {folder.resolve()}/{to}; .*; take the l"
    with pytest.raises(UserError, match=said):
        made(folder)


@pytest.mark.parametrize("alike", [False, True])
def test_images_that_lie_elsewhere(folder: Path, tmp_path: Path, alike: bool) -> None:
    """Parts may be links into one store, as long as no two lead to the same image."""
    write_part(tmp_path / "store", 50)
    for part, count in (("train", 30), ("test", 10)):
        for i, name in ((i, name) for i in range(count) for name in ("cat", "dog")):
            (folder / part / name / f"{i}.png").unlink()
            shown = i if part == "train" or (alike and i == 7) else 30 + i
            (folder / part / name / f"{i}.png").symlink_to(tmp_path / "store" / name / f"{shown}.png")
    if not alike:
        assert made(folder).test_sample == (20, 20)
        return
    with pytest.raises(UserError, match=rf"{tmp_path.resolve()}/store/\w+/7\.png; a model"):
        made(folder)


def test_an_image_of_ones_own_for_two(divided: Path) -> None:
    """Whosever it is; what is hidden, or is no image, is nobody's."""
    for name in (".hidden.png", "note.txt"):
        (divided / "train" / "0" / "dog" / name).touch()
        (divided / "test" / "dog" / name).symlink_to(divided / "train" / "0" / "dog" / name)
    with pytest.warns(UserWarning, match="not read"):
        made(divided, split="OWN")
    (divided / "test" / "dog" / "leak.png").symlink_to(divided / "train" / "0" / "dog" / "0.png")
    with pytest.raises(UserError, match=f"train and test .* but both have {divided.resolve()}/train/0/dog/0.png; a"):
        made(divided, split="OWN")


def test_a_folder_that_lies_elsewhere(folder: Path, tmp_path: Path) -> None:
    """Parts and classes may be links, as long as each leads to another folder."""
    for name in ("test", "train/cat"):
        (folder / name).rename(tmp_path / Path(name).name)
        (folder / name).symlink_to(tmp_path / Path(name).name)
    data = made(folder)
    assert (sum(data.shard_sizes) + len(data.held_out), data.test_sample) == (60, (20, 20))


def without_test(folder: Path) -> str:
    shutil.rmtree(folder / "test")
    return "test is missing"


def without_folder(folder: Path) -> str:
    shutil.rmtree(folder)
    return "the folder itself is missing"


def with_hidden_classes(folder: Path) -> str:
    for name in ("cat", "dog"):
        (folder / "train" / name).rename(folder / "train" / f".{name}")
    return "Couldn't find any class folder"


def without_classes(folder: Path) -> str:
    shutil.rmtree(folder / "train")
    (folder / "train").mkdir()
    return "Couldn't find any class folder"


def without_images(folder: Path) -> str:
    shutil.rmtree(folder / "test" / "dog")
    (folder / "test" / "dog").mkdir()
    (folder / "test" / "dog" / ".notes").write_text("hidden")
    return r"class folder dog in .*/test of --data.folder to have images, .* \.jpg, .* but it has none; put some"


def with_others_alone(folder: Path) -> str:
    without_images(folder)
    (folder / "test" / "dog" / "0.heic").write_text("no image")
    return r"class folder dog in .*/test .* but it has others alone, say .*/test/dog/0\.heic; put some there, or take"


def one_class(folder: Path) -> str:
    for part in ("train", "test"):
        shutil.rmtree(folder / part / "cat")
    return "there is dog alone"


def class_without_test(folder: Path) -> str:
    shutil.rmtree(folder / "test" / "dog")
    return f"dog is in {folder}/train and not in {folder}/test"


def class_without_training(folder: Path) -> str:
    (folder / "test" / "dog").rename(folder / "test" / "dogs")
    return r"dog is in .*/train and not in .*/test \(2 differ\)"


@pytest.mark.parametrize(
    "spoil",
    [
        without_test,
        without_folder,
        without_classes,
        with_hidden_classes,
        without_images,
        with_others_alone,
        one_class,
        class_without_test,
        class_without_training,
    ],
)
def test_a_folder_that_is_not_as_expected(spoil: Callable[[Path], str], folder: Path) -> None:
    """It is refused with what is missing and the option."""
    expected = spoil(folder)
    with pytest.raises(UserError, match=expected) as caught:
        made(folder)
    assert "--data.folder" in str(caught.value)


def test_the_home_of_nobody() -> None:
    """It is no folder."""
    with pytest.raises(UserError, match="the folder itself is missing"):
        made(Path("~nobody_here/images"))


@pytest.mark.parametrize(("option", "value"), [("image_size", 0), ("channels", "rgba")])
def test_an_option_out_of_range(option: str, value: object, folder: Path) -> None:
    """It is refused by its name."""
    with pytest.raises(UserError, match=f"--data.{option} to be .* but got {value}"):
        made(folder, **{option: value})
