"""Who sits at one rank's table in a round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from torch import Tensor

from rffl_pl.adversaries import Cast
from rffl_pl.errors import GO_ON, is_packaged
from rffl_pl.exchange import Exchange
from rffl_pl.federation import Federation
from rffl_pl.functional.streams import random_stream
from rffl_pl.servers import Server
from rffl_pl.servers.base import at_work
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Precision, Schedule


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

    def rows(self) -> list[tuple[int, int]]:
        """Row and number of every hosted participant."""
        return list(enumerate(self.cohort.participants))

    def rows_in_round(self) -> list[tuple[int, int]]:
        """Row and number of every hosted participant but members that were not asked to take part."""
        exchange, meets = self.exchange, self.server.communicates
        return [(row, i) for row, i in self.rows() if i in exchange.asked or not (meets and exchange.active[i])]

    def drawing(self, purpose: str, *coordinates: int) -> AbstractContextManager[None]:
        """Context in which user code may draw at random, alike after an interruption and on any number of ranks."""
        return random_stream(self.federation.seed_for(purpose, *coordinates), self.exchange.device)

    def drawing_ones_own(self, purpose: str, *coordinates: int) -> AbstractContextManager[None]:
        """`drawing`, but for a user's server alone: the package's draw nothing here, and seeding takes time."""
        return nullcontext() if is_packaged(type(self.server.answerable)) else self.drawing(purpose, *coordinates)

    @property
    def hands_models(self) -> bool:
        """Whether the server is asked which models members start from: they miss rounds, or it hands some out."""
        return self.federation.asked_share < 1 or self.server.hands_models

    def model_for(self, server: Server, participant: int, round_index: int) -> Tensor | None:
        """The model that a server has a participant start from in a round; None is its own."""
        with self.giving(server, "model", participant, round_index):
            return server.model_for(participant)

    @contextmanager
    def giving(self, server: Server, what: str, participant: int, round_index: int) -> Iterator[None]:
        """Where a server makes a vector for a participant, whatever rank it is on.

        Raises:
            UserError: If it fails, or draws what all ranks would draw for other coordinates.
        """
        doing = f"give a participant its {what}"
        with self.drawing(what, participant, round_index), of_server(server, doing, round_index):
            before = server.stream_positions(self.exchange.device)
            yield
            server.check_nothing_drawn(doing, before, self.exchange.device)


def of_server(server: Server, doing: str, round_index: int) -> AbstractContextManager[None]:
    """Where a server that may be a user's own does its part in a round, counted from 0."""
    return at_work(server, f"{doing} in round {round_index + 1}", GO_ON)
