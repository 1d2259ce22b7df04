"""Examples that are a participant's own: read by the rank that hosts it, and by no other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

from torch.utils.data import Dataset

from rffl_pl.datamodules.border import Part
from rffl_pl.datamodules.preparing import called
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.splits import OWN, Split
from rffl_pl.datamodules.telling import told_by
from rffl_pl.errors import UserError

Own = Callable[[int], Dataset[Any]]
"""From a participant's number to the map-style dataset of (x, y) that is its own."""


def is_own(examples: Dataset[Any] | Own | None) -> TypeGuard[Own]:
    """Whether they are a function, and no dataset that can be called as well."""
    return callable(examples) and not hasattr(examples, "__getitem__")


def check_own(own: Mapping[str, Own], split: Split, each: int | None, owner: str) -> None:
    """See that what participants bring, by kind, can be taken as it is.

    Args:
        own: The functions that read it.
        split: How examples are divided.
        each: The average size of a shard that is asked for, if one is.
        owner: The data module's class, for messages.

    Raises:
        UserError: If the split is another than ``OWN``, training examples are not among it, or a size is asked for.
    """
    if not isinstance(split, OWN):
        raise UserError(
            f"Expected --data.split OWN for {owner}, whose participants have examples of their own, but got "
            f"{type(split).__name__}."
        )
    if "training" not in own:
        raise UserError(
            f"Expected {owner} to have training examples of everybody's own, as its {' and '.join(own)} examples "
            "are, but they are one data set; have load() return Sources(train=...) with a function as well."
        )
    if each is not None:
        raise UserError(
            "Expected no --data.examples_per_participant with --data.split OWN, where everybody trains on all that "
            f"is its own, but got {each}; leave it out, or give null."
        )


@dataclass(frozen=True)
class Holding:
    """What every rank is told of a participant's own examples.

    Attributes:
        examples: How many there are.
        classes: How many different classes they have.
        digest: Of their classes in their order; a checkpoint must agree with it.
        inputs: What tells their inputs from others', where anything does; a checkpoint must agree with that too.
    """

    examples: int
    classes: int
    digest: str
    inputs: str


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
            self.told[i] = Holding(len(part), len(part.labels.unique()), digest, told_by(dataset))


def by_participant(facts: Iterable[tuple[str, int, int, int, str, str]], total: int) -> dict[str, list[Holding]]:
    """What all ranks tell of the examples that they hold, by kind a `Holding` of every participant.

    Args:
        facts: Of which kind, whose, and a holding's own facts.
        total: How many participants there are.

    Raises:
        UserError: If somebody has none of a kind that others have.
    """
    told: dict[str, dict[int, Holding]] = {}
    for which, i, examples, classes, digest, inputs in sorted(facts):
        told.setdefault(which, {})[i] = Holding(examples, classes, digest, inputs)
    for which, holdings in told.items():
        without = [str(i) for i in range(total) if i not in holdings]
        if without:
            raise UserError(
                f"Expected {which} examples of everybody's own or of nobody's, but there are none of participant "
                f"{', '.join(without)}, and of others there are; put them there, or take the others' away."
            )
    return {which: list(holdings.values()) for which, holdings in told.items()}
