"""Bucketing (Karimireddy, He and Jaggi 2022, https://arxiv.org/abs/2006.09365)."""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.mixing import Mixing


class Bucketing(Mixing):
    r"""Another rule on means of a few uploads each, drawn anew in every round.

    .. math::
        \bar u_i = \frac{1}{|B_i|} \sum_{j \in B_i} u_j, \quad
        w \leftarrow w + R(\bar u_1, \dots, \bar u_{\lceil m / s \rceil})

    with R the other rule and :math:`B_i` buckets of s uploads, the last one perhaps of fewer, into which the m uploads
    are dealt at random. Where participants' data differs, means of several lie closer together than single uploads.

    Args:
        rule: What combines the means: `Median` (by default), `GeometricMedian`, `CenteredClipping`, `NormBound`, `DnC`,
            `MultiKrum`, `Bulyan`, `TrimmedMean`, `FedAvg`, `FedMGDA`, `NNM`, `ARC`, or a `Consensus` of your own
            without a memory of participants. A bad upload spoils its bucket: of the :math:`\lceil P / s \rceil` buckets
            as many may be bad as of P uploads. `MultiKrum`, `Bulyan`, `DnC`, `NNM` and `ARC` expect that, or as many
            as they can tolerate, of fewer than five buckets `MultiKrum` none, of fewer than seven `Bulyan`; a trimmed
            mean is to be told, by ``--federation.tolerated`` or as by ``--server.rule.trim 0.4``.
        bucket: Number s of uploads in a bucket.

    Raises:
        UserError: If s is below 1; before the first round, if the rule is none that can be mixed for, or its own
            options do not fit.

    What the rule measures of a bucket is logged of its member with the smallest number.
    """

    def __init__(self, *, rule: Consensus | None = None, bucket: int = 2) -> None:
        super().__init__(rule=rule)
        if bucket < 1:
            raise UserError(f"Expected --server.bucket to be 1 or more uploads, but got {bucket}; the paper takes 2.")
        self.bucket = bucket

    def start(self, task: Task) -> None:
        super().start(task)
        buckets, bucket = self._count(task), f"{self.given_by}.bucket {self.bucket}"
        if buckets == 1 and task.asked > 2:
            warnings.warn(
                f"{bucket} puts all {task.asked} uploads of a round into one bucket: the step is their mean, whatever "
                "the rule is; give a lower one.",
                stacklevel=2,
            )
        elif task.tolerated and 2 * task.tolerated >= buckets:
            warnings.warn(
                f"--federation.tolerated {task.tolerated} bad uploads may spoil as many of the {buckets} buckets of "
                f"{bucket}, which leaves no majority of good ones; give a lower one.",
                stacklevel=2,
            )

    def told(self, task: Task) -> Task:
        return replace(task, uploads=self._count(task))

    def _count(self, task: Task) -> int:
        """How many buckets the uploads of a round are dealt into."""
        return -(-task.asked // self.bucket)

    def mixing(self, evidence: Evidence) -> Tensor:
        here = len(evidence.senders)
        buckets = torch.randperm(here, generator=self._stream_of_round(evidence.round)).split(self.bucket)
        mixing = torch.zeros(len(buckets), here, dtype=torch.float64)
        # In the order of those that stand for them.
        for row, members in zip(mixing, sorted(buckets, key=lambda members: int(members.min())), strict=True):
            row[members] = 1 / len(members)
        return mixing

    def senders_of(self, senders: Tensor, mixing: Tensor) -> Tensor:
        return senders[(mixing != 0).int().argmax(1)]
