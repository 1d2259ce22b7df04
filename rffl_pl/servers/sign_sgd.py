"""SignSGD with majority vote (Bernstein et al. 2019, https://arxiv.org/abs/1810.05291)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rffl_pl.errors import check_not_negative, check_positive, check_share
from rffl_pl.functional import wire
from rffl_pl.functional.aggregation import majority_vote
from rffl_pl.functional.blocks import squared_norm
from rffl_pl.functional.finite import sound
from rffl_pl.functional.reputation import weighted_mean
from rffl_pl.servers.consensus import Consensus

_SETTINGS = {
    "tuned": {"step_size": 0.01, "momentum": 0.8, "weight_decay": 1e-4},
    "literal": {"step_size": 0.15, "momentum": 0.8, "weight_decay": 0.977},
}


class SignSGD(Consensus):
    r"""Participants send the signs of their momentum, one bit per entry; the majority of signs is the direction.

    .. math::
        v_i \leftarrow \beta v_i + (1 - \beta) u_i, \quad
        w \leftarrow w + \eta_t \left( \mathrm{sign} \sum_i \mathrm{sign}\, v_i - \lambda w \right), \quad
        \eta_t = 0.977^t \eta

    The momentum :math:`v_i` stays with the participant; ties move nothing; the decay is decoupled. One bit has no
    zero: an entry of :math:`v_i` that is exactly 0 votes up in one round and down in the next, so that entries that
    nobody moves stay where they are instead of drifting; adversaries that know all uploads remember nothing, and theirs
    votes up. Whose :math:`v_i` is 0 everywhere does not vote. Where members
    miss rounds, the majority is that of those who are asked, and momentum rests until its owner is.

    Args:
        setting: ``tuned``, :math:`\eta = 0.01, \beta = 0.8, \lambda = 10^{-4}`; ``literal``, what Xu & Lyu print:
            "momentum 0.8, parameter weight decay 0.977", :math:`\eta = 0.15`. It multiplies every weight by 0.85 and
            moves it by 0.15 in the first round: 49 % on MNIST after 12 rounds where ``tuned`` reads 94.
        step_size: :math:`\eta`; by default the setting's, as the next two.
        momentum: :math:`\beta`.
        weight_decay: :math:`\lambda`.
        step_decay: Factor on :math:`\eta` per round.

    Raises:
        UserError: If `step_size` or `step_decay` is not positive, `momentum` not in [0, 1) or `weight_decay` negative.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    keeps_model: ClassVar[bool] = True

    steps_by_updates = False

    def __init__(
        self,
        *,
        setting: Literal["tuned", "literal"] = "tuned",
        step_size: float | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        step_decay: float = 0.977,
    ) -> None:
        super().__init__()
        given = {"step_size": step_size, "momentum": momentum, "weight_decay": weight_decay}
        chosen = _SETTINGS[setting] | {name: value for name, value in given.items() if value is not None}
        self.step_size, self.momentum, self.weight_decay = (chosen[name] for name in given)
        self.step_decay = step_decay
        check_positive("--server.step_size", self.step_size)
        check_positive("--server.step_decay", step_decay)
        check_share("--server.momentum", self.momentum, "0 is none", within="[0, 1)")
        check_not_negative("--server.weight_decay", self.weight_decay, "0 is none")

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        """The participant's vote ``[D]``, zeros for none; an update that is not sound is NaN and leaves no trace."""
        if not sound(squared_norm(update)):
            return torch.full_like(update, torch.nan)
        past = memory.get("momentum", torch.zeros_like(update))
        memory["momentum"] = self.momentum * past + (1 - self.momentum) * update
        memory["rounds"] = memory.get("rounds", torch.zeros((), dtype=torch.int64)) + 1
        signs = memory["momentum"].sign()
        if not signs.any():
            return signs
        return torch.where(signs == 0, 1.0 if int(memory["rounds"]) % 2 else -1.0, signs)

    def pack(self, upload: Tensor) -> Tensor:
        return wire.pack_signs(upload)

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        return wire.unpack_signs(payload, dimension)

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return majority_vote(block)

    def pool(self, statistics: Tensor, weights: Tensor) -> Tensor:
        return weighted_mean(statistics, weights)

    def stride(self, combined: Tensor) -> Tensor:
        assert self.model is not None
        rate = self.step_size * self.step_decay**self.round
        return rate * (combined - self.weight_decay * self.model.to(combined.device))
