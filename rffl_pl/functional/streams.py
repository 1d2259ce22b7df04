"""Streams of random numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def random_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Everything drawn inside, on the CPU or on ``device``, comes from this seed; outside nothing changes.

    Python's and NumPy's own streams too: transformations of images and networks of users' own draw from them.
    """
    outside = python_numpy_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        # Not `torch.manual_seed`: for every kind of device that is not there it formats the stack, which takes longer
        # than a short training.
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            yield
    finally:
        restore_python_numpy(outside)


class Stream:
    """A stream of random numbers that goes on whenever it is entered again: on the CPU, Python's and NumPy's too.

    Args:
        seed: As of `random_stream`, which draws the same.

    Attributes:
        generator: Torch's.
    """

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self._others = random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()
        self._outside = self._others
        self._generators = self.generator.get_state()

    def __enter__(self) -> None:
        self._outside, self._generators = python_numpy_state(), torch.default_generator.get_state()
        torch.default_generator.set_state(self.generator.get_state())
        restore_python_numpy(self._others)

    def __exit__(self, *_: object) -> None:
        self.generator.set_state(torch.default_generator.get_state())
        self._others = python_numpy_state()
        torch.default_generator.set_state(self._generators)
        restore_python_numpy(self._outside)


def drawn_so_far(device: torch.device) -> bytes:
    """Where the streams are that `random_stream` sets: somewhere else after a draw."""
    pythons, (_, numpys, *place) = python_numpy_state()
    torchs = [torch.default_generator.get_state()]
    torchs += [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return b"".join([repr((pythons, place)).encode(), numpys.tobytes(), *(one.numpy().tobytes() for one in torchs)])


def python_numpy_state() -> tuple[Any, Any]:
    """Where Python's and NumPy's streams are."""
    return random.getstate(), np.random.get_state()


def restore_python_numpy(states: tuple[Any, Any]) -> None:
    """Have Python's and NumPy's streams be where `python_numpy_state` found them."""
    random.setstate(states[0])
    np.random.set_state(states[1])


def python_numpy_unchanged(states: tuple[Any, Any]) -> bool:
    """Whether nobody has drawn from Python's and NumPy's streams since they were there."""
    pythons, numpys = python_numpy_state()
    return bool(pythons == states[0]) and all(map(np.array_equal, numpys, states[1]))
