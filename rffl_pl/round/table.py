"""Who sits at one rank's table in a round."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from rffl_pl.adversaries import Cast
from rffl_pl.errors import GO_ON, is_packaged, ones_own
from rffl_pl.exchange import Exchange
from rffl_pl.federation import Federation
from rffl_pl.functional.streams import random_stream
from rffl_pl.servers import Server
from rffl_pl.servers.around import innermost
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Schedule


class Precision(Protocol):
    """In which precision is computed, e.g. Lightning's precision plugin."""

    def train_step_context(self) -> AbstractContextManager[object]:
        """Surrounds local training."""

    def val_step_context(self) -> AbstractContextManager[object]:
        """Surrounds what is measured."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """All who sit at one rank's table: its participants, its side of the exchange, and its server.

    Attributes:
        federation: Who takes part.
        cohort: The participants that this rank hosts.
        cast: Who attacks, and how.
        exchange: The way to the server and back.
        server: The rule; on ranks that do not serve, their participants' half of it alone.
        schedule: Local training.
        precision: In which precision is computed.
        personal: The hosted participants' models of their own, beside the shared; None where they have none.
        pull: How strongly these are drawn to the shared ones.
        colluders: What every omniscient adversary remembers, by participant; filled on rank 0, and never by shards.
        restored: A server that is made anew and has taken the state of this one; None in rounds in which nobody asks
            whether it decides the same.
    """

    federation: Federation
    cohort: Cohort
    cast: Cast
    exchange: Exchange
    server: Server
    schedule: Schedule
    precision: Precision
    personal: Cohort | None = None
    pull: float = 0.0
    colluders: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    restored: Server | None = None

    def hosted(self) -> list[tuple[int, int]]:
        """Row and number of every hosted participant."""
        return list(enumerate(self.cohort.participants))

    def up(self) -> list[tuple[int, int]]:
        """Row and number of every hosted participant but members that were not asked to take part."""
        exchange, meets = self.exchange, self.server.communicates
        return [(row, i) for row, i in self.hosted() if i in exchange.asked or not (meets and exchange.active[i])]

    def drawing(self, purpose: str, *coordinates: int) -> AbstractContextManager[None]:
        """Where a class that may be a user's own may draw at random: an interruption and other ranks change nothing."""
        return random_stream(self.federation.seed_for(purpose, *coordinates), self.exchange.device)

    def drawing_ones_own(self, purpose: str, *coordinates: int) -> AbstractContextManager[None]:
        """Likewise where the package's own rules draw nothing, and a stream for each participant takes its time."""
        return nullcontext() if is_packaged(innermost(self.server)) else self.drawing(purpose, *coordinates)


def of_server(server: Server, doing: str, number: int) -> AbstractContextManager[None]:
    """Where a server that may be a user's own does its part in a round, counted from 0."""
    return ones_own(server, "--server", f"{doing} in round {number + 1}", GO_ON)
