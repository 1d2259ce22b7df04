"""Data sets as they are on disk, how the paper's splits divide them, and what is said when they are not there."""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor
from torch.utils.data import TensorDataset
from torchvision.datasets import CIFAR10 as TorchvisionCIFAR10
from torchvision.datasets import MNIST as TorchvisionMNIST

from rffl_pl import datamodules
from rffl_pl.datamodules import CIFAR10, CLA, MNIST, FederatedDataModule
from rffl_pl.datamodules.files import data_dir, ensure
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.conftest import ROOT

DATA = os.environ.get("RFFL_DATA_DIR")
needs_data = pytest.mark.skipif(not DATA, reason="RFFL_DATA_DIR, the folder with MNIST and CIFAR-10, is not set")

MNIST_FILES = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
CIFAR10_FILES = [*[f"data_batch_{i}" for i in range(1, 6)], "test_batch", "batches.meta"]


def tensors_of(data: FederatedDataModule) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    assert data.sources is not None
    train, test = data.sources.train, data.sources.test
    assert isinstance(train, TensorDataset)
    assert isinstance(test, TensorDataset)
    return *train[:], *test[:]


@pytest.fixture(scope="module")
def mnist() -> Iterator[MNIST]:
    data = MNIST(Federation(participants=10), split="POW")
    data.prepare_data()
    data.setup("fit")
    yield data
    data.sources = None


@pytest.fixture(scope="module")
def cifar10() -> Iterator[CIFAR10]:
    data = CIFAR10(Federation(participants=10), split="UNI")
    data.prepare_data()
    data.setup("fit")
    yield data
    data.sources = None


@pytest.fixture(scope="module")
def loaded(mnist: MNIST, cifar10: CIFAR10) -> Callable[[str], dict[str, Any]]:
    """Class, options and contents of a shipped configuration's data set, read once."""
    sources = {"mnist": mnist.sources, "cifar10": cifar10.sources}

    def read(name: str) -> dict[str, Any]:
        given = yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text())["data"]
        kind, options = getattr(datamodules, given["class_path"].rpartition(".")[2]), given["init_args"]
        if name not in sources:
            sources[name] = kind(Federation(participants=5, seed=1), **options).load()
        return {"kind": kind, "options": options, "sources": sources[name]}

    return read


