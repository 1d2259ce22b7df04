"""Small image data sets in the layouts in which the published ones lie on disk."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import scipy.io
import torchvision.datasets

Bytes = npt.NDArray[np.uint8]
Part = tuple[Bytes, Bytes]


def some_images(count: int, *shape: int, classes: int, first: int = 0) -> Part:
    """Random images whose classes take turns, from ``first`` on."""
    images = np.random.default_rng(count).integers(0, 256, (count, *shape), dtype=np.uint8)
    return images, (np.arange(count) % classes + first).astype(np.uint8)


def idx(array: Bytes) -> bytes:
    """The bytes of MNIST's file format: magic number, sizes, values."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder: Path, prefixes: tuple[str, str], train: Part, test: Part, *, zipped: bool = False) -> Path:
    """Four files, as MNIST, Fashion-MNIST and each part of EMNIST have; returns their folder."""
    folder.mkdir(parents=True)
    for prefix, part in zip(prefixes, (train, test), strict=True):
        for kind, array in zip(("images-idx3", "labels-idx1"), part, strict=True):
            content, name = idx(array), f"{prefix}-{kind}-ubyte"
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
    return folder


def write_cifar100(root: Path, train: Part, test: Part, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """``cifar-100-python``, known to torchvision by its checksums; returns the names of the classes."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, (images, labels) in (("train", train), ("test", test)):
        entry = {
            "filenames": [f"{i}.png" for i in range(len(labels))],
            "fine_labels": labels.tolist(),
            "coarse_labels": (labels // 5).tolist(),
            "data": images.reshape(len(images), -1),
        }
        (folder / name).write_bytes(pickle.dumps(entry, protocol=2))
    names = [f"thing {i}" for i in range(100)]
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names, "coarse_label_names": []}, protocol=2))
    reader = torchvision.datasets.CIFAR100
    monkeypatch.setattr(reader, "train_list", [["train", md5(folder / "train")]])
    monkeypatch.setattr(reader, "test_list", [["test", md5(folder / "test")]])
    monkeypatch.setattr(reader, "meta", reader.meta | {"md5": md5(folder / "meta")})
    return names


def write_svhn(root: Path, train: Part, test: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files of Matlab's, known to torchvision by their checksums: images last, 10 for the digit 0."""
    root.mkdir(parents=True, exist_ok=True)
    known = dict(torchvision.datasets.SVHN.split_list)
    for part, (images, labels) in (("train", train), ("test", test)):
        file = root / f"{part}_32x32.mat"
        digits = np.where(labels == 0, 10, labels).astype(np.uint8)
        scipy.io.savemat(file, {"X": images.transpose(2, 3, 1, 0), "y": digits[:, None]})
        known[part] = [*known[part][:2], md5(file)]
    monkeypatch.setattr(torchvision.datasets.SVHN, "split_list", known)


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()
