"""What tells a dataset's inputs from others that stand in their place, wherever they lie."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any, Protocol

import torch
from torch.utils.data import Dataset

from rffl_pl.datamodules.border import tensors_of
from rffl_pl.datamodules.inputs import digest_of_inputs, spread
from rffl_pl.datamodules.preparing import called
from rffl_pl.datamodules.sentences import Sentences

LOOKED_AT = 32
"""Files of a dataset whose bytes are read for its fingerprint."""
_BYTES = 2**23
"""Of each file, from its beginning: with all of them no more than a quarter of a second's work."""


def said_by(dataset: Dataset[Any]) -> str:
    """What a dataset that does not lie in memory says its inputs are told by, its `fingerprint`; else nothing.

    Raises:
        UserError: If it cannot say.
    """
    if tensors_of(dataset) is not None:
        return ""
    said = called(lambda: getattr(dataset, "fingerprint", None), f"{type(dataset).__name__} to have its fingerprint")
    return said if isinstance(said, str) else ""


def told_by(dataset: Dataset[Any]) -> str:
    """What tells a dataset's inputs from others': a digest of those in memory, or what it says itself, or nothing."""
    if (tensors := tensors_of(dataset)) is not None:
        return digest_of_inputs([tensors[0]])
    if isinstance(dataset, Sentences):
        return digest_of_inputs([dataset.lengths, torch.cat(dataset.tokens)])
    return said_by(dataset)


class Stored(Protocol):
    """Examples as they are stored, each in a file."""

    def __len__(self) -> int: ...

    def opened(self, index: int) -> IO[bytes]:
        """The file of one."""


def fingerprint_of(names: Iterable[bytes], stored: Stored) -> str:
    """Of the names of all files and the bytes of some, in their order."""
    found = hashlib.sha256(b"\0".join(names))
    for index in spread(len(stored), LOOKED_AT).tolist():
        found.update(hashlib.sha256(_beginning_of(stored, index)).digest())
    return found.hexdigest()[:16]


def _beginning_of(stored: Stored, index: int) -> bytes:
    """What counts of a file: its bytes, not what a decoder makes of them, which another release of it makes otherwise.

    Nothing of one that cannot be read, as whoever decodes it says.
    """
    with suppress(Exception), stored.opened(index) as file:  # whatever formats, files and networks can meet
        return file.read(_BYTES)
    return b""
