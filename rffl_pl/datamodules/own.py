"""Examples that are a participant's own: read by the rank that hosts it, and by no other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

from torch.utils.data import Dataset

from rffl_pl.datamodules.border import Part
from rffl_pl.datamodules.preparing import called
from rffl_pl.datamodules.reading import Reader

Own = Callable[[int], Dataset[Any]]
"""From a participant's number to the map-style dataset of (x, y) that is its own."""


def is_own(examples: Dataset[Any] | Own | None) -> TypeGuard[Own]:
    """Whether they are a function, and no dataset that can be called as well."""
    return callable(examples) and not hasattr(examples, "__getitem__")


@dataclass(frozen=True)
class Holding:
    """What every rank is told of a participant's own examples.

    Attributes:
        examples: How many there are.
        classes: How many different classes they have.
        digest: Of their classes in their order; a checkpoint must agree with it.
    """

    examples: int
    classes: int
    digest: str


class Holdings:
    """The own examples of the participants that a rank hosts.

    Args:
        own: Reads one participant's.
        hosted: Whose are read here.
        which: ``training``, ``validation`` or ``test``, for messages.
        owner: The data module's class, for messages.
        num_classes: Number C of classes.
        num_workers: Worker processes for datasets that are not in memory.

    Attributes:
        readers: What reads them, by participant.
        told: What is told of them, by participant.

    Raises:
        UserError: If they cannot be read or used, with the participant's number.
    """

    def __init__(
        self, own: Own, hosted: Sequence[int], *, which: str, owner: str, num_classes: int, num_workers: int
    ) -> None:
        self.readers: dict[int, Reader] = {}
        self.told: dict[int, Holding] = {}
        for i in hosted:
            examples = "examples" if which == "training" else f"{which} examples"
            dataset = called(partial(own, i), f"{owner} to read the {examples} of participant {i}")
            part = Part(dataset, which=which, owner=f"participant {i} of {owner}", num_classes=num_classes)
            self.readers[i] = Reader(dataset, num_workers, part.check)
            digest = hashlib.sha256(part.labels.numpy().tobytes()).hexdigest()[:16]
            self.told[i] = Holding(len(part), len(part.labels.unique()), digest)
