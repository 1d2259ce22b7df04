"""What every server is: a rule that turns the uploads of a round into a verdict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from rffl_pl.functional.reputation import sound


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A server's answer to one round; every tensor has one entry per participant, ``[P]``.

    Attributes:
        weights: Weight of each upload in the aggregate.
        similarities: Cosine between each upload and the aggregate; NaN where there was no upload.
        reputations: Reputations after the round, 0 for whoever is not a member.
        quotas: Share of the aggregate's entries that each participant receives, in [0, 1].
        members: Who is still a member after the round (bool).
        removed: Participants removed in this round, with no way back.
        set_aside: Participants whose upload could not be computed with (NaN, infinity, overflow) and was ignored.
        download: The step ``[D]`` that a participant adds to its model; computed when asked for, so that there
            never are P dense ones.
    """

    weights: Tensor
    similarities: Tensor
    reputations: Tensor
    quotas: Tensor
    members: Tensor
    removed: tuple[int, ...]
    set_aside: tuple[int, ...]
    download: Callable[[int], Tensor]


class Server(ABC):
    """Base of all servers. It lives on rank 0; `outgoing` and `kept` alone also run where the participants are.

    A server of your own implements `rule` and is given by class path: ``--server my_package.MyServer``.
    """

    communicates: ClassVar[bool] = True
    """Whether participants exchange anything at all."""

    def __init__(self) -> None:
        self.examples = torch.empty(0)
        self.layers: Sequence[int] = ()
        self.members = torch.empty(0, dtype=torch.bool)
        self.round = 0

    def start(self, examples: Sequence[int], layers: Sequence[int]) -> None:
        """Called once before the first round.

        Args:
            examples: Number of training examples of every participant, P of them.
            layers: Number of entries of every parameter tensor, in ``module.parameters()`` order; they add up to D.

        Raises:
            UserError: If the rule cannot work with that many participants.
        """
        self.examples = torch.tensor(examples, dtype=torch.float64)
        self.layers = tuple(layers)
        self.members = torch.ones(len(examples), dtype=torch.bool)
        self.round = 0

    def outgoing(self, updates: Tensor) -> Tensor:
        """What participants make of their local updates ``[n, D]`` before they send them (and apply them)."""
        return updates

    def kept(self, updates: Tensor) -> Tensor:
        """What participants keep of their local updates ``[n, D]``: by default what they send."""
        return self.outgoing(updates)

    def step(self, uploads: Tensor, senders: Sequence[int]) -> Verdict:
        """One round: screen the uploads, then apply the rule.

        Args:
            uploads: Uploads of this round's members, ``[m, D]``.
            senders: The participant behind every row, m of them, ascending.
        """
        mask = sound(uploads).cpu()
        verdict = self.rule(uploads, torch.tensor(senders, dtype=torch.int64), mask)
        self.members = verdict.members
        self.round += 1
        return verdict

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
