"""Who is who: participants, adversaries, which rank hosts whom, and where every random stream starts.

P = N honest participants + A adversaries. They are numbered 0 .. P-1, the honest first, and keep their number for ever:
random streams, shards, checkpoint rows and reputations belong to a participant, never to a rank.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Sequence
from numbers import Integral
from typing import ClassVar

from rffl_pl import launch
from rffl_pl.configured import Configured
from rffl_pl.errors import UserError, brief, check_share

MOST_PARTICIPANTS = 1_000_000
"""Participants of a federation, honest and adversaries: each has a column in every table of a run."""


NOBODY = "nobody"
"""The coalition that has none."""


def coalition_name(members: Sequence[int]) -> str:
    """Who takes part, ``0+2`` or `NOBODY`."""
    return "+".join(map(str, sorted(members))) or NOBODY


class Federation(Configured):
    """The members of one federation.

    Args:
        participants: Number N of honest participants; by default one participant, honest or not, per rank.
        adversaries: Number A of adversaries beside them.
        participation: Share of the members, in (0, 1], that is asked to take part in each round, at least one. Whoever
            is not asked trains nothing, sends nothing and is neither punished nor rewarded.
        coalition: The participants, by number and adversaries too, who alone are ever asked; by default everybody. It
            is how a federation does without the others, with everybody's shards and random streams as they are; under
            a server with one shared model alone.
        tolerated: How many bad uploads in a round the rules of servers expect that expect a number, `MultiKrum`,
            `Bulyan`, `DnC`, `NNM`, `ARC` and `TrimmedMean`, where their own option does not say; by default each has
            its own, a fifth of the members that are asked, or as many as it can tolerate of few.
        seed: Seed of every random stream of the run.

    Raises:
        UserError: If there is no honest participant, the number of adversaries is negative, `participation` out of
            range, somebody of the `coalition` no participant, or `tolerated` not less than half of those that are asked
            in a round.
    """

    _group: ClassVar[str] = "--federation"

    def __init__(
        self,
        *,
        participants: int | None = None,
        adversaries: int = 0,
        participation: float = 1.0,
        coalition: list[int] | None = None,
        tolerated: int | None = None,
        seed: int = 0,
    ) -> None:
        if adversaries < 0:
            raise UserError(f"Expected --federation.adversaries to be 0 or more, but got {adversaries}; 0 is none.")
        world_size = launch.world_size()
        honest = world_size - adversaries if participants is None else participants
        if honest < 1 and participants is None:
            raise UserError(
                f"Expected more ranks than adversaries where every rank hosts one participant, but got {world_size} "
                f"rank(s) and --federation.adversaries {adversaries}; give --federation.participants."
            )
        if honest < 1:
            raise UserError(
                f"Expected --federation.participants to be at least 1, but got {participants}; leave it out for one "
                "participant per rank."
            )
        if honest + adversaries > MOST_PARTICIPANTS:
            raise UserError(
                f"Expected at most {MOST_PARTICIPANTS} participants, but got --federation.participants {brief(honest)} "
                f"and --federation.adversaries {brief(adversaries)}; a run keeps a model for each of them."
            )
        check_share("--federation.participation", participation, "1 is everybody in every round", within="(0, 1]")
        named = [] if coalition is None else [*coalition]
        known = {i for i in named if isinstance(i, Integral) and 0 <= i < honest + adversaries}
        if coalition is not None and len(known) < len(coalition):
            raise UserError(
                f"Expected --federation.coalition to be different participants of 0 .. {honest + adversaries - 1}, but "
                f"got {coalition}; leave it out for everybody."
            )
        self.honest = int(honest)
        """The number N of honest participants, who are participants 0 .. N-1."""
        self.adversaries = int(adversaries)
        self.participation = float(participation)
        self.coalition = None if coalition is None else sorted(map(int, coalition))
        self.tolerated = None if tolerated is None else int(tolerated)
        self.seed = int(seed)
        self._check_tolerated()

    def __setattr__(self, name: str, value: object) -> None:
        """Whatever it is, once: shards, attacks and settings are made by it, and would be of the one before.

        Raises:
            UserError: If it is set again.
        """
        if name in vars(self):
            raise UserError(
                f"Expected a Federation to stay as it was made, but its {name} is to be {value}; make another one, "
                "with data and module of its own."
            )
        super().__setattr__(name, value)

    @property
    def total(self) -> int:
        """P = N + A."""
        return self.honest + self.adversaries

    @property
    def asked_share(self) -> float:
        """The share of all P participants that is asked to take part in each round, in [0, 1]."""
        return self.participation if self.coalition is None else self._count(len(self.coalition)) / self.total

    def _check_tolerated(self) -> None:
        asked = self._count(self.total if self.coalition is None else len(self.coalition))
        if self.tolerated is not None and not 0 <= 2 * self.tolerated < asked:
            raise UserError(
                f"Expected --federation.tolerated to be 0 or more and less than half of the {asked} participants that "
                f"are asked in a round, adversaries too, but got {self.tolerated}; give at most {(asked - 1) // 2}, or "
                "leave it out for what each rule has."
            )

    def is_honest(self, participant: int) -> bool:
        """Whether a participant is one of the honest ones."""
        return participant < self.honest

    def asked(self, members: Sequence[int], round_index: int) -> list[int]:
        """Who of the members takes part in a round, ascending: all, or as many as `participation` says, by lot.

        Of members that are not of the `coalition` none does.
        """
        able = sorted(members if self.coalition is None else {*members} & {*self.coalition})
        if self.participation == 1 or not able:
            return able
        lots = random.Random(self.seed_for("participation", round_index))
        return sorted(lots.sample(able, self._count(len(able))))

    def _count(self, able: int) -> int:
        """How many of those who can be asked are."""
        return min(able, max(1, round(self.participation * able)))

    def hosted_by(self, rank: int, world_size: int) -> list[int]:
        """The participants that a rank hosts, ascending: participant i is rank i's where there are as many ranks.

        Where there are fewer, participants are dealt out from the last one on, to and fro over the ranks: with POW
        shards grow with the participant's number, and every rank has about as much to train.

        Raises:
            UserError: If there are more ranks than participants.
        """
        if world_size > self.total:
            raise UserError(
                f"Expected at most one rank per participant, but got {world_size} ranks for {self.total} participants "
                f"({self.honest} honest, {self.adversaries} adversaries); give torchrun's --nproc_per_node, or "
                "--ranks, at most that many or raise --federation.participants."
            )
        to_and_fro = [*reversed(range(world_size)), *range(world_size)]
        dealt = zip(reversed(range(self.total)), itertools.cycle(to_and_fro), strict=False)
        return sorted(participant for participant, host in dealt if host == rank)

    def seed_for(self, purpose: str, *coordinates: int | str) -> int:
        r"""The seed of a random stream, e.g. ``seed_for("training", participant, round)``, in 0 .. :math:`2^{63} - 1`.

        A hash, so that streams of different purposes, participants and rounds are unrelated and none depends on how
        many ranks there are or on what was drawn before.
        """
        text = "/".join(map(str, (self.seed, purpose, *coordinates)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def check_federation(given: object) -> None:
    """See that what data and module are given is a federation.

    Raises:
        UserError: If it is none, the class itself for instance.
    """
    if not isinstance(given, Federation):
        raise UserError(f"Expected the federation to be an instance, Federation(), but got {given}.")
