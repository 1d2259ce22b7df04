"""What every adversary is: somebody who trains on, or uploads, something else than the honest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric

from rffl_pl.configured import Configured


@dataclass(frozen=True, kw_only=True)
class Situation:
    """All that an adversary has to go by in one round; its tensors are not to be changed in place, but its memory is.

    Attributes:
        round: The round, counted from 0.
        participant: Its number.
        update: Its update ``[D]`` from its own training; zeros if it does not train.
        model: Its model ``[D]`` before the round.
        memory: What it remembers: empty at first, kept over the rounds and in checkpoints, tensors by name.
        download: The step ``[D]`` that it received last; None before the first, and for an attack that does not
            `Adversary.keeps_download`.
        generator: Its own random stream of this round, on the CPU.
        agreed: A random stream of this round that every adversary of the run gets alike, on the CPU.
        honest: The finite uploads of honest members as the server has them, ``[h, D]``, h at least 1; for an
            `OmniscientAdversary`, None for any other.
        adversaries: How many adversaries upload in this round, itself among them; of an `OmniscientAdversary`.
    """

    round: int
    participant: int
    update: Tensor
    model: Tensor
    memory: dict[str, Tensor]
    download: Tensor | None
    generator: torch.Generator
    agreed: torch.Generator
    honest: Tensor | None = None
    adversaries: int = 1


class Adversary(Configured, ABC):
    """Base of all attacks. What is uploaded passes through the same clipping as everybody's.

    An attack of your own overrides `labels` or `poison`, or `upload`, and is given by class path:
    ``--adversaries+=my_package.MyAttack``. One that needs the honest uploads is an `OmniscientAdversary`. One that
    has a success of its own to report offers `measures`, on the examples that `probe` makes. One object serves all
    participants of a process: after `prepare` only `Situation.memory` may change.
    """

    _group: ClassVar[str] = "--adversaries"

    trains: ClassVar[bool] = True
    """Whether it trains in every round; if not, its update is zero. `trains_in` is for what lies between."""

    keeps_download: ClassVar[bool] = False
    """Whether it keeps the step that it received last, for `Situation.download`."""

    @classmethod
    def _option(cls, name: str) -> str:
        """The option that gives an argument, and to which attack: several may have one of that name."""
        return f"{super()._option(name)} of {cls.__name__}"

    def prepare(self, num_classes: int) -> None:
        """Called before the first round.

        Raises:
            UserError: If the attack does not fit a task of so many classes.
        """

    def labels(self, y: Tensor) -> Tensor:
        """The classes ``[B]`` that the adversary trains with instead of ``y`` ``[B]``, which is not to be changed."""
        return y

    def poison(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The batch, inputs ``[B, ...]`` and classes ``[B]``, that it trains with; neither is to be changed."""
        return x, self.labels(y)

    def trains_in(self, round_index: int) -> bool:
        """Whether it trains in a round, counted from 0; if not, its update of that round is zero."""
        return self.trains

    def upload(self, situation: Situation) -> Tensor:
        """What is uploaded, ``[D]``, instead of the update."""
        return situation.update

    def measures(self, num_classes: int) -> dict[str, Metric]:
        """What is measured of every model, by name: metrics of logits ``[B, C]`` and classes ``[B]``."""
        return {}

    def probe(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The examples that its measures see, made from a batch, which is not to be changed; by default it itself.

        During training it is one of what is watched (``--data.watch``), at the end of the test set.
        """
        return x, y


class OmniscientAdversary(Adversary):
    """Base of attacks by somebody who knows all honest uploads: a simulation, since nobody but the server does.

    `collude` runs on rank 0 after the uploads have been gathered, and the run says so. In its place `upload` is not
    called. Its memory stays on rank 0; its ``update`` and its ``model`` are what it sent, and zeros.
    """

    @abstractmethod
    def collude(self, situation: Situation) -> Tensor:
        """What is uploaded, ``[D]``."""


def each_once(attacks: Iterable[Adversary]) -> Iterable[Adversary]:
    """Each object once, by identity: a user's class may not be hashable."""
    return {id(attack): attack for attack in attacks}.values()
