"""Nearest-neighbour mixing (Allouah et al. 2023, https://arxiv.org/abs/2302.01772)."""

from __future__ import annotations

from torch import Tensor

from rffl_pl.functional.aggregation import nearest_mixing
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.mixing import Tolerant


class NNM(Tolerant):
    r"""Another rule on uploads of which each is replaced by the mean of those nearest to it.

    .. math::
        \bar u_i = \frac{1}{m - f} \sum_{j \in N_i} u_j, \quad w \leftarrow w + R(\bar u_1, \dots, \bar u_m)

    with R the other rule and :math:`N_i` the :math:`m - f` uploads nearest to :math:`u_i`, itself among them. Where
    honest uploads differ, as participants' data does, a robust rule alone throws honest ones away or is drawn aside;
    mixed ones lie close together.

    Args:
        rule: What combines the mixed uploads: `MultiKrum`, `Bulyan`, `Median` (by default), `TrimmedMean`,
            `GeometricMedian`, `CenteredClipping`, `NormBound`, `DnC`, `FedAvg`, `FedMGDA`, `ARC`, `Bucketing`, or a
            `Consensus` of your own.
        tolerated: Number f of bad uploads; by default ``--federation.tolerated``, and without it
            :math:`\lfloor 0.2 P \rfloor`, the paper's clip ratio, or of buckets as many as it can tolerate.

    Raises:
        UserError: If the rule is none that can be mixed for, f is negative or 2f < P does not hold, or the rule's own
            options do not fit; before the first round.

    Where members miss rounds, P is the number of those that are asked in one. With uploads set aside or of zeros, f
    shrinks to what the rest allows.
    """

    def mixing(self, evidence: Evidence) -> Tensor:
        here = len(evidence.senders)
        return nearest_mixing(evidence.squared_distances, here - self.bad_among(here))
