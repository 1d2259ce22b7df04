"""What every server is: a rule that turns the uploads of a round into a verdict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from rffl_pl.configured import Configured
from rffl_pl.functional.reputation import sound


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a server is told before the first round.

    Attributes:
        examples: Number of training examples of every participant, P of them.
        classes: Number of different classes among them, P numbers.
        layers: Number of entries of every parameter tensor, in ``module.parameters()`` order; they add up to D.
        learning_rate: The participants' initial learning rate.
        seed: Seed of the server's own random streams.
        initial: The weights ``[D]`` that every participant starts from.
        accuracy: Accuracy of weights ``[D]`` on the server's validation examples; None where there are none.
    """

    examples: Sequence[int]
    classes: Sequence[int]
    layers: Sequence[int]
    learning_rate: float
    seed: int
    initial: Tensor
    accuracy: Callable[[Tensor], float] | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A server's answer to one round; every tensor has one entry per participant, ``[P]``.

    Attributes:
        weights: Weight of each upload in the aggregate.
        similarities: Cosine between each upload and the aggregate; NaN where there was no upload.
        reputations: Reputations after the round, 0 for whoever is not a member.
        quotas: Share of the aggregate's entries that each participant receives, in [0, 1].
        members: Who is still a member after the round (bool).
        download: The step ``[D]`` that a participant adds to its model; computed when asked for, so that there
            never are P dense ones.
        removed: Participants removed in this round, with no way back; `Server.step` fills it in.
        set_aside: Participants whose upload could not be computed with (NaN, infinity, overflow) and was ignored;
            likewise.
        silent: Participants whose upload told nothing.
        measures: What else the server measured, ``[P]`` each.
        reasons: For each of `removed`, the clause that the user is told.
    """

    weights: Tensor
    similarities: Tensor
    reputations: Tensor
    quotas: Tensor
    members: Tensor
    download: Callable[[int], Tensor]
    removed: tuple[int, ...] = ()
    set_aside: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    measures: dict[str, Tensor] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)


class Server(Configured, ABC):
    """Base of all servers. It lives on rank 0.

    `outgoing`, `kept` and `pack` alone run where the participants are.

    A server of your own implements `rule`, or `aggregate` of `rffl_pl.servers.Consensus`, and is given by class path:
    ``--server my_package.MyServer``.
    """

    communicates: ClassVar[bool] = True
    """Whether participants exchange anything at all."""

    hears_losses: ClassVar[bool] = False
    """Whether participants also send the mean loss of their training examples before local training."""

    def __init__(self) -> None:
        self.examples = torch.empty(0)
        self.layers: Sequence[int] = ()
        self.members = torch.empty(0, dtype=torch.bool)
        self.losses = torch.empty(0)
        self.round = 0

    def start(self, task: Task) -> None:
        """Called once before the first round.

        Raises:
            UserError: If the rule cannot work with that many participants, or needs what the task does not have.
        """
        self.examples = torch.tensor(task.examples, dtype=torch.float64)
        self.layers = tuple(task.layers)
        self.members = torch.ones(len(task.examples), dtype=torch.bool)
        self.round = 0

    def outgoing(self, updates: Tensor, memories: Sequence[dict[str, Tensor]]) -> Tensor:
        """What participants make of their local updates before they send them.

        Args:
            updates: ``[n, D]``.
            memories: One dictionary per row, empty at first, that the participant keeps over the rounds and in
                checkpoints; to be changed in place.
        """
        return updates

    def kept(self, updates: Tensor) -> Tensor:
        """What participants apply of their local updates ``[n, D]`` themselves: by default all."""
        return updates

    def pack(self, uploads: Tensor) -> Tensor:
        """The payloads ``[n, K]`` of any dtype that are sent for uploads ``[n, D]``: by default the uploads."""
        return uploads

    def unpack(self, payloads: Tensor) -> Tensor:
        """The uploads ``[m, D]`` behind payloads ``[m, K]``."""
        return payloads

    def step(self, uploads: Tensor, senders: Sequence[int], losses: Tensor | None = None) -> Verdict:
        """One round: screen the uploads, then apply the rule.

        Args:
            uploads: Uploads of this round's members, ``[m, D]``.
            senders: The participant behind every row, m of them, ascending.
            losses: What the participants reported, ``[P]``, if the server `hears_losses`; whoever's loss is not finite
                is set aside.
        """
        mask = sound(uploads).cpu()
        if losses is not None:
            self.losses = losses.double().cpu()
            mask &= self.losses[list(senders)].isfinite()
        behind = torch.tensor(senders, dtype=torch.int64)
        verdict = self.rule(uploads, behind, mask)
        gone = (self.members & ~verdict.members).nonzero().flatten()
        self.members = verdict.members
        self.round += 1
        return replace(verdict, removed=tuple(gone.tolist()), set_aside=tuple(behind[~mask].tolist()))

    @abstractmethod
    def rule(self, uploads: Tensor, senders: Tensor, sound: Tensor) -> Verdict:
        """The framework's own rule.

        Args:
            uploads: ``[m, D]``; rows that are not sound hold anything and must not enter any sum.
            senders: ``[m]`` int64, the participant behind every row.
            sound: ``[m]`` bool, which rows can be computed with.
        """

    def state_dict(self) -> dict[str, Any]:
        """What must survive an interruption: tensors and plain numbers only."""
        return {"members": self.members, "round": self.round}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; called after `start`."""
        self.members = state["members"]
        self.round = state["round"]
