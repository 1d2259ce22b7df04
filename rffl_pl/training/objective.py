"""What participants train by, where that is more than a loss of logits and classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from rffl_pl.configured import Configured
from rffl_pl.errors import UserError
from rffl_pl.functional.fingerprints import described
from rffl_pl.functional.kept import check_tensors

Loss = Callable[[Tensor, Tensor], Tensor]
"""From class logits ``[B, C]`` and classes ``[B]`` to one number; without one of a user's it is torch's `cross_entropy`
itself."""


@dataclass(frozen=True, kw_only=True)
class LocalRound:
    """A participant's local training in one round, as an `Objective` sees it.

    Attributes:
        round: The round, counted from 0.
        participant: Its number.
        criterion: The loss of class logits ``[B, C]`` and classes ``[B]``, ``--model.loss`` or cross-entropy.
        memory: What it remembers: empty at first, kept over the rounds and in checkpoints, tensors by name.
    """

    round: int
    participant: int
    criterion: Loss
    memory: dict[str, Tensor]


class Objective(Configured, ABC):
    """Base of what participants minimise beside, or instead of, the loss of their logits.

    One of your own is given by class path, ``--model.objective my_package.MyObjective``. One object serves all
    participants of a process in turn, so that what belongs to a participant goes to `LocalRound.memory`. Every
    participant trains by itself, also on a GPU, and drawing at random comes from its own stream of the round.

    Standalone references, models of one's own (``--model.personal``) and what a server learns from validation examples
    are trained by the loss alone.
    """

    _group: ClassVar[str] = "--model.objective"

    def begin(self, network: nn.Module, local: LocalRound) -> None:
        """Called before the first mini-batch of a round, with the weights that the participant starts from.

        Args:
            network: The participant's, in training mode, for reading.
            local: Its round.
        """

    @abstractmethod
    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        """What a step lowers: one number, which depends on the network's parameters.

        Args:
            network: The participant's, in training mode; a call of it gives logits ``[B, C]``.
            x: Inputs ``[B, ...]``.
            y: Classes ``[B]``.
            local: The participant's round.
        """

    def end(self, network: nn.Module, local: LocalRound) -> None:
        """Called after the last mini-batch, with the weights as they are trained, unless they are not finite.

        Args:
            network: The participant's, in training mode, for reading.
            local: Its round.
        """


def check_loss(objective: Objective, found: Any) -> Tensor:
    """What an objective gives for a batch, if the network can be trained by it.

    Raises:
        UserError: If it cannot.
    """
    if (got := not_trainable(found, "parameter")) is not None:
        raise UserError(
            f"Expected the loss of --model.objective {type(objective).__name__} to be one number for a batch, which "
            f"the network can be trained by, but got {got}."
        )
    assert isinstance(found, Tensor)
    return found


def not_trainable(found: Any, by: str) -> str | None:
    """What a loss gave that nothing can be trained by, for messages; None where it is one number that gradients reach.

    Args:
        found: What it gave for a batch.
        by: What the number should depend on.
    """
    if not isinstance(found, Tensor) or found.dim():
        return described(found)
    return None if found.requires_grad else f"one that depends on no {by}"


def check_remembered(objective: Objective, memory: Mapping[str, Any]) -> None:
    """See that an objective remembers what a checkpoint keeps.

    Raises:
        UserError: If it does not.
    """
    check_tensors(f"--model.objective {type(objective).__name__}", memory)
