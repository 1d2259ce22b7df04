"""Uploads and payloads of somebody who may send anything; the adversary is given by class path on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from rffl_pl.adversaries import Adversary, Situation
from rffl_pl.exchange import Exchange

Kind = Literal[
    "NaN", "one NaN", "infinity", "minus infinity", "1e38", "zeros", "denormal", "short", "constant", "huge", "opposite"
]
UNFIT: tuple[Kind, ...] = ("NaN", "one NaN", "infinity", "minus infinity")
BLANK: tuple[Kind, ...] = ("zeros", "denormal")
KINDS: tuple[Kind, ...] = (*UNFIT, "1e38", *BLANK, "short", "constant", "huge", "opposite")


def hostile(kind: Kind, update: Tensor) -> Tensor:
    """An upload ``[D]`` of a kind in place of an update."""
    one = update.clone()
    one[len(one) // 2] = torch.nan
    values = {"NaN": torch.nan, "infinity": torch.inf, "minus infinity": -torch.inf, "1e38": 1e38, "zeros": 0.0,
              "denormal": 1e-45, "short": 1e-17, "constant": 1.0, "huge": 1e19 / len(one) ** 0.5}  # fmt: skip
    others = {"one NaN": one, "opposite": -1e6 * update}
    return others[kind] if kind in others else torch.full_like(update, values[kind])


class Hostile(Adversary):
    """Sends something of a kind from some round on, and its update before.

    Args:
        kind: Of what; without one every round has the next.
        since: The round, counted from 0.
    """

    def __init__(self, *, kind: Kind | None = None, since: int = 0) -> None:
        self.kind, self.since = kind, since

    def upload(self, situation: Situation) -> Tensor:
        turn = situation.round - self.since
        if turn < 0:
            return situation.update
        return hostile(KINDS[turn % len(KINDS)] if self.kind is None else self.kind, situation.update)


TAMPERED: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing": lambda payload: payload[:0],
    "one byte": lambda payload: payload[:1],
    "a byte less": lambda payload: payload[:-1],
    "a byte more": lambda payload: torch.cat([payload, payload[:1]]),
    "an entry less": lambda payload: payload[:-4],
    "an entry more": lambda payload: torch.cat([payload, payload[:4]]),
    "twice": lambda payload: torch.cat([payload, payload]),
    "a megabyte": lambda payload: payload.new_full((1 << 20,), 3),
    "all bits": lambda payload: torch.full_like(payload, 255),
}


class Tampered(Exchange):
    """The exchange of participants some of whom tamper with their payloads.

    Attributes:
        who: They.
        how: What they do.
    """

    who: tuple[int, ...] = ()
    how: Callable[[Tensor], Tensor] = staticmethod(lambda payload: payload)

    def gather_uploads(self, payload: Callable[[int, slice], Tensor], arrived: Callable[[int, Tensor], None]) -> None:
        def sent(participant: int, where: slice) -> Tensor:
            packed = payload(participant, where)
            return self.how(packed) if participant in self.who else packed

        super().gather_uploads(sent, arrived)
