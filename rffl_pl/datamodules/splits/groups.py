"""GROUPS: who belongs together stays together."""

from __future__ import annotations

import torch
from torch import Tensor

from rffl_pl.datamodules.splits.base import Pool, Split, shuffled
from rffl_pl.errors import UserError, check_number


class GROUPS(Split):
    """Every participant holds a group that the data names, the patients of a hospital or the letters of a writer.

    For data whose ``Sources`` has ``groups``; see `grouped`.

    Args:
        least: Smaller groups are nobody's.

    Raises:
        UserError: If `least` is below 1, and in `cut` if the data names no groups or too few.
    """

    def __init__(self, *, least: int = 1) -> None:
        check_number("--data.split.least", least, 1)
        self.least = least

    def cut(self, pool: Pool) -> list[Tensor]:
        """N groups, each whole, or of each a share of ``N pool.each`` examples where they have more."""
        if pool.groups is None:
            raise UserError(
                "Expected data that says which examples belong together for --data.split GROUPS, but got none; name "
                "the column that says it with --data.group (TableFile, TextFile, HFDataset and HFText), have load() "
                "return Sources(groups=...), or give UNI or another split."
            )
        return grouped(pool.groups, pool.participants, pool.each, self.least, pool.generator)


def grouped(groups: Tensor, participants: int, each: int, least: int, generator: torch.Generator) -> list[Tensor]:
    r"""A group for everybody, at random where there are more, in the order of their numbers.

    Groups of sizes :math:`n_i` stay whole where :math:`\lfloor \sum_i n_i / N \rfloor` is at most `each`; otherwise of
    each :math:`\max(1, \lfloor n_i N \text{each} / \sum_i n_i \rfloor)` examples at random are taken.

    Args:
        groups: The group of every example, ``[n]`` int64 from 0 on.
        participants: Number N of participants.
        each: Examples per participant, on average, at most.
        least: Examples that a group has at least.
        generator: What is drawn at random comes from it.

    Raises:
        UserError: If there are fewer groups than participants.
    """
    numbers, sizes = groups.unique(return_counts=True)
    large = numbers[sizes >= least]
    if len(large) < participants:
        of, lower = (f" of {least} examples or more", ", --data.split.least") if least > 1 else ("", "")
        raise UserError(
            f"Expected a group{of} for each of {participants} participants, but there are {len(large)} among the "
            f"examples that are not held out; lower --federation.participants{lower}, or --data.validation "
            "and --data.test_share if those of a small group are."
        )
    chosen = large
    if len(large) > participants:
        chosen = shuffled(large, generator)[:participants].sort().values
    shards = [(groups == group).nonzero().flatten() for group in chosen]
    total = sum(map(len, shards))
    if total // participants <= each:
        return shards
    taken = [max(1, len(shard) * participants * each // total) for shard in shards]
    return [shuffled(shard, generator)[:count] for shard, count in zip(shards, taken, strict=True)]


def check_group(group: str | None, split: Split) -> None:
    """See that a column of groups is named for a split that goes by them.

    Raises:
        UserError: If not.
    """
    if group is not None and not isinstance(split, GROUPS):
        raise UserError(
            f"Expected --data.split GROUPS with --data.group {group}, but got {type(split).__name__}, which does not "
            "go by groups; give GROUPS, or leave the column out."
        )
