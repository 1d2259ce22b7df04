"""FedMGDA+ (Hu, Shaloudegi, Zhang and Yu 2022, https://arxiv.org/abs/2006.11489)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.errors import check_positive, check_share
from rffl_pl.functional.aggregation import least_norm_weights, pairwise_cosines
from rffl_pl.functional.reputation import weighted_mean
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class FedMGDA(Consensus):
    r"""Goes where nobody's loss rises, as far as that can be had: FedMGDA+.

    Every upload has the same length, and their shortest combination is the step: its inner product with each upload is
    no smaller than with itself, where the box allows it.

    .. math::
        w \leftarrow w + \eta \sum_i \lambda_i \frac{u_i}{\|u_i\|}, \qquad
        \lambda = \arg\min_{\lambda \in \Delta,\ |\lambda_i - 1/m| \le \epsilon}
        \Big\| \sum_i \lambda_i \frac{u_i}{\|u_i\|} \Big\|^2

    Algorithm 1 of the paper, of m uploads. In float64, from inner products. Running statistics of BatchNorm are
    averaged by the shares :math:`\lambda_i`, whatever the lengths of the uploads.

    Args:
        slack: :math:`\epsilon`, how far a share may be from :math:`1/m`, where the paper has given weights, such as
            those of examples. 0 is the mean of directions, 1 the shortest of all combinations.
        length: :math:`\eta`, to which uploads are brought; by default the median of the round's lengths
            :math:`\|u_i\|`, of an even number the lower of the middle two, so that steps shorten as updates do. The
            paper takes a constant, lowered over the rounds.

    Raises:
        UserError: If `slack` does not lie in [0, 1] or `length` is no positive number.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def __init__(self, *, slack: float = 0.1, length: float | None = None) -> None:
        super().__init__()
        check_share("--server.slack", slack, "0 is the mean of directions")
        if length is not None:
            check_positive("--server.length", length)
        self.slack, self.length = slack, length
        self._shares = torch.empty(0)

    def weigh(self, evidence: Evidence) -> Tensor:
        lengths = evidence.squared_norms.sqrt()
        length = lengths.median() if self.length is None else self.length
        shares = least_norm_weights(pairwise_cosines(evidence.gram), self.slack)
        weights = torch.where(lengths > 0, shares * length / lengths.clamp_min(1e-300), 0.0)  # mixed ones may cancel
        self._shares = shares[weights != 0]
        return weights

    def pool(self, statistics: Tensor, weights: Tensor) -> Tensor:
        return weighted_mean(statistics, self._shares)  # weights are the larger for short uploads

    def measures(self, evidence: Evidence, weights: Tensor) -> dict[str, Tensor]:
        shares = weights * evidence.squared_norms.sqrt()
        return {"share": shares / shares.sum().clamp_min(1e-300)}
