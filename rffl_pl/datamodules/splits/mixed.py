"""MIX: alike in part, and sorted by class for the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from rffl_pl.datamodules.splits.base import Pool, Split, by_label, consecutive, drawn
from rffl_pl.errors import check_share


class MIX(Split):
    """Equal shards, of which a part is alike and the rest sorted by class; see `mixed`.

    Args:
        alike: Share of everybody's examples that is drawn at random: 1 is as `UNI`, 0 sorted throughout.

    Raises:
        UserError: If `alike` does not lie in [0, 1].
    """

    def __init__(self, *, alike: float = 0.1) -> None:
        check_share("--data.split.alike", alike, "1 is as UNI")
        self.alike = alike

    def cut(self, pool: Pool) -> list[Tensor]:
        """N disjoint shards of ``pool.each`` examples."""
        return mixed(pool.labels, pool.participants, pool.each, self.alike, pool.generator)


def mixed(labels: Tensor, participants: int, each: int, alike: float, generator: torch.Generator) -> list[Tensor]:
    r"""Of everybody's n examples a share s at random, the others sorted by class and dealt one behind the other.

    The split by similarity of Karimireddy et al. 2020 (https://arxiv.org/abs/1910.06378), there in percent; s =
    ``alike``, n = ``each``, and s n is rounded. At s = 0 the first participant holds the first classes, and so on.
    """
    chosen = drawn(len(labels), participants * each, generator)
    share = round(alike * each)
    even = chosen[: participants * share].split(share) if share else [chosen[:0]] * participants
    skewed = consecutive(by_label(chosen[participants * share :], labels), [each - share] * participants)
    return [torch.cat(parts) for parts in zip(even, skewed, strict=True)]
