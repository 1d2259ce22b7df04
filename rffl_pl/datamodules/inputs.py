"""Which inputs are looked at where not all are, and what tells all of them from others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

from rffl_pl.functional.fingerprints import bytes_of

_MOST = 2**28
"""Bytes of a data set that are read for its digest, about: a third of a second's work."""


def digest_of_inputs(inputs: Iterable[Tensor]) -> str:
    """Of inputs that lie in memory, ``[N, ...]`` of each data set; of large ones of every k-th example."""
    found = hashlib.sha256()
    for x in inputs:
        found.update(f"{tuple(x.shape)} {x.dtype}".encode())
        found.update(bytes_of(x[:: 1 + x.numel() * x.element_size() // _MOST].contiguous()).numpy().data)
    return found.hexdigest()[:16]


def spread(count: int, most: int) -> Tensor:
    """Evenly spread ones of the numbers below ``count``, at most so many, with the first and the last."""
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).round().long()
