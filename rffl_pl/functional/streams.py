"""Streams of random numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def random_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Everything drawn inside, on the CPU or on ``device``, comes from this seed; outside nothing changes.

    Python's and NumPy's own streams too: transformations of images and networks of users' own draw from them.
    """
    pythons, numpys = random.getstate(), np.random.get_state()
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
        random.setstate(pythons)
        np.random.set_state(numpys)
