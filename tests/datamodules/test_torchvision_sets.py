"""Fashion-MNIST, EMNIST, SVHN and CIFAR-100 on small files in their official layouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.datasets

from rffl_pl.datamodules import CIFAR100, EMNIST, SVHN, FashionMNIST, FederatedDataModule
from rffl_pl.datamodules.torchvision_images import TorchvisionImages
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.conftest import QUICK, Ended
from tests.datamodules.layouts import Bytes, Part, md5, some_images, write_cifar100, write_idx, write_svhn
from tests.datamodules.test_real_data import tensors_of

SMALL = (
    "--federation.participants", 3, "--data.examples_per_participant", 12, "--data.split", "UNI", "--data.batch_size",
    8, "--trainer.max_epochs", 1, *QUICK,
)  # fmt: skip
MNIST_PREFIXES = ("train", "t10k")
SUBSETS = {"balanced": 47, "byclass": 62, "bymerge": 47, "digits": 10, "letters": 26, "mnist": 10}


def grey(count: int, classes: int, first: int = 0) -> Part:
    return some_images(count, 28, 28, classes=classes, first=first)


def colour(count: int, classes: int) -> Part:
    return some_images(count, 3, 32, 32, classes=classes)


def ready(kind: type[TorchvisionImages], root: Path, **options: Any) -> FederatedDataModule:
    data = kind(Federation(participants=2), data_dir=str(root), examples_per_participant=10, **options)
    data.prepare_data()
    data.setup("fit")
    return data


def assert_standardised(data: FederatedDataModule, train: Bytes, test: Bytes) -> None:
    """Both are the files' bytes ``[n, channels, h, w]``, moved and scaled by the training images per channel."""
    x, _, x_test, _ = tensors_of(data)
    mean, deviation = train.mean((0, 2, 3), keepdims=True), train.std((0, 2, 3), keepdims=True)
    for given, images in ((x, train), (x_test, test)):
        assert torch.allclose(given.double(), torch.from_numpy((images - mean) / deviation), atol=1e-4)


def framed(images: Bytes) -> Bytes:
    return np.pad(images[:, None], ((0, 0), (0, 0), (2, 2), (2, 2)))


