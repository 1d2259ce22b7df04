"""Who holds which examples: what a split cuts for the honest participants, and what the adversaries get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from rffl_pl.datamodules.splits import DIR, GROUPS, Pool, Split
from rffl_pl.datamodules.splits.base import shuffled
from rffl_pl.errors import UserError, ones_own
from rffl_pl.federation import Federation

UNASKED = 600
"""An adversary's examples where nobody says how many: of fewer training examples all."""


def set_aside(order: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Of training examples in a random order the share that is held out, and the rest.

    Raises:
        UserError: If the share is above 0 and of so few nothing.
    """
    count = round(share * len(order))
    if share > 0 and count == 0:
        raise UserError(
            f"Expected --data.validation to hold out at least one of {len(order)} training examples, but {share} of "
            "them is none; raise it."
        )
    return order[:count], order[count:]


def divided(
    labels: Tensor,
    rest: Tensor,
    federation: Federation,
    split: Split,
    *,
    num_classes: int,
    each: int | None,
    adversary_examples: int,
    generator: torch.Generator,
    groups: Tensor | None,
    class_names: Sequence[str],
) -> list[Tensor]:
    """Everybody's shard, index vectors into the training examples: the honest participants' first.

    Args:
        labels: The class of every training example, ``[n]``.
        rest: Those that are not held out.
        federation: Who takes part.
        split: Cuts the honest participants' shards.
        num_classes: Number C of classes.
        each: Average size of an honest shard; None for all that there are.
        adversary_examples: Size of an adversary's shard.
        generator: What is drawn at random comes from it.
        groups: Which training examples belong together, ``[n]``, if that is known.
        class_names: What the classes are called; none where they have no names.

    Raises:
        UserError: If there are fewer examples than participants, or the split cuts what cannot be.
    """
    if federation.total > len(rest):
        aside = len(labels) - len(rest)
        held = f" beside {aside} held out, so lower --data.validation" if federation.total <= len(labels) else ""
        raise UserError(
            f"Expected at least one training example for each of {federation.total} participants, but there are "
            f"{len(rest)}{held or '; lower --federation.participants or --federation.adversaries'}."
        )
    pool = Pool(
        labels=labels[rest],
        num_classes=num_classes,
        participants=federation.honest,
        each=each or max(1, len(rest) // federation.honest),
        generator=generator,
        groups=None if groups is None else groups[rest],
        class_names=class_names,
    )
    honest = [rest[shard] for shard in shards_of(split, pool)]
    if groups is not None and isinstance(split, GROUPS):
        nobodys = rest[~torch.isin(groups[rest], groups[torch.cat(honest)])]
        if len(nobodys) >= federation.adversaries * adversary_examples:
            rest = nobodys
    return honest + adversaries_shards(federation.adversaries, adversary_examples, rest, honest, generator)


def nobodys_class(
    labels: Tensor, tested: Tensor, held_out: Tensor, honest: Sequence[Tensor], *, names: Sequence[str], fewer: bool
) -> str | None:
    """The sentence on classes that test examples have and no honest participant's shard; None where there is none.

    Args:
        labels: The class of every training example, ``[n]``.
        tested: That of every test example.
        held_out: Which training examples are held out.
        honest: The honest participants' shards, as `divided` gives them.
        names: What the classes are called; none where they have no names.
        fewer: Whether shards are asked to be smaller than they could be.
    """
    trained = torch.cat([*honest])
    classes = tested.unique()
    classes = classes[~torch.isin(classes, labels[trained])].tolist()
    if not classes:
        return None
    first, aside = classes[0], int((labels[held_out] == classes[0]).sum())
    there = int((labels == first).sum())
    ways = (
        [f"lower --data.validation, which holds out {aside} of its {there} examples"] if 2 * aside >= there > 0 else []
    )
    if fewer and there > aside:
        ways.append(f"raise --data.examples_per_participant, which leaves {there - aside} out")
    ways += ["take another --data.split or --seed_everything"] if there else ["bring training examples of it"]
    others = f", nor of {len(classes) - 1} more" if len(classes) > 1 else ""
    return (
        f"No honest participant has a training example of class {names[first] if names else first}, which "
        f"{int((tested == first).sum())} of {len(tested)} test examples have{others}: no model learns it; "
        f"{', or '.join(ways)}."
    )


def shards_of(split: Split, pool: Pool) -> list[Tensor]:
    """The honest participants' shards, N index vectors into the pool.

    Raises:
        UserError: If the split leaves somebody without examples or cuts what cannot be.
    """
    name, participants = type(split).__name__, pool.participants
    with ones_own(split, "--data.split", "cut the shards"):
        shards = split.cut(pool)
    if not isinstance(shards, Sequence) or not all(isinstance(one, Tensor) and one.dim() == 1 for one in shards):
        raise UserError(
            f"Expected split {name} to cut a list of index vectors, but got another {type(shards).__name__}."
        )
    if len(shards) != participants:
        raise UserError(f"Expected split {name} to cut {participants} shards, but got {len(shards)}.")
    for i, shard in enumerate(shards):
        if len(shard) == 0:
            raise UserError(
                f"Expected every participant to hold examples, but split {name} of {sum(map(len, shards))} examples "
                f"leaves participant {i} of {participants} without any; {_more(split, pool)}."
            )
        if shard.dtype != torch.int64 or int(shard.min()) < 0 or int(shard.max()) >= len(pool.labels):
            raise UserError(
                f"Expected split {name} to cut index vectors, int64 in 0 .. {len(pool.labels) - 1}, but that of "
                f"participant {i} is {shard.dtype} from {shard.min().item()} to {shard.max().item()}."
            )
    return shards


def _more(split: Split, pool: Pool) -> str:
    """What gives everybody examples whom a split leaves without any."""
    ways = ["give --data.split.least 1", "raise --data.split.alpha"] if isinstance(split, DIR) else []
    if len(pool.labels) >= (pool.each + 1) * pool.participants:
        ways.append("raise --data.examples_per_participant")
    return ", ".join([*ways, "or lower --federation.participants" if ways else "lower --federation.participants"])


def held_out(count: int, labels: Sequence[Any], share: float, seed: int) -> tuple[list[int], list[int]]:
    """Which examples to train with and which to test with: a share at random, but one of every label stays.

    Args:
        count: How many there are.
        labels: Of each; none where the classes are known without.
        share: In (0, 1); one example is held out at least, if there is one that may.
        seed: Of the draw.
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    stay = {labels[i]: i for i in order} if labels else {}  # of every label its last
    staying = {*stay.values()}
    tested = [i for i in order if i not in staying][: max(1, round(share * count))]
    taken = {*tested}
    return [i for i in order if i not in taken], tested


def adversaries_shards(
    adversaries: int, each: int, rest: Tensor, honest: list[Tensor], generator: torch.Generator
) -> list[Tensor]:
    """Shards of ``each`` examples of ``rest``: disjoint from the honest and each other where enough are left.

    Otherwise every adversary draws on its own from all of ``rest``, without repeats.
    """
    if adversaries == 0:
        return []
    if each > len(rest) and each != UNASKED:
        rank_zero_warn(
            f"--data.adversary_examples asks for {each} training examples for each adversary, but there are "
            f"{len(rest)}, all of which each of them holds; lower it."
        )
    left = rest[~torch.isin(rest, torch.cat(honest))]
    if len(left) >= each * adversaries:
        return list(shuffled(left, generator)[: each * adversaries].split(each))
    return [shuffled(rest, generator)[:each] for _ in range(adversaries)]
