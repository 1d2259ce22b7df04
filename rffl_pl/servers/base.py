"""What every server is: a rule that turns the uploads of a round into a verdict."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from rffl_pl.configured import Configured
from rffl_pl.errors import GO_ON, UserError, ones_own, path_of
from rffl_pl.functional import wire
from rffl_pl.functional.blocks import Rows
from rffl_pl.functional.fingerprints import described
from rffl_pl.functional.finite import all_finite, empty, sound
from rffl_pl.functional.streams import drawn_so_far
from rffl_pl.servers.coordinates import Coordinates
from rffl_pl.servers.evidence import Evidence


class Root(Protocol):
    """Clean examples of the server's own, and the training on them; see `rffl_pl.round.root`."""

    def __len__(self) -> int:
        """How many examples there are."""

    def update(self, weights: Tensor, count: int, round_index: int) -> Tensor:
        """The update ``[D]`` that training on the first ``count`` of them makes of weights ``[D]`` in a round."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a server is told before the first round.

    Attributes:
        examples: Number of training examples of every participant, P of them.
        classes: Number of different classes among them, P numbers.
        layers: Number of entries of every parameter tensor, in ``module.parameters()`` order; they add up to D.
        learning_rate: The participants' initial learning rate.
        optimizer: Their optimizer's class, by name.
        seed: Seed of the server's own random streams.
        initial: The weights that every participant starts from, ``[d]``: those of the coordinates that are here.
        accuracy: Accuracy of weights ``[D]`` on the server's validation examples; None where there are none.
        root: What the server learns from validation examples itself; None where there are none.
        participation: Share of the participants that are asked in every round, in [0, 1].
        coordinates: Those that are here; None for all.
        uploads: How many uploads a rule is given in a round, where they are not those of the members that are asked.
        tolerated: How many of them the federation has rules tolerate; None where it does not say.
    """

    examples: Sequence[int]
    classes: Sequence[int]
    layers: Sequence[int]
    learning_rate: float
    seed: int
    initial: Tensor
    accuracy: Callable[[Tensor], float] | None
    root: Root | None = None
    optimizer: str = "SGD"
    participation: float = 1.0
    coordinates: Coordinates | None = None
    uploads: int | None = None
    tolerated: int | None = None

    @property
    def asked(self) -> int:
        """How many uploads a rule is given in a round, which is how many of P members are asked."""
        return self.uploads or self._members

    @property
    def bad(self) -> int:
        r"""How many of them may be bad where no option of the rule's own says.

        It is `tolerated`, or where that does not say either, :math:`\lfloor 0.2 P \rfloor` of P members that are asked,
        the clip ratio of Xu and Lyu 2021; and as many where a rule is given fewer uploads than those.
        """
        return math.floor(0.2 * self._members) if self.tolerated is None else self.tolerated

    def tolerating(self, given: int | None, most: int, law: str, option: str = "--server.byzantine") -> int:
        """How many a rule is to tolerate: what its own option says, or `tolerated`, or of `bad` as many as it can.

        Args:
            given: What its own option says; None where nobody gave it.
            most: How many it can tolerate.
            law: What says so, ``f >= 0 and 2f < P``.
            option: Its own.

        Raises:
            UserError: If it is asked for others.
        """
        f = self.tolerated if given is None else given
        if f is None:
            return min(self.bad, most)
        if not 0 <= f <= most:
            option = "--federation.tolerated" if given is None else option
            raise UserError(
                f"Expected {option} f with {law}, but got f = {f} and {self.counted}; give at most {most}, or "
                f"{self.more}."
            )
        return f

    @property
    def counted(self) -> str:
        """How many uploads a rule is given, for messages, as ``P = 3 mixed uploads``."""
        if self.uploads:
            return f"P = {self.uploads} mixed uploads"
        some = f" of {len(self.examples)} participants asked in a round" if self.participation < 1 else " participants"
        return f"P = {self.asked}{some}"

    @property
    def more(self) -> str:
        """What to do to have more of them, for messages."""
        how = "ask more by --federation.participation or --federation.coalition"
        how = how if self.participation < 1 else "take more --federation.participants"
        return f"{how} or smaller buckets" if self.uploads else how

    @property
    def _members(self) -> int:
        return max(1, round(self.participation * len(self.examples)))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A server's answer to one round; every tensor has one entry per participant, ``[P]``.

    Attributes:
        weights: Weight of each upload in the aggregate.
        similarities: Cosine between each upload and the aggregate, or what the rule scores it against; NaN for whoever
            was not scored.
        reputations: Reputations after the round, 0 for whoever is not a member.
        quotas: Share of the aggregate's entries that each participant receives, in [0, 1].
        members: Who is still a member after the round (bool).
        download: The step ``[d]`` that a participant adds to its model, of the coordinates that are here; computed when
            asked for, so that there never are P dense ones. Whoever receives the same is given the same tensor.
        measures: What else a server measures, by name; NaN for whoever has no value.
        reasons: Why each of ``removed`` was, as the user is told it, with what to do about it; whoever has none is
            said to have been removed by the rule.
        removed: Participants removed in this round, with no way back; `Server.step` fills it in.
        set_aside: Participants whose upload could not be computed with (NaN, infinity, overflow) and was ignored;
            `Server.step` fills it in.
        silent: Participants whose upload was zeros and was no vote; `Server.step` fills it in.
    """

    weights: Tensor
    similarities: Tensor
    reputations: Tensor
    quotas: Tensor
    members: Tensor
    download: Callable[[int], Tensor]
    measures: dict[str, Tensor] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    removed: tuple[int, ...] = ()
    set_aside: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()


FACTS = ("weights", "similarities", "reputations", "quotas", "members")
"""What a verdict says of every participant."""


class ParticipantSide(Configured):
    """The half of a framework that runs where a participant is: one participant at a time, D entries each."""

    _group: ClassVar[str] = "--server"

    layers: Sequence[int] = ()
    """Number of entries of every parameter tensor, from `Server.start` on; they add up to D."""

    def kept(self, update: Tensor) -> Tensor:
        """What a participant applies of its local update ``[D]`` itself: by default all."""
        return update

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        """What a participant makes of its local update ``[D]`` before it sends it: by default nothing else.

        What it draws at random, noise say, comes from a stream of this participant and round.

        Args:
            update: ``[D]``.
            memory: Empty at first; the participant keeps it over the rounds and in checkpoints. Changed in place.
            model: The participant's weights ``[D]`` before the round.
        """
        return update

    def pack(self, upload: Tensor) -> Tensor:
        """The payload, uint8 ``[K]``, that is sent for a float32 upload ``[d]``: by default all but blocks of zeros.

        It is the whole upload, or under ``--exchange sharded`` each rank's part of it.
        """
        return wire.pack_blocks(upload)

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        """The upload ``[dimension]`` behind a payload uint8 ``[K]``.

        Raises:
            ValueError: If the payload is none that `pack` makes.
        """
        return wire.unpack_blocks(payload, dimension)


class Server(ParticipantSide, ABC):
    """Base of all servers. It lives on rank 0; its `ParticipantSide` alone runs where the participants are.

    Under ``--exchange sharded`` it lives on every rank: the same rule on other coordinates, with the same numbers of
    participants, so that all decide alike.

    A server of your own implements `rule`, or is a `rffl_pl.servers.Consensus`, and is given by class path:
    ``--server my_package.MyServer``.
    """

    communicates: ClassVar[bool] = True
    """Whether participants exchange anything at all."""

    hears_losses: ClassVar[bool] = False
    """Whether participants also send the mean loss of their training examples before local training."""

    steps_by_updates: bool = True
    """Whether what participants download is about as long as their updates and goes where these went on average.

    `rffl_pl.training.scaffold` reads the mean gradient off it, and diverges by steps that are longer or go by earlier
    rounds.
    """

    gives_all: bool = False
    """Whether everybody downloads every entry of a step, so that for `rffl_pl.training.scaffold` one of 0 was
    downloaded too.

    Not so where a layer stays with its owner.
    """

    hands_models: bool = False
    """Whether `model_for` may have members start from the server's model although they missed no round."""

    by_coordinate: ClassVar[Sequence[str] | None] = None
    """For ``--exchange sharded``: what in `state_dict` has an entry for every coordinate, vectors or dicts of them.

    None where the rule needs all coordinates at once. One that reads no more of uploads than the statistics of its
    `Evidence`, and combines by `Evidence.combined`, does not, and can be sharded.
    """

    given_by: str = "--server"
    """The option that its class is given by; of a rule that others are around ``--server.rule``."""

    _of_every_server: ClassVar[frozenset[str]] = frozenset({"coordinates", "examples", "layers", "members", "round"})
    """Attribute names that `start` overwrites: an option that is stored under one of them would be lost."""

    def __init__(self) -> None:
        self.coordinates = Coordinates(0)
        self.examples = torch.empty(0)
        self.layers: Sequence[int] = ()
        self.members = torch.empty(0, dtype=torch.bool)
        self.round = 0
        self._task_seed = 0

    @property
    def given_as(self) -> str:
        """By what and as what it was given, as messages have it, ``--server.rule Median`` say."""
        return f"{self.given_by} {type(self).__name__}"

    @property
    def answerable(self) -> Server:
        """The rule that an error is blamed on.

        The outermost user-written one of this rule and those it wraps; if all are the package's, this one.
        """
        return self

    def start(self, task: Task) -> None:
        """Called once before the first round.

        Raises:
            UserError: If the rule cannot work with that many participants, needs what the task does not have, or keeps
                an option where values of the task come.
        """
        for name in self._of_every_server & self.arguments.keys():
            if vars(self).get(name) is self.arguments[name]:
                raise UserError(
                    f"Expected {self.given_as} to store its options under names of their own, but start "
                    f"overwrites {name}, one of {', '.join(sorted(self._of_every_server))}; give it another name."
                )
        self.examples = torch.tensor(task.examples, dtype=torch.float64)
        self.layers = tuple(task.layers)
        self.coordinates = task.coordinates or Coordinates(sum(task.layers))
        self.members = torch.ones(len(task.examples), dtype=torch.bool)
        self.round = 0
        self._task_seed = task.seed

    def step(self, uploads: Rows, senders: Sequence[int], losses: Tensor | None = None) -> Verdict:
        """One round: screen the uploads, then apply the rule.

        An upload that cannot be computed with is set aside. One of zeros is no vote: counted, it would draw a mean or a
        median towards 0, and nothing lies closer together than two of them. A rule sees neither.

        Args:
            uploads: m rows ``[d]``, for instance of a matrix; they are not changed.
            senders: The participant behind every row, m of them, ascending. A member that is not among them was not
                asked in this round.
            losses: What the participants reported, ``[P]``, if the server `hears_losses`; whoever's loss is not finite
                is set aside.
        """
        asked = torch.tensor(senders, dtype=torch.int64)
        squares = self.coordinates.squared_norms(uploads)
        fit = sound(squares)
        if losses is not None:
            losses = losses.double().cpu()
            fit &= losses[asked].isfinite()
        blank = fit & empty(squares)
        told = fit & ~blank
        here = asked[told]
        before = self.members.clone()  # which a rule may change in place
        drawn: list[bytes] = []
        verdict: object = self.rule(
            Evidence(
                round=self.round,
                asked=asked,
                silent=asked[blank],
                senders=here,
                examples=self.examples[here],
                squared_norms=squares[told],
                losses=None if losses is None else losses[here],
                uploads=uploads if told.all() else [row for row, good in zip(uploads, told, strict=True) if good],
                participants=len(self.members),
                dimension=sum(self.layers),
                coordinates=self.coordinates,
                combining=lambda: drawn.append(self.stream_positions(uploads[0].device)),
            )
        )
        if drawn:
            self.check_nothing_drawn("combine uploads", drawn[0], uploads[0].device)
        if not isinstance(verdict, Verdict):
            raise UserError(f"Expected rule of {self.given_as} to return a Verdict, but got {type(verdict).__name__}.")
        self._check_verdict(verdict)
        self.members = before & verdict.members
        gone = (before & ~self.members).nonzero().flatten()
        self.round += 1
        return replace(
            verdict,
            members=self.members,
            download=self._checked(verdict.download, uploads[0].dtype if len(uploads) else None),
            removed=tuple(gone.tolist()),
            set_aside=tuple(asked[~fit].tolist()),
            silent=tuple(asked[blank].tolist()),
        )

    @abstractmethod
    def rule(self, evidence: Evidence) -> Verdict:
        """The framework's own rule."""

    def _stream_of_round(self, number: int) -> torch.Generator:
        """What a rule draws from in a round, counted from 0: the same on every rank and after an interruption."""
        return torch.Generator().manual_seed((self._task_seed + number) % 2**63)

    def stream_positions(self, device: torch.device) -> bytes:
        """Positions of the random streams if only some coordinates are here; else empty."""
        return drawn_so_far(device) if 0 < self.coordinates.size < sum(self.layers) else b""

    def check_nothing_drawn(self, doing: str, before: bytes, device: torch.device) -> None:
        """See that nothing was drawn while a part of a vector was made: all ranks would draw the same for their parts.

        Args:
            doing: What was done.
            before: What `drawn` gave before.
            device: Where the vector is.

        Raises:
            UserError: If something was.
        """
        if self.stream_positions(device) != before:
            raise UserError(
                f"Expected {self.answerable.given_as} to {doing} without drawing at random under --exchange "
                "sharded, where every rank would draw the same numbers for other coordinates, but it draws; draw "
                "before uploads are combined, as in weigh, or give --exchange central."
            )

    def _check_verdict(self, verdict: Verdict) -> None:
        """See that everybody has an entry of everything, as who writes a rule of his own may forget.

        Raises:
            UserError: If not, if a weight or a reputation is not finite, or a quota does not lie in [0, 1].
        """
        facts = {name: getattr(verdict, name) for name in FACTS}
        for what, values in (facts | verdict.measures).items():
            self.check_entries(what, values, len(self.members), "participants")
        if verdict.members.dtype != torch.bool:
            raise UserError(
                f"Expected members of {self.given_as} to be True or False for every participant, but "
                f"got {verdict.members.dtype}."
            )
        self.check_finite("weights", verdict.weights)
        self.check_finite("reputations", verdict.reputations)
        apart = verdict.quotas[~((verdict.quotas >= 0) & (verdict.quotas <= 1))]
        if len(apart):
            raise UserError(
                f"Expected quotas of {self.given_as} to be shares, between 0 and 1, but got "
                f"{float(apart[0])} in round {self.round + 1}; clamp(0, 1) what only rounding takes beyond."
            )

    def check_entries(self, what: str, values: Any, count: int, of: str) -> None:
        """See that there is an entry for each.

        Raises:
            UserError: If not.
        """
        if not isinstance(values, Tensor) or values.shape != (count,):
            raise UserError(
                f"Expected {what} of {self.given_as} to be a tensor with an entry for each of {count} "
                f"{of}, but got {described(values)}."
            )

    def check_finite(self, what: str, values: Tensor, number: int | None = None) -> None:
        """See that all can be computed with.

        Args:
            what: What the values are.
            values: Any number of them.
            number: The round that they are of, counted from 1; by default the one that is played.

        Raises:
            UserError: If not.
        """
        if not all_finite(values):
            raise UserError(
                f"Expected {what} of {self.given_as} to be finite, but round "
                f"{number or self.round + 1} has NaN or infinity there; mend its rule and go on from the checkpoint "
                "before with --ckpt_path last."
            )

    def _checked(self, download: Callable[[int], Tensor], dtype: torch.dtype | None) -> Callable[[int], Tensor]:
        """Downloads that a participant can add to its model; what several receive is looked at once."""
        known: list[tuple[Tensor, int]] = []  # the last one, and how often it had been changed
        number = self.round  # which is over by now

        def checked(participant: int) -> Tensor:
            step = download(participant)
            if not known or step is not known[0][0]:
                self.check_entries("a download", step, self.coordinates.size, "coordinates")
                if dtype not in (step.dtype, None):
                    raise UserError(
                        f"Expected a download of {self.given_as} to be of the uploads' {dtype}, but got {step.dtype}."
                    )
                self.check_finite("a download", step, number)
                known[:] = [(step, changes_of(step))]
            elif changes_of(step) != known[0][1]:
                raise UserError(
                    f"Expected a download of {self.given_as} to stay as it is, but participant "
                    f"{participant}'s is the previous participant's tensor, overwritten; return a clone()."
                )
            return step

        return checked

    def model_for(self, participant: int) -> Tensor | None:
        """The model ``[d]`` that a participant starts from in the round that begins; None is its own, the default.

        It is asked for where members miss rounds, of those that take part, and where `hands_models` says so.
        """
        return None

    def state_dict(self) -> dict[str, Any]:
        """What must survive an interruption: tensors and plain numbers only."""
        return {"members": self.members, "round": self.round}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; called after `start`."""
        self.members = state["members"]
        self.round = state["round"]

    def whole_state(self) -> dict[str, Any]:
        """What `state_dict` gives, with all coordinates, on rank 0: the same however they are spread over ranks.

        Raises:
            UserError: If it has what no checkpoint keeps, or a vector of a part of the coordinates is not named in
                `by_coordinate`.
        """
        with at_work(self, "give its state for a checkpoint", GO_ON):
            state = self.state_dict()
        self.check_state(state)
        return self._by_coordinate(state, self.coordinates.gathered)

    def load_whole_state(self, state: dict[str, Any]) -> None:
        """Restore what `whole_state` gave."""
        self.load_state_dict(self._by_coordinate(state, self.coordinates.of))

    def check_state(self, state: dict[str, Any]) -> None:
        """See that a checkpoint can keep what `state_dict` gives, and every rank its part of it.

        Raises:
            UserError: If not.
        """
        self._check_kept(state)
        self._check_named(state)

    def _check_kept(self, state: dict[str, Any]) -> None:
        """See that all can be read back: NumPy's numbers cannot, though they look like Python's."""
        for name, value in state.items():
            lost = next(unkept(value), None)
            if lost is not None:
                raise UserError(
                    f"Expected state_dict of {self.given_as} to hold tensors and Python's own numbers "
                    f"and texts, which a checkpoint keeps, but {name} has {path_of(type(lost))}; give float(...) "
                    "or torch.as_tensor(...)."
                )

    def _check_named(self, state: dict[str, Any]) -> None:
        """See that nobody takes a part for the whole, who saves one rank's vector for all."""
        here = self.coordinates.size
        if here in (0, len(self.members), sum(self.layers)):  # nothing, or what may be a number per participant, or all
            return
        for name in state.keys() - {*(self.by_coordinate or ())}:
            values = state[name].values() if isinstance(state[name], dict) else [state[name]]
            if any(isinstance(value, Tensor) and value.shape == (here,) for value in values):
                raise UserError(
                    f"Expected by_coordinate of {self.given_as} to name all that has an entry per "
                    f"coordinate, but {name} of its state_dict is not among them; add it."
                )

    def _by_coordinate(self, state: dict[str, Any], change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """A state in which every vector that has an entry for each coordinate is changed."""
        names = [name for name in self.by_coordinate or () if name in state]
        return state | {name: _each(state[name], change) for name in names}


def at_work(server: Server, doing: str, remedy: str = "mend it") -> AbstractContextManager[None]:
    """Where a server does its part: `rffl_pl.errors.ones_own` of the rule that answers for it.

    Args:
        server: The server.
        doing: What it does, say ``start``.
        remedy: What to do about a failure.
    """
    rule = server.answerable
    return ones_own(rule, rule.given_by, doing, remedy)


def without_validation(server: Server) -> UserError:
    """The error of a server that needs validation examples and has none."""
    return UserError(
        f"Expected validation examples for the server of {type(server).__name__}, but --data holds none out; give "
        "--data.validation 0.1, under --data.split OWN data with a validation set in common, or another --server."
    )


def unkept(value: Any) -> Iterator[Any]:
    """What a checkpoint that runs no code cannot hold."""
    if type(value) in (dict, OrderedDict):
        yield from (found for pair in value.items() for one in pair for found in unkept(one))
    elif type(value) in (list, tuple, set):
        yield from (found for one in value for found in unkept(one))
    elif not isinstance(value, Tensor) and type(value) not in (type(None), bool, int, float, str, bytes):
        yield value


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    return {key: _each(one, change) for key, one in value.items()} if isinstance(value, dict) else change(value)


def changes_of(vector: Tensor) -> int:
    """How often a tensor was changed in place; of one of inference torch does not count."""
    return 0 if vector.is_inference() else vector._version
