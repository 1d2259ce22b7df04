"""Order statistics of every coordinate of a block ``[m, c]`` of uploads; m = uploads, c = coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

_FEW = 32  # rows, up to which comparing whole rows is the faster way on a CPU


def coordinate_median(block: Tensor) -> Tensor:
    r"""Median of every coordinate, ``[c]``: the middle value, or the mean of the two middle ones for even m.

    Yin et al. 2018, https://arxiv.org/abs/1803.01498. `torch.median` returns the lower of the two.
    """
    return trimmed_mean(block, (len(block) - 1) // 2)


def trimmed_mean(block: Tensor, cut: int) -> Tensor:
    r"""Mean of every coordinate without its ``cut`` smallest and its ``cut`` largest values, ``[c]``.

    Yin et al. 2018, https://arxiv.org/abs/1803.01498. Of the opposite block it is the opposite, to the bit.

    Args:
        block: ``[m, c]``.
        cut: Less than m / 2.
    """
    middle = _between(block, cut, len(block) - cut)
    count = len(middle)
    total = (middle[: count // 2] + middle[count - count // 2 :].flip(0)).sum(0)
    return (total + middle[count // 2] if count % 2 else total) / count


def mean_around_median(block: Tensor, count: int) -> Tensor:
    r"""Mean of the ``count`` values of every coordinate that are closest to its median, ``[c]``.

    El Mhamdi et al. 2018, https://arxiv.org/abs/1802.07927, Section 4. In ascending order these are neighbours; of two
    values that are equally far, it is the smaller one, and without such values on both sides the mean of the opposite
    block is the opposite, to the bit.

    Args:
        block: ``[m, c]``.
        count: In 1 .. m.
    """
    ascending = _between(block, 0, len(block))
    median = (ascending[(len(block) - 1) // 2] + ascending[len(block) // 2]) / 2
    first = (median - ascending[: len(block) - count] > ascending[count:] - median).sum(0)

    def value(k: int) -> Tensor:
        return ascending.gather(0, (first + k).unsqueeze(0)).squeeze(0)

    total = value(count // 2) if count % 2 else torch.zeros_like(median)
    for k in range(count // 2):
        total += value(k) + value(count - 1 - k)
    return total / count


def _between(block: Tensor, low: int, high: int) -> Tensor:
    """The values of ranks ``low`` to ``high``, less one, of every column, ascending, ``[high - low, c]``."""
    if block.device.type != "cpu":
        return block.sort(dim=0).values[low:high]
    if len(block) <= _FEW:
        return torch.stack(_selected(block, range(low, high)))
    # NumPy sorts short contiguous rows with vector instructions, torch does not.
    columns = np.array(block.numpy().T, order="C")
    columns.sort(axis=1)
    return torch.from_numpy(columns[:, low:high]).T


def _selected(block: Tensor, ranks: range) -> list[Tensor]:
    """The values of these ranks in every column of ``[m, c]``, ``[c]`` each, by comparing whole rows."""
    rows, spare = list(block.clone().unbind()), torch.empty_like(block[0])
    for a, b, low, high in _comparisons(len(block), ranks):
        x, y = rows[a], rows[b]
        if low and high:
            torch.minimum(x, y, out=spare)
            torch.maximum(x, y, out=y)
            rows[a], spare = spare, x
        elif low:
            torch.minimum(x, y, out=x)
        else:
            torch.maximum(x, y, out=y)
    return [rows[rank] for rank in ranks]


@cache
def _comparisons(count: int, ranks: range) -> list[tuple[int, int, bool, bool]]:
    """Batcher's odd-even mergesort of so many rows, less what some ranks do not need.

    Of each comparison the two rows, and whether the smaller and the larger value are needed.
    """
    pairs = []
    for size, step in _merges(count):
        for start in range(step % size, count - step, 2 * step):
            for i in range(start, min(start + step, count - step)):
                if i // (2 * size) == (i + step) // (2 * size):
                    pairs.append((i, i + step))
    needed, kept = set(ranks), []
    for a, b in reversed(pairs):
        if a in needed or b in needed:
            kept.append((a, b, a in needed, b in needed))
            needed |= {a, b}
    return kept[::-1]


def _merges(count: int) -> Iterator[tuple[int, int]]:
    """Lengths of the runs that are merged, and distances at which they are compared."""
    size = 1
    while size < count:
        step = size
        while step:
            yield size, step
            step //= 2
        size *= 2