def test_fashion_mnist(rffl: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives alone are unpacked without a network, bytes and classes are the files', and a round is trained."""
    train, test = grey(60, 10), grey(20, 10)
    folder = write_idx(tmp_path / "FashionMNIST" / "raw", MNIST_PREFIXES, train, test, zipped=True)
    reader = torchvision.datasets.FashionMNIST
    known = [(archive, md5(folder / archive)) for archive, _ in reader.resources]
    monkeypatch.setattr(reader, "resources", known)
    data = ready(FashionMNIST, tmp_path)
    assert_standardised(data, framed(train[0]), framed(test[0]))
    _, y, _, y_test = tensors_of(data)
    assert (y.tolist(), y_test.tolist()) == (train[1].tolist(), test[1].tolist())
    assert (len(data.class_names), data.class_names[9]) == (10, "Ankle boot")
    ended = rffl("fit", "--config", "configs/fashion_mnist.yaml", "--data.data_dir", tmp_path, *SMALL)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("subset", SUBSETS)
@pytest.mark.filterwarnings("ignore:No honest participant")
def test_emnist(subset: str, tmp_path: Path) -> None:
    """Every part has its own files and classes from 0 on; images lie as in the file, which is transposed."""
    classes, first = SUBSETS[subset], int(subset == "letters")
    train, test = grey(130, classes, first), grey(62, classes, first)
    write_idx(tmp_path / "EMNIST" / "raw", (f"emnist-{subset}-train", f"emnist-{subset}-test"), train, test)
    data = ready(EMNIST, tmp_path, subset=subset)
    assert_standardised(data, framed(train[0]), framed(test[0]))
    _, y, _, y_test = tensors_of(data)
    assert (y.tolist(), y_test.tolist()) == ((train[1] - first).tolist(), (test[1] - first).tolist())
    assert data.num_classes == len(data.class_names) == classes
    assert data.class_names[0] == ("a" if subset == "letters" else "0")


def test_emnist_trains(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """The configuration's network fits 47 classes, and with an option the 26 letters; 10 outputs are refused."""
    for subset, classes, first in (("balanced", 47, 0), ("letters", 26, 1)):
        parts = (f"emnist-{subset}-train", f"emnist-{subset}-test")
        folder = tmp_path / subset / "EMNIST" / "raw"
        write_idx(folder, parts, grey(60, classes, first), grey(20, classes, first))
    config = ("fit", "--config", "configs/emnist.yaml", *SMALL, "--data.data_dir")
    assert rffl(*config, tmp_path / "balanced").code == 0
    letters = (*config, tmp_path / "letters", "--data.subset", "letters", "--model.network.classes")
    assert rffl(*letters, 26).code == 0
    refused = rffl(*letters, 10)
    assert refused.code == 2
    assert "Expected --model.network MNISTCNN to give logits of shape [20, 26]" in refused.err
    assert "give it 26 outputs" in refused.err


def test_svhn(rffl: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digit 0 is class 0, channels come first, and a round is trained."""
    train, test = colour(60, 10), colour(20, 10)
    write_svhn(tmp_path, train, test, monkeypatch)
    data = ready(SVHN, tmp_path)
    assert_standardised(data, train[0], test[0])
    x, y, _, y_test = tensors_of(data)
    assert x.is_contiguous()
    assert (y.tolist(), y_test.tolist()) == (train[1].tolist(), test[1].tolist())
    ended = rffl("fit", "--config", "configs/svhn.yaml", "--data.data_dir", tmp_path, *SMALL)
    assert ended.code == 0, ended.err


@pytest.mark.filterwarnings("ignore:No honest participant")
def test_cifar100(rffl: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fine classes with their names, channels first, and a round is trained with 100 outputs."""
    train, test = colour(120, 100), colour(20, 100)
    names = write_cifar100(tmp_path, train, test, monkeypatch)
    data = ready(CIFAR100, tmp_path)
    assert_standardised(data, train[0], test[0])
    _, y, _, y_test = tensors_of(data)
    assert (y.tolist(), y_test.tolist()) == (train[1].tolist(), test[1].tolist())
    assert (list(data.class_names), data.num_classes) == (names, 100)
    ended = rffl("fit", "--config", "configs/cifar100.yaml", "--data.data_dir", tmp_path, *SMALL)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        (FashionMNIST, "FashionMNIST/raw/ (train-images-idx3-ubyte, "),
        (EMNIST, "EMNIST/raw/ (emnist-balanced-train-images-idx3-ubyte, "),
        (SVHN, "/ (train_32x32.mat, test_32x32.mat)"),
        (CIFAR100, "cifar-100-python/ (train, test, meta)"),
    ],
)
def test_without_files_and_network(
    kind: type[TorchvisionImages], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the folder, its files and both ways to point elsewhere."""

    def fail(self: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(kind.reader, "download", fail)
    with pytest.raises(UserError) as caught:
        kind(Federation(participants=2), data_dir=str(tmp_path)).prepare_data()
    assert file in str(caught.value)
    assert all(part in str(caught.value) for part in ("failed (OSError", "--data.data_dir", "RFFL_DATA_DIR"))


@pytest.mark.parametrize(
    ("file", "content"),
    [("train-images-idx3-ubyte", b"half"), ("t10k-labels-idx1-ubyte", None), ("t10k-images-idx3-ubyte", b"")],
)
def test_a_damaged_file_without_a_published_checksum(file: str, content: bytes | None, tmp_path: Path) -> None:
    """A short or foreign file, or one of another length than its images, is named by its folder and what to do."""
    folder = write_idx(tmp_path / "FashionMNIST" / "raw", MNIST_PREFIXES, grey(60, 10), grey(20, 10))
    other = write_idx(tmp_path / "other", MNIST_PREFIXES, grey(60, 10), grey(19, 10))
    (folder / file).write_bytes((other / file).read_bytes() if content is None else content)
    part = "training" if file.startswith("train") else "test"
    with pytest.raises(UserError, match=f"Expected the {part} files of Fashion-MNIST in {folder}/ .*delete them"):
        ready(FashionMNIST, tmp_path)


def test_an_unknown_part_of_emnist() -> None:
    """It is refused with the nearest one."""
    with pytest.raises(UserError, match=r"--data.subset to be one of balanced, .*got letter; did you mean letters\?"):
        EMNIST(Federation(participants=2), subset="letter")  # type: ignore[arg-type]
