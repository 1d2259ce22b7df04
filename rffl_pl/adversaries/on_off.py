"""Who contributes first, or now and then, and lives on it in the other rounds."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from rffl_pl.adversaries.base import Adversary, Situation
from rffl_pl.adversaries.free_rider import uniform_noise
from rffl_pl.adversaries.imitation import DeltaWeights, Replay
from rffl_pl.errors import UserError, check_not_negative


class OnOff(Adversary):
    r"""Earns a reputation honestly, then rides free on it: the on-off attack (Sun, Han, Yu & Liu, INFOCOM 2006).

    It trains and uploads its update in the first rounds; after them it uploads something else, as a `FreeRider` does,
    except in the last round of every period, if there is one. Aimed at reputations that are a moving average: one with
    the weight :math:`\alpha` on the past takes about :math:`1 / (1 - \alpha)` rounds to forget.

    Args:
        honest: Number of honest rounds at the beginning.
        period: Length in rounds of every period after them; None for no honest round any more.
        scale: As the free-rider's; 0 uploads nothing, which a server may take for silence.
        then: What it uploads in the other rounds: ``noise`` of that scale; ``replay``, the last download that it had
            when it first stopped being honest, as a `Replay`; ``delta_weights``, what changed in its model since its
            last upload of this kind, as a `DeltaWeights`. The last two begin with noise of scale 1 while there is
            nothing to send back.

    Raises:
        UserError: If `honest` is negative, `period` below 2, or `scale` negative or not finite.
    """

    trains: ClassVar[bool] = True
    keeps_download: ClassVar[bool] = True

    def __init__(
        self,
        *,
        honest: int = 15,
        period: int | None = None,
        scale: float = 1.0,
        then: Literal["noise", "replay", "delta_weights"] = "noise",
    ) -> None:
        check_not_negative(self._option("scale"), scale, "0 is silence")
        if honest < 0:
            raise UserError(f"Expected {self._option('honest')} to be a number of rounds, 0 or more, but got {honest}.")
        if period is not None and period < 2:
            raise UserError(
                f"Expected {self._option('period')} to be 2 or more rounds, but got {period}; 1 would be honest."
            )
        self.honest, self.period, self.scale, self.then = honest, period, scale, then

    def trains_in(self, round_index: int) -> bool:
        beyond = round_index - self.honest
        return beyond < 0 or (self.period is not None and (beyond + 1) % self.period == 0)

    def upload(self, situation: Situation) -> Tensor:
        if self.trains_in(situation.round):
            return situation.update
        if self.then == "noise":
            return uniform_noise(situation.update, situation.generator, self.scale)
        return _SENDING_BACK[self.then].upload(situation)


_SENDING_BACK: dict[str, Adversary] = {"replay": Replay(), "delta_weights": DeltaWeights()}
"""They have no state of their own: what they remember is the situation's."""
