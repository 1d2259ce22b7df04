"""What a split is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.configured import Configured
from rffl_pl.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The training examples that are to be divided, less those that are held out.

    Attributes:
        labels: Their classes, ``[n]`` int64, in no particular order.
        num_classes: Number C of classes of the data set; some may be missing among the labels.
        participants: Number N of honest participants.
        each: Examples per participant, on average: as many as were asked for, or all there are by N.
        generator: The only source of randomness, the same on every rank.
        groups: Which of them belong together, ``[n]`` int64 from 0 on, where the data set says so.
        class_names: What the classes are called; none where they have no names.
    """

    labels: Tensor
    num_classes: int
    participants: int
    each: int
    generator: torch.Generator
    groups: Tensor | None = None
    class_names: Sequence[str] = ()


class Split(Configured, ABC):
    """A way to divide a pool among participants. Your own is a subclass with `cut`."""

    _group: ClassVar[str] = "--data.split"

    @abstractmethod
    def cut(self, pool: Pool) -> list[Tensor]:
        """The shard of every participant: N index vectors into ``pool.labels``, int64.

        Every rank cuts all shards, so they may depend on nothing but the pool. They need not hold all of it; whether
        they share examples is the split's to say.
        """


def drawn(available: int, size: int, generator: torch.Generator) -> Tensor:
    """``size`` different examples of ``available``, at random.

    Raises:
        UserError: If there are not as many.
    """
    if size > available:
        raise UserError(
            f"Expected at least {size} training examples for the participants, but there are {available}; lower "
            "--data.examples_per_participant or --federation.participants."
        )
    return torch.randperm(available, generator=generator)[:size]


def consecutive(order: Tensor, sizes: list[int]) -> list[Tensor]:
    """Slices one behind the other. Rounding up may promise more than there is: whoever comes last then goes short."""
    ends = torch.tensor(sizes).cumsum(0).clamp_max(len(order)).tolist()
    return [order[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def shuffled(indices: Tensor, generator: torch.Generator) -> Tensor:
    """The same indices in a random order."""
    return indices[torch.randperm(len(indices), generator=generator)]


def by_label(indices: Tensor, labels: Tensor) -> Tensor:
    """The same indices in the order of their classes, within a class as they came."""
    return indices[labels[indices].argsort(stable=True)]


def of_each_class(indices: Tensor, labels: Tensor, num_classes: int) -> list[Tensor]:
    """The same indices by their classes, one vector for each of C, within a class as they came."""
    counts = torch.bincount(labels[indices], minlength=num_classes)
    return [*by_label(indices, labels).split(counts.tolist())]
