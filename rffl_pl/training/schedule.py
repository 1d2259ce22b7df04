"""How participants train: for how many epochs or steps, at which learning rates, with which optimizer and loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from rffl_pl.errors import UserError, check_number, check_share, reason
from rffl_pl.training.objective import Loss
from rffl_pl.training.parameters import trainable

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]
Batches = Iterable[tuple[Tensor, Tensor]]


class Examples(Protocol):
    """A participant's training examples, e.g. `rffl_pl.datamodules.rounds.Shard`."""

    def __len__(self) -> int:
        """How many."""

    @property
    def batches(self) -> int:
        """How many mini-batches a pass has."""

    def epoch(self) -> Batches:
        """Mini-batches of one pass, in an order drawn from the surrounding random stream."""

    def steps(self, count: int) -> Batches:
        """So many mini-batches: of passes as `epoch` draws them, one after another, of which the last is cut off."""

    def in_order(self) -> Batches:
        """Mini-batches of one pass in a fixed order."""


class Precision(Protocol):
    """In which precision is computed, e.g. Lightning's precision plugin."""

    def train_step_context(self) -> AbstractContextManager[object]:
        """Surrounds local training."""

    def val_step_context(self) -> AbstractContextManager[object]:
        """Surrounds what is measured."""


@dataclass(frozen=True)
class Stretch:
    """A number of steps on somebody's examples, which local training takes as one epoch."""

    examples: Examples
    batches: int

    def __len__(self) -> int:
        return len(self.examples)

    def epoch(self) -> Batches:
        """Its mini-batches, in an order drawn from the surrounding random stream."""
        return self.examples.steps(self.batches)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Local training.

    Args:
        epochs: Local epochs E per round.
        steps: Mini-batches per round in place of epochs, one epoch as far as learning rates and losses go; None for
            whole epochs.
        decay: Factor on the learning rate.
        decay_every: Decay with every local ``epoch`` (released code) or every ``round`` (paper).
        proximal: Weight of the proximal term that is added to the loss of every mini-batch: half of this, times the
            squared distance to the weights before the round, or to an anchor.

    Raises:
        UserError: If `epochs`, `steps`, `decay` or `proximal` is out of range.
    """

    epochs: int = 3
    steps: int | None = None
    decay: float = 0.977
    decay_every: Literal["epoch", "round"] = "epoch"
    proximal: float = 0.0

    def __post_init__(self) -> None:
        check_number("--model.local_epochs", self.epochs, 1, 100_000)
        if self.steps is not None:
            check_number("--model.local_steps", self.steps, 1, 1_000_000)
        check_share("--model.lr_decay", self.decay, "1 is no decay", within="(0, 1]")
        check_pull("--model.proximal", self.proximal)

    @property
    def passes(self) -> int:
        """How many epochs there are in a round."""
        return self.epochs if self.steps is None else 1

    def of(self, examples: Examples) -> Examples | Stretch:
        """What somebody's local training goes through in each of those epochs."""
        return examples if self.steps is None else Stretch(examples, self.steps)

    def rate(self, round_index: int, epoch: int) -> float:
        """Factor on the learning rate in one local epoch of one round, both counted from 0."""
        return float(self.decay) ** (round_index if self.decay_every == "round" else round_index * self.passes + epoch)


def check_pull(option: str, pull: float) -> None:
    """See that something can weigh a proximal term.

    Raises:
        UserError: If it is negative or not finite, in single precision either; ``option`` is how the user gave it.
    """
    if not 0 <= pull <= torch.finfo(torch.float32).max:
        raise UserError(f"Expected {option} to be 0 or more and finite, but got {pull}; 0 is without.")


def make_optimizer(factory: OptimizerFactory, network: nn.Module) -> Optimizer:
    """A network's optimizer.

    Raises:
        UserError: If it does not take its options, has no learning rate, or trains something else.
    """
    parameters = trainable(network)
    try:
        optimizer = factory(parameters)
    except UserError:
        raise
    except Exception as error:  # whatever somebody's own code meets
        raise UserError(
            f"Expected --model.optimizer to fit, but {reason(error)}; mend its options, or take SGD or Adam."
        ) from error
    if not hasattr(optimizer, "param_groups"):
        raise UserError(
            "Expected --model.optimizer to make an optimizer of the parameters that it is given, but got "
            f"{type(optimizer).__name__}; give one, as torch.optim.SGD or partial(SGD, lr=0.1)."
        )
    given, own = {id(p) for group in optimizer.param_groups for p in group["params"]}, {*map(id, parameters)}
    if not given or not given <= own:
        raise UserError(
            f"Expected --model.optimizer {type(optimizer).__name__} to train the parameters that it is given, each "
            "participant's, but got others; make it of what it is called with, as lambda parameters: SGD(parameters)."
        )
    if any("lr" not in group for group in optimizer.param_groups):
        raise UserError(
            f"Expected --model.optimizer {type(optimizer).__name__} to keep its learning rate as lr in its "
            "param_groups, where --model.lr_decay lowers it, but there is none; call it lr."
        )
    return optimizer


def loss_on(device: torch.device, loss: nn.Module | None) -> Loss:
    """A copy of a loss on a device; of none cross-entropy."""
    return cross_entropy if loss is None else copy.deepcopy(loss).to(device)
