"""FLAME (Nguyen et al. 2022, https://arxiv.org/abs/2101.02281)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from rffl_pl.functional.aggregation import clip_factors, majority, pairwise_cosines
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.noised import Noised


class FLAME(Noised):
    r"""The mean of the majority that is closest together, of uploads no longer than the median, and noise.

    .. math::
        w \leftarrow w + \frac{1}{|A|} \sum_{i \in A} u_i \min\left(1, \frac{S}{\|u_i\|}\right)
            + \mathcal N\left(0, (\lambda S)^2 I\right), \quad S = \operatorname{median}_i \|u_i\|

    A is the cluster that HDBSCAN finds with at least :math:`\lfloor m/2 \rfloor + 1` of m members and one neighbour,
    `rffl_pl.functional.aggregation.majority`, at cosine distances :math:`1 - \cos(w + u_i, w + u_j)` of the models
    that members end with. Nguyen et al., USENIX Security 2022, Algorithm 1.

    Of models that have learned most of what they will the uploads are a small part: their distances tell then how far
    uploads lie apart, long ones more than short ones, and not how they are directed.

    Args:
        compare: ``models`` as the paper does, or ``uploads``, :math:`1 - \cos(u_i, u_j)`, as many others of its
            implementations do.
        noise_factor: :math:`\lambda`, in multiples of the median S; 0 is without. The paper takes 0.001 for images and
            text.

    Raises:
        UserError: If the factor is negative or not finite.

    S is the median of all uploads, of an even number the lower of the middle two. As of `NormBound`, the noise comes
    from the seed that everybody knows, and protects nobody's data.
    """

    keeps_model: ClassVar[bool] = True

    def __init__(self, *, compare: Literal["models", "uploads"] = "models", noise_factor: float = 0.001) -> None:
        super().__init__(noise_factor, "--server.noise_factor")
        self.compare = compare
        self.noise_factor = noise_factor

    def weigh(self, evidence: Evidence) -> Tensor:
        lengths = evidence.squared_norms.sqrt()
        bound = float(lengths.median())
        self.deviation = self.noise_factor * bound
        admitted = majority(1 - pairwise_cosines(self._compared(evidence)))
        return torch.where(admitted, clip_factors(lengths, bound), 0.0) / admitted.sum()

    def _compared(self, evidence: Evidence) -> Tensor:
        """Inner products ``[m, m]`` of what is compared."""
        if self.compare == "uploads":
            return evidence.gram
        assert self.model is not None
        model = self.model.to(evidence.uploads[0].device)
        across = evidence.products_with(model)
        return evidence.gram + (across[:, None] + across) + self.coordinates.squared_norms([model])
