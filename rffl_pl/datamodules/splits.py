"""How training examples are divided among the honest participants: pure index mathematics.

Every split takes what it needs and a generator and returns N disjoint index vectors, one per participant. N =
participants, n = examples per participant on average; the pool holds n N of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rffl_pl.errors import UserError

POWER_LAW_EXPONENT = 1.65911332899


def uniform(available: int, participants: int, each: int, generator: torch.Generator) -> list[Tensor]:
    """UNI: ``each`` examples for everybody, at random."""
    return _cut(_pool(available, participants * each, generator), [each] * participants)


def power_law(available: int, participants: int, each: int, generator: torch.Generator) -> list[Tensor]:
    r"""POW: shard sizes follow a power law; examples at random.

    With :math:`b` evenly spaced from :math:`F^{-1}(0.01)` to :math:`F^{-1}(0.99)`, :math:`F^{-1}(p) = p^{1/a}` the
    quantile function of the power-law distribution on [0, 1] and a = 1.65911332899, participant i gets
    :math:`\lceil n N b_i / \sum_j b_j \rceil` examples and the last one what is left. Sizes ascend, but for the
    last few in a small pool, which the rounding up of the others leaves short.
    """
    total = participants * each
    low, high = (p ** (1 / POWER_LAW_EXPONENT) for p in (0.01, 0.99))
    b = torch.linspace(low, high, participants, dtype=torch.float64)
    sizes = [math.ceil(share * total) for share in (b / b.sum()).tolist()][:-1]
    return _cut(_pool(available, total, generator), [*sizes, max(0, total - sum(sizes))])


def by_class(
    labels: Tensor, num_classes: int, participants: int, each: int, generator: torch.Generator
) -> list[Tensor]:
    r"""CLA: equal shards from more and more classes.

    Participant i draws ``each`` examples from its first :math:`c_i` classes, with c evenly spaced from 1 to the number
    of classes and truncated: :math:`\lfloor n / c_i \rfloor` of each class, topped up from its last one.

    Raises:
        UserError: If a class has too few examples.
    """
    counts = torch.linspace(1, num_classes, participants, dtype=torch.float64).add(1e-9).long().tolist()
    wanted = torch.zeros(participants, num_classes, dtype=torch.int64)
    for row, classes in zip(wanted, counts, strict=True):
        row[:classes] = each // classes
        row[classes - 1] += each % classes
    queues = [_shuffled((labels == c).nonzero().flatten(), generator) for c in range(num_classes)]
    for c, (need, queue) in enumerate(zip(wanted.sum(0).tolist(), queues, strict=True)):
        if need > len(queue):
            enough = each * len(queue) // need
            raise UserError(
                f"Expected at least {need} examples of class {c} for split CLA with {participants} participants and "
                f"{each} examples each, but there are {len(queue)}; lower "
                + (f"--data.examples_per_participant to {enough} or " if enough else "")
                + "--federation.participants."
            )
    cuts = [
        queue.split([*wanted[:, c].tolist(), len(queue) - int(wanted[:, c].sum())]) for c, queue in enumerate(queues)
    ]
    return [torch.cat([cuts[c][i] for c in range(num_classes)]) for i in range(participants)]


def dirichlet(
    labels: Tensor, num_classes: int, participants: int, each: int, alpha: float, generator: torch.Generator
) -> list[Tensor]:
    r"""DIR: of every class in the pool, participant i gets a share drawn from Dirichlet(:math:`\alpha`).

    Label skew as in Hsu et al. 2019 (https://arxiv.org/abs/1909.06335); a small :math:`\alpha` gives every participant
    few classes. Shard sizes vary.
    """
    pool = _pool(len(labels), participants * each, generator)
    gamma = torch.distributions.Gamma(torch.full((participants,), alpha, dtype=torch.float64), 1.0)
    parts: list[list[Tensor]] = [[] for _ in range(participants)]
    with torch.random.fork_rng(devices=[]):  # distributions draw from the global stream
        torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        for c in range(num_classes):
            members = pool[labels[pool] == c]
            shares = gamma.sample()
            ends = (shares.cumsum(0) / shares.sum() * len(members)).round().long().tolist()
            for i, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                parts[i].append(members[start:end])
    return [torch.cat(part) for part in parts]


def _pool(available: int, size: int, generator: torch.Generator) -> Tensor:
    if size > available:
        raise UserError(
            f"Expected at least {size} training examples for the participants, but there are {available}; lower "
            "--data.examples_per_participant or --federation.participants."
        )
    return torch.randperm(available, generator=generator)[:size]


def _cut(pool: Tensor, sizes: list[int]) -> list[Tensor]:
    """Consecutive slices. Rounding up may promise more than there is: whoever comes last then goes short."""
    ends = torch.tensor(sizes).cumsum(0).clamp_max(len(pool)).tolist()
    return [pool[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _shuffled(indices: Tensor, generator: torch.Generator) -> Tensor:
    return indices[torch.randperm(len(indices), generator=generator)]
