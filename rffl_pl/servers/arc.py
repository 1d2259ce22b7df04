"""Adaptive robust clipping (Allouah et al. 2025, https://arxiv.org/abs/2405.14432)."""

from __future__ import annotations

from torch import Tensor

from rffl_pl.functional.aggregation import clip_factors
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.mixing import Tolerant


class ARC(Tolerant):
    r"""Another rule on uploads of which the longest are clipped to the length of the longest of the rest.

    .. math::
        \bar u_i = u_i \min\left(1, \frac{C}{\|u_i\|}\right), \quad w \leftarrow w + R(\bar u_1, \dots, \bar u_m)

    with R the other rule and C the length of the :math:`(k + 1)`-th longest upload,
    :math:`k = \lfloor 2 \frac{f}{m} (m - f) \rfloor`. Nobody is far longer than what honest uploads are, and no radius
    has to be known; it may clip honest ones too.

    Args:
        rule: What combines the clipped uploads: `NNM`, `MultiKrum`, `Bulyan`, `Median` (by default), `TrimmedMean`,
            `GeometricMedian`, `CenteredClipping`, `NormBound`, `DnC`, `FedAvg`, `FedMGDA`, `Bucketing`, or a
            `Consensus` of your own.
        tolerated: Number f of bad uploads; by default ``--federation.tolerated``, and without it
            :math:`\lfloor 0.2 P \rfloor`, the paper's clip ratio, or of buckets as many as it can tolerate.

    Raises:
        UserError: As `NNM`.

    P and f are those of `NNM` where members miss rounds or uploads are set aside.
    """

    def mixing(self, evidence: Evidence) -> Tensor:
        lengths = evidence.squared_norms.sqrt()
        here = len(lengths)
        f = self.bad_among(here)
        bound = lengths.sort(descending=True).values[2 * f * (here - f) // here]
        return clip_factors(lengths, bound).diag()
