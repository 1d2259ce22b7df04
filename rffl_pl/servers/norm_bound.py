"""Norm bounding with noise (Sun et al. 2019, https://arxiv.org/abs/1911.07963)."""

from __future__ import annotations

from torch import Tensor

from rffl_pl.errors import check_positive
from rffl_pl.functional.aggregation import clip_factors
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.noised import Noised


class NormBound(Noised):
    r"""The mean of uploads that are no longer than a bound, and noise.

    .. math::
        w \leftarrow w + \frac{1}{m} \sum_i u_i \min\left(1, \frac{B}{\|u_i\|}\right)
            + \mathcal N\left(0, \left(\frac{z B}{m}\right)^2 I\right)

    Uploads count alike, whatever examples are behind them. Without noise it is norm bounding; with little it is what is
    known as weak differential privacy, against backdoors.

    With a constant bound and m uploads in each of T rounds, another upload in place of somebody's moves the mean by
    :math:`2 B / m` at most, so that the models of all rounds together are
    :math:`(\varepsilon, \delta)`-differentially private for whoever might have sent others, with
    :math:`\rho = 2 T / z^2` and :math:`\varepsilon = \rho + 2 \sqrt{\rho \ln(1/\delta)}` (Bun and Steinke 2016,
    https://arxiv.org/abs/1605.02065), if the noise is drawn in secret. Here it is drawn from ``--seed_everything``,
    which every participant knows, so that runs can be repeated: it shows what privacy costs and what noise withstands,
    and protects nobody. Uploads reach the server as they are.

    Args:
        max_norm: B; by default the median of the round's lengths :math:`\|u_i\|`, of an even number the lower of the
            middle two.
        noise: The noise multiplier z of McMahan et al. 2018 (https://arxiv.org/abs/1710.06963), in multiples of the
            most that one upload brings to the mean; 0 is without.

    Raises:
        UserError: If the bound is not positive, or the noise is negative or not finite.
    """

    def __init__(self, *, max_norm: float | None = None, noise: float = 0.0) -> None:
        super().__init__(noise, "--server.noise")
        if max_norm is not None:
            check_positive("--server.max_norm", max_norm)
        self.max_norm = max_norm
        self.noise = noise

    def weigh(self, evidence: Evidence) -> Tensor:
        lengths = evidence.squared_norms.sqrt()
        bound = float(lengths.median()) if self.max_norm is None else self.max_norm
        self.deviation = self.noise * bound / len(lengths)
        return clip_factors(lengths, bound) / len(lengths)
