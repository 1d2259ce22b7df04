"""CLA: more and more classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from rffl_pl.datamodules.splits.base import Pool, Split, of_each_class, shuffled
from rffl_pl.errors import UserError

Draw = Literal["auto", "disjoint", "released"]

_AT_ONCE = 1024
"""Sizes of shards that are tried together."""


class CLA(Split):
    """Equal shards from more and more classes, the first participant's from one; see `wanted`.

    Args:
        draw: ``disjoint``: nobody shares an example, and data that does not suffice for that is refused. ``auto``:
            disjoint where the data suffices, else every shard is drawn on its own from all examples, without repeats
            while a class has enough for the one shard; a warning says which share of the examples several hold.
            ``released``: every shard is drawn on its own with replacement, as in the authors' code.

    Raises:
        UserError: In `cut`, if there are too few examples: for disjoint shards, or altogether for one shard.
    """

    def __init__(self, *, draw: Draw = "auto") -> None:
        self.draw = draw

    def cut(self, pool: Pool) -> list[Tensor]:
        """N shards of ``pool.each`` examples."""
        labels, classes, generator, names = pool.labels, pool.num_classes, pool.generator, pool.class_names
        counts = wanted(classes, pool.participants, pool.each)
        if self.draw == "disjoint" or (self.draw == "auto" and suffices(labels, counts)):
            return by_class(labels, classes, pool.participants, pool.each, generator, names)
        if pool.each > len(labels):
            raise UserError(
                f"Expected at least {pool.each} training examples for a shard of split CLA, but there are "
                f"{len(labels)}; lower --data.examples_per_participant."
            )
        released = self.draw == "released"
        shards = on_their_own(labels, counts, replacement=released, generator=generator, names=names)
        shared, repeated = overlap(shards)
        rank_zero_warn(
            f"Split CLA drew {pool.participants} shards of {pool.each} examples each on its own: {shared:.1%} of the "
            "examples that they hold are held by several participants"
            + (f" and {repeated:.1%} of their places repeat an example of the same shard" if repeated else "")
            + "; for disjoint shards lower --data.examples_per_participant, as --data.split.draw disjoint says."
        )
        return shards


def wanted(num_classes: int, participants: int, each: int) -> Tensor:
    r"""How many examples of every class every participant gets, ``[N, C]``.

    Participant i has ``each`` examples from its first :math:`c_i` classes, with c evenly spaced from 1 to the number
    of classes and truncated: :math:`\lfloor n / c_i \rfloor` of each class, topped up from its last one.
    """
    counts = torch.zeros(participants, num_classes, dtype=torch.int64)
    for row, classes in zip(counts, _first(num_classes, participants).tolist(), strict=True):
        row[:classes] = each // classes
        row[classes - 1] += each % classes
    return counts


def _first(num_classes: int, participants: int) -> Tensor:
    """From how many classes every participant has examples, ``[N]``."""
    return torch.linspace(1, num_classes, participants, dtype=torch.float64).add(1e-9).long()


def suffices(labels: Tensor, counts: Tensor) -> bool:
    """Whether disjoint shards with ``counts`` ``[N, C]`` examples exist."""
    return bool((counts.sum(0) <= torch.bincount(labels, minlength=counts.shape[1])).all())


def by_class(
    labels: Tensor,
    num_classes: int,
    participants: int,
    each: int,
    generator: torch.Generator,
    names: Sequence[str] = (),
) -> list[Tensor]:
    """Disjoint shards with `wanted` examples of every class; those may have names.

    Raises:
        UserError: If a class has too few examples.
    """
    counts = wanted(num_classes, participants, each)
    members = of_each_class(torch.arange(len(labels)), labels, num_classes)
    queues = [shuffled(found, generator) for found in members]
    for c, (need, queue) in enumerate(zip(counts.sum(0).tolist(), queues, strict=True)):
        if need > len(queue):
            enough = largest(torch.tensor([*map(len, queues)]), participants, each)
            raise UserError(
                f"Expected at least {need} examples of class {names[c] if names else c} for split CLA with "
                f"{participants} participants and {each} examples each, but there are {len(queue)}; lower "
                + (f"--data.examples_per_participant to {enough} or " if enough else "")
                + "--federation.participants, or leave --data.split.draw at auto for shards that overlap."
            )
    cuts = [
        queue.split([*counts[:, c].tolist(), len(queue) - int(counts[:, c].sum())]) for c, queue in enumerate(queues)
    ]
    return [torch.cat([cuts[c][i] for c in range(num_classes)]) for i in range(participants)]


def largest(there: Tensor, participants: int, most: int) -> int:
    """The largest size below ``most`` of disjoint shards where classes have ``there`` ``[C]`` examples; 0 of none.

    What a class needs does not grow evenly with it, so that sizes are tried from what the scarcest has downwards.
    """
    classes = torch.arange(1, len(there) + 1)
    holders = torch.bincount(_first(len(there), participants), minlength=len(there) + 1)[1:]  # by their classes
    takers, share = _from_behind(holders), _from_behind(holders / classes)
    scarce = ((there + takers) / share)[takers > 0].min()  # of its k classes who takes n has more than n / k - 1 each
    for end in range(min(most - 1, int(scarce)), 0, -_AT_ONCE):
        sizes = torch.arange(end, max(0, end - _AT_ONCE), -1).unsqueeze(1)
        needs = _from_behind(holders * (sizes // classes)) + holders * (sizes % classes)
        if (fits := (needs <= there).all(1)).any():
            return int(sizes[fits][0])
    return 0


def _from_behind(numbers: Tensor) -> Tensor:
    """Sums of every entry with all behind it, in the last dimension."""
    return numbers.flip(-1).cumsum(-1).flip(-1)


def on_their_own(
    labels: Tensor, counts: Tensor, *, replacement: bool, generator: torch.Generator, names: Sequence[str]
) -> list[Tensor]:
    """Shards with ``counts`` ``[N, C]`` examples of every class, each drawn from all examples of the class.

    Classes may have ``names``. Without ``replacement`` an example comes again in a shard only after all others of its
    class.

    Raises:
        UserError: If a class has no example at all.
    """
    members = of_each_class(torch.arange(len(labels)), labels, counts.shape[1])
    for c, found in enumerate(members):
        if len(found) == 0 and int(counts[:, c].sum()):
            raise UserError(
                f"Expected training examples of class {names[c] if names else c} for split CLA, but there are none "
                "that are not held out; lower --data.validation or take another --data.split"
                + ("." if names else ", or correct num_classes of data of your own.")
            )

    def draw(found: Tensor, count: int) -> Tensor:
        if replacement:
            return found[torch.randint(max(1, len(found)), (count,), generator=generator)]
        return torch.cat([found[:0], *(shuffled(found, generator) for _ in range(0, count, len(found) or 1))])[:count]

    return [
        torch.cat([draw(found, count) for found, count in zip(members, row, strict=True)]) for row in counts.tolist()
    ]


def overlap(shards: list[Tensor]) -> tuple[float, float]:
    """The share of the examples held that several shards hold, and of all places in shards those that repeat one."""
    different = [shard.unique() for shard in shards]
    holders = torch.cat(different).unique(return_counts=True)[1]
    places = sum(map(len, shards))
    return float((holders > 1).double().mean()), (places - sum(map(len, different))) / places