@needs_data
def test_mnist_has_its_shapes_and_counts(mnist: MNIST) -> None:
    """60,000 and 10,000 one-channel images of 32x32 in ten classes."""
    x, y, x_test, y_test = tensors_of(mnist)
    assert x.shape == (60000, 1, 32, 32)
    assert x_test.shape == (10000, 1, 32, 32)
    assert x.dtype == torch.float32
    assert torch.bincount(y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@needs_data
def test_mnist_is_standardised_by_its_training_images(mnist: MNIST) -> None:
    """Training images have mean 0 and deviation 1; test images have the training images' scale, not their own."""
    x, _, x_test, _ = tensors_of(mnist)
    assert float(x.mean()) == pytest.approx(0, abs=1e-3)
    assert float(x.std()) == pytest.approx(1, abs=1e-3)
    assert float(x_test.min()) == float(x.min())
    assert float(x_test.max()) == float(x.max())


@needs_data
def test_mnist_is_the_file_padded(mnist: MNIST) -> None:
    """The bytes of the file lie in the middle; the frame of two pixels is background."""
    x, y, _, _ = tensors_of(mnist)
    raw = data_dir(None) / "MNIST" / "raw"
    pixels = np.fromfile(raw / "train-images-idx3-ubyte", np.uint8, 20 * 784, offset=16).reshape(20, 28, 28)
    labels = np.fromfile(raw / "train-labels-idx1-ubyte", np.uint8, 20, offset=8)
    low, high = float(x.min()), float(x.max())
    image = torch.from_numpy(pixels).float() / 255 * (high - low) + low
    assert torch.allclose(x[:20, 0, 2:30, 2:30], image, atol=1e-5)
    assert bool((x[:, 0, [0, 1, 30, 31], :] == low).all())
    assert bool((x[:, 0, :, [0, 1, 30, 31]] == low).all())
    assert y[:20].tolist() == labels.tolist()


@needs_data
def test_mnist_power_law_of_ten(mnist: MNIST) -> None:
    """POW with N = 10 hands out 6,000 examples in ascending shards; 10 % of the training data are held out."""
    assert len(mnist.shard_sizes) == 10
    assert sum(mnist.shard_sizes) == 6000
    assert mnist.shard_sizes == sorted(mnist.shard_sizes)
    assert len(mnist.held_out) == 6000
    assert len(torch.cat([*mnist.shards, mnist.held_out]).unique()) == 12000


@needs_data
def test_cifar10_has_its_shapes_and_counts(cifar10: CIFAR10) -> None:
    """50,000 and 10,000 colour images of 32x32, the ten classes equally often."""
    x, y, x_test, y_test = tensors_of(cifar10)
    assert x.shape == (50000, 3, 32, 32)
    assert x_test.shape == (10000, 3, 32, 32)
    assert x.dtype == torch.float32
    assert torch.bincount(y).tolist() == [5000] * 10
    assert torch.bincount(y_test).tolist() == [1000] * 10


@needs_data
def test_cifar10_is_standardised_per_channel(cifar10: CIFAR10) -> None:
    """Every channel of the training images has mean 0 and deviation 1."""
    x = tensors_of(cifar10)[0]
    deviation, mean = torch.std_mean(x, dim=(0, 2, 3))
    assert torch.allclose(mean, torch.zeros(3), atol=1e-3)
    assert torch.allclose(deviation, torch.ones(3), atol=1e-3)


@needs_data
def test_cifar10_is_the_file_channels_first(cifar10: CIFAR10) -> None:
    """An image's channels are the file's red, green and blue planes, and its class the file's."""
    x, y, _, _ = tensors_of(cifar10)
    with (data_dir(None) / "cifar-10-batches-py" / "data_batch_1").open("rb") as file:
        batch = pickle.load(file, encoding="latin1")  # published, and its MD5 was checked
    planes = torch.from_numpy(batch["data"][:20]).view(20, 3, 32, 32).float()
    for channel in range(3):
        mine, published = x[:20, channel].flatten(), planes[:, channel].flatten()
        assert float(torch.corrcoef(torch.stack([mine, published]))[0, 1]) == pytest.approx(1, abs=1e-5)
    assert y[:20].tolist() == batch["labels"][:20]


@needs_data
def test_cifar10_shards_and_validation(cifar10: CIFAR10) -> None:
    """N = 10 participants hold 2,000 examples each; 20 % of the training data are held out."""
    assert cifar10.shard_sizes == [2000] * 10
    assert len(cifar10.held_out) == 10000
    assert len(torch.cat([*cifar10.shards, cifar10.held_out]).unique()) == 30000


@needs_data
@pytest.mark.parametrize("split", ["UNI", "POW", "CLA"])
@pytest.mark.parametrize(
    ("config", "participants"), [("mnist", 5), ("mnist", 10), ("mnist", 20), ("cifar10", 5), ("cifar10", 10)]
    + [(name, participants) for name in ("mr", "sst") for participants in (5, 10)],
)  # fmt: skip
def test_the_papers_splits_exist_for_its_numbers_of_participants(
    loaded: Callable[[str], dict[str, Any]], config: str, participants: int, split: str
) -> None:
    """From the shipped configuration alone, with the number of participants and the split, shards are as specified."""
    arguments = loaded(config)
    data = arguments["kind"](Federation(participants=participants, seed=1), **{**arguments["options"], "split": split})
    data.load = lambda: arguments["sources"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        data.setup("fit")
    pool = len(data._parts["training"]) - len(data.held_out)
    each = data.examples_per_participant or pool // participants
    assert sum(data.shard_sizes) == each * participants
    assert data.shard_sizes == (sorted(data.shard_sizes) if split == "POW" else [each] * participants)
    assert not torch.isin(torch.cat(data.shards), data.held_out).any()
    disjoint = len(torch.cat(data.shards).unique()) == each * participants
    assert disjoint == (split != "CLA" or config == "mnist" or (config, participants) == ("cifar10", 5))
    assert len(told) == (not disjoint)
    if split == "CLA":
        counts = torch.linspace(1, data.num_classes, participants, dtype=torch.float64).add(1e-9).long()
        assert data.classes == counts.tolist()


@needs_data
def test_the_papers_cifar10_by_class(loaded: Callable[[str], dict[str, Any]]) -> None:
    """N = 10 with 2,000 examples each, which disjoint shards do not allow: nobody repeats an image, many share some."""
    arguments = loaded("cifar10")
    data = CIFAR10(Federation(participants=10, seed=1), **{**arguments["options"], "split": "CLA"})
    data.load = lambda: arguments["sources"]  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match=r"10 shards of 2000 examples each on its own: (29|30)\.\d% .*several"):
        data.setup("fit")
    assert all(len(shard.unique()) == len(shard) == 2000 for shard in data.shards)
    data = CIFAR10(Federation(participants=10, seed=1), **{**arguments["options"], "split": CLA(draw="disjoint")})
    data.load = lambda: arguments["sources"]  # type: ignore[method-assign]
    with pytest.raises(UserError, match=r"at least 5856 examples of class 0 .*examples_per_participant to 13\d\d"):
        data.setup("fit")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads fail at once, as without a network, only sooner."""

    def fail(self: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(TorchvisionMNIST, "download", fail)
    monkeypatch.setattr(TorchvisionCIFAR10, "download", fail)


SETS = [(MNIST, "MNIST/raw", MNIST_FILES), (CIFAR10, "cifar-10-batches-py", CIFAR10_FILES)]
both_sets = pytest.mark.parametrize(("kind", "folder", "files"), SETS, ids=["MNIST", "CIFAR10"])


@both_sets
@pytest.mark.usefixtures("offline")
def test_missing_folder(kind: type[MNIST] | type[CIFAR10], folder: str, files: list[str], tmp_path: Path) -> None:
    """Without the folder the message has it, every expected file, the failure and both ways to point elsewhere."""
    with pytest.raises(UserError) as caught:
        kind(Federation(participants=2), data_dir=str(tmp_path)).prepare_data()
    message = str(caught.value)
    assert f"in {tmp_path / folder}/" in message
    assert all(f"{file} is missing" in message for file in files)
    assert all(part in message for part in ("failed (OSError", "--data.data_dir", "RFFL_DATA_DIR"))


def linked(folder: str, files: list[str], to: Path) -> Path:
    """A folder with links to a data set's real files."""
    target = to / folder
    target.mkdir(parents=True)
    for file in files:
        (target / file).symlink_to((data_dir(None) / folder / file).resolve())
    return target


@needs_data
@both_sets
@pytest.mark.usefixtures("offline")
def test_missing_file(kind: type[MNIST] | type[CIFAR10], folder: str, files: list[str], tmp_path: Path) -> None:
    """One file missing: only that one is said to be."""
    (linked(folder, files, tmp_path) / files[-1]).unlink()
    with pytest.raises(UserError, match=f"but {files[-1]} is missing and the download failed") as caught:
        kind(Federation(participants=2), data_dir=str(tmp_path)).prepare_data()
    assert str(caught.value).count("is missing") == 1
    assert all(file in str(caught.value) for file in [folder, *files])


@needs_data
@both_sets
@pytest.mark.usefixtures("offline")
def test_damaged_file(kind: type[MNIST] | type[CIFAR10], folder: str, files: list[str], tmp_path: Path) -> None:
    """One flipped bit in a file of labels or of class names is noticed before anything is trained on it."""
    victim = linked(folder, files, tmp_path) / files[-1]
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.unlink()
    victim.write_bytes(content)
    with pytest.raises(UserError, match=f"but {files[-1]} is damaged and the download failed") as caught:
        kind(Federation(participants=2), data_dir=str(tmp_path)).prepare_data()
    assert all(file in str(caught.value) for file in [folder, *files])


def checksums(**files: bytes) -> dict[str, str]:
    return {name: hashlib.md5(content).hexdigest() for name, content in files.items()}


def test_whole_files_are_not_downloaded_again(tmp_path: Path) -> None:
    """With every file in place nothing is fetched."""
    (tmp_path / "a").write_bytes(b"one")

    def download(root: Path) -> None:
        (tmp_path / "fetched").touch()

    ensure("Toy", tmp_path, "", checksums(a=b"one"), download)
    assert not (tmp_path / "fetched").exists()


def test_a_download_mends_missing_and_damaged_files(tmp_path: Path) -> None:
    """What is missing or damaged is fetched, what was there stays beside it, and what is whole is left alone."""
    place = tmp_path / "toy"
    place.mkdir()
    (place / "a").write_bytes(b"bad")
    (place / "c").write_bytes(b"own")

    def download(root: Path) -> None:
        (root / "toy").mkdir(exist_ok=True)
        for name, content in {"a": b"one", "b": b"two", "c": b"new"}.items():
            (root / "toy" / name).write_bytes(content)

    ensure("Toy", tmp_path, "toy", {**checksums(a=b"one", b=b"two"), "c": None}, download)
    found = {path.name: path.read_bytes() for path in place.iterdir()}
    assert found == {"a": b"one", "a.damaged": b"bad", "b": b"two", "c": b"own"}
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_several_who_download_at_once(tmp_path: Path) -> None:
    """Nodes that share a folder: nobody meets another's half a file."""
    met: list[Exception] = []

    def download(root: Path) -> None:
        for name in ("a", "b"):
            with (root / "toy" / name).open("wb") as file:
                for _ in range(20):
                    file.write(b"part")
                    file.flush()
                    time.sleep(0.002)

    def prepare(delay: float) -> None:
        time.sleep(delay)
        try:
            ensure("Toy", tmp_path, "toy", checksums(a=b"part" * 20, b=b"part" * 20), download)
            assert (tmp_path / "toy" / "a").read_bytes() == b"part" * 20
        except Exception as error:
            met.append(error)

    threads = [threading.Thread(target=prepare, args=(0.013 * k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert met == []
    assert sorted(path.name for path in (tmp_path / "toy").iterdir()) == ["a", "b"]


def test_a_download_that_mends_nothing(tmp_path: Path) -> None:
    """A download that ends without an error but leaves the damage does not pass for a success."""
    (tmp_path / "a").write_bytes(b"bad")
    with pytest.raises(UserError, match=f"files of Toy in {tmp_path}/ .*but a is damaged; b is missing; put"):
        ensure("Toy", tmp_path, "", checksums(a=b"one", b=b"two"), lambda root: None)
    assert (tmp_path / "a").read_bytes() == b"bad"


def test_where_data_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The option comes first, then RFFL_DATA_DIR, then `data`."""
    monkeypatch.setenv("RFFL_DATA_DIR", "/from/environment")
    assert data_dir("given") == Path("given")
    assert data_dir(None) == Path("/from/environment")
    monkeypatch.delenv("RFFL_DATA_DIR")
    assert data_dir(None) == Path("data")
