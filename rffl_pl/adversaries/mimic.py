"""Copying the honest upload that stands out (Karimireddy, He & Jaggi 2022, https://arxiv.org/abs/2006.09365)."""

from __future__ import annotations

import torch
from torch import Tensor

from rffl_pl.adversaries.base import OmniscientAdversary, Situation
from rffl_pl.errors import UserError
from rffl_pl.functional.blocks import combined, products_with, squared_norm
from rffl_pl.functional.reputation import weighted_sum


class Mimic(OmniscientAdversary):
    r"""Knows the honest uploads and copies the one that stands out, so that it counts for several.

    All adversaries upload the honest :math:`u_i` with the largest :math:`\langle u_i, z \rangle`. z is the direction in
    which honest uploads differ most; it is learnt by Oja's iteration in the first rounds and kept from then on. From a
    random z, with :math:`\mu` the mean of the honest uploads and t = 0, 1, ...:

    .. math::
        y = \sum_i \langle u_i - \mu, z \rangle (u_i - \mu), \qquad
        z \leftarrow \frac{\tilde z}{\|\tilde z\|}, \quad
        \tilde z = \frac{t}{t + 1} z + \frac{1}{t + 1} \frac{y}{\|y\|}

    A round in which y is 0, such as one with a single honest upload, does not count. Two things differ from the
    authors' code, https://github.com/epfml/byzantine-robust-noniid-optimizer. There :math:`\mu` is the mean over all
    rounds so far; here updates shrink from round to round, and what counts is how those of one round differ. And there
    whoever was copied last in the warm-up is copied ever after; here uploads come without their senders' numbers, and
    another may be copied in every round. Adversaries that take part in other rounds learn another z.

    Args:
        warmup: The number of rounds in which z is learnt.

    Raises:
        UserError: If `warmup` is below 1.
    """

    def __init__(self, *, warmup: int = 10) -> None:
        if warmup < 1:
            raise UserError(
                f"Expected {self._option('warmup')} to be 1 or more rounds, but got {warmup}; it learns in them."
            )
        self.warmup = warmup

    def collude(self, situation: Situation) -> Tensor:
        honest, memory = situation.honest, situation.memory
        assert honest is not None
        if "z" not in memory:
            memory["z"] = torch.randn(honest.shape[1], generator=situation.agreed).to(honest)
            memory["rounds"] = torch.zeros((), dtype=torch.int64)
        if memory["rounds"] < self.warmup:
            _learn(memory, honest)
        return honest[int(products_with(honest, memory["z"]).argmax())].clone()


def _learn(memory: dict[str, Tensor], honest: Tensor) -> None:
    """One step of the iteration."""
    z, rounds = memory["z"], memory["rounds"]
    weights = products_with(honest, z)
    weights = (weights - weights.mean()).to(honest)
    y = combined(honest, lambda block: weighted_sum(block - block.mean(0), weights))
    length = squared_norm(y).sqrt()
    if length > 0:
        z = rounds * z + y / length  # times t + 1, which does not matter
        memory["z"], memory["rounds"] = z / squared_norm(z).sqrt(), rounds + 1
