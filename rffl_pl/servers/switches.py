"""The switches of RFFL, and what every preset sets them to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rffl_pl.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Switches:
    """How RFFL weighs, scores, removes and pays; `rffl_pl.servers.RFFL` says what each switch does.

    Those with a default are what neither paper nor released code has.
    """

    clip: bool
    normalise: bool
    first_weights: Literal["examples", "uniform"]
    threshold: Literal["members", "participants"]
    removal_from: int | Literal["never"]
    quota: Literal["layer", "vector"]
    altruism: bool
    subtract_own: bool
    similarity: Literal["own_included", "leave_one_out"] = "own_included"
    duplicates: Literal["each", "once"] = "each"
    probation: int = 0
    confirmed_by: float = 1 / 3
    removal_confidence: float | Literal["off"] = "off"
    short_memory: float | Literal["off"] = "off"
    earned: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.removal_from, int) and self.removal_from < 0:
            raise UserError(
                f"Expected --server.removal_from to be a round from 0 on or never, but got {self.removal_from}."
            )
        if self.probation < 0:
            raise UserError(f"Expected --server.probation to be 0 or more rounds, but got {self.probation}.")
        if not 0 < self.confirmed_by <= 1:
            raise UserError(
                f"Expected --server.confirmed_by to be a share of the others in (0, 1], but got {self.confirmed_by}; "
                "it is a third unless told, and 0.5 is for a federation most of whom are honest."
            )
        if self.removal_confidence != "off" and not 0.5 < self.removal_confidence < 1:
            raise UserError(
                "Expected --server.removal_confidence to be off or lie between 0.5 and 1, but got "
                f"{self.removal_confidence}; `guarded` takes 0.999."
            )
        if self.short_memory != "off" and not 0 <= self.short_memory < 1:
            raise UserError(
                f"Expected --server.short_memory to be off or lie in [0, 1), but got {self.short_memory}; "
                "`guarded` takes 0.5."
            )

    @classmethod
    def of(cls, preset: str, **changes: Any) -> Switches:
        """A preset's, with the switches that are not None in place of its own.

        Raises:
            UserError: If a switch is out of its range, or has nothing to go by.
        """
        given = {name: value for name, value in changes.items() if value is not None}
        switches = cls(**PRESETS[preset] | given)
        if "confirmed_by" in given and not switches.probation:
            raise UserError(
                "Expected --server.probation 1 with --server.confirmed_by, but got 0, which has nobody confirmed; "
                "give it, or --server.preset guarded, or leave --server.confirmed_by out."
            )
        return switches


_RELEASED: dict[str, Any] = {
    "clip": True,
    "normalise": False,
    "first_weights": "examples",
    "threshold": "members",
    "removal_from": 10,
    "quota": "layer",
    "altruism": False,
    "subtract_own": False,
}
_PAPER: dict[str, Any] = {
    "clip": False,
    "normalise": True,
    "first_weights": "uniform",
    "threshold": "participants",
    "removal_from": 0,
    "quota": "vector",
    "altruism": False,
    "subtract_own": True,
}
_GUARDED: dict[str, Any] = {
    **_RELEASED,
    "normalise": True,
    "first_weights": "uniform",
    "removal_from": 0,
    "similarity": "leave_one_out",
    "duplicates": "once",
    "probation": 1,
    "removal_confidence": 0.999,
    "short_memory": 0.5,
}
PRESETS = {
    "released": _RELEASED,
    "paper": _PAPER,
    "altruism": {**_RELEASED, "altruism": True},
    "guarded": _GUARDED,
}
"""Every switch that a preset sets, by preset; the others keep their default."""
