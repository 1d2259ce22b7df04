"""What several participants train, as rows: weights and what optimizers remember."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from rffl_pl.training.stack.batches import Passes, index_of
from rffl_pl.training.stack.optimizers import counted, gathered, put_state, steps_taken


@dataclass(frozen=True)
class Turn:
    """A participant's local training in one round.

    Attributes:
        weights: Its weights ``[D]``, which are trained in place.
        optimizer: Its optimizer, whose state goes on.
        examples: Its training examples.
        seed: Seed of its random stream in this round.
        anchor: Weights ``[D]`` that its own are drawn to.
        proximal: How strongly.
        correction: What is added to every gradient, ``[D]``; None for nothing.
    """

    weights: Tensor
    optimizer: Optimizer
    examples: Passes
    seed: int
    anchor: Tensor
    proximal: float = 0.0
    correction: Tensor | None = None

    @property
    def added(self) -> Tensor:
        """The correction, zeros for none."""
        return torch.zeros_like(self.weights) if self.correction is None else self.correction


def repeat(turns: Sequence[Turn], others: Sequence[Turn]) -> None:
    """Copy trained weights and optimizer state to turns that were identical."""
    for turn, other in zip(turns, others, strict=True):
        other.weights.copy_(turn.weights)
        (done,), (left,) = turn.optimizer.param_groups, other.optimizer.param_groups
        for p, q in zip(done["params"], left["params"], strict=True):
            if p in turn.optimizer.state:
                other.optimizer.state[q] = copy.deepcopy(turn.optimizer.state[p])


class Rows:
    """Weights and optimizer state of several participants, ``[n, D]`` each, and the steps taken, ``[n, 1]``."""

    def __init__(self, turns: Sequence[Turn], slots: Sequence[str]) -> None:
        self.turns, self.slots = turns, slots
        self.weights = torch.stack([turn.weights for turn in turns])
        self.state = [torch.stack([gathered(turn.optimizer, slot, turn.weights) for turn in turns]) for slot in slots]
        taken = [steps_taken(turn.optimizer) for turn in turns]
        self.taken = torch.tensor(taken, dtype=torch.float64)  # on the CPU, so that nobody asks a GPU how many
        self.steps = self.taken.clone().unsqueeze(1).to(self.weights.device, non_blocking=True)
        pulls = torch.tensor([turn.proximal for turn in turns], dtype=self.weights.dtype).unsqueeze(1)
        self.anchors = torch.stack([turn.anchor for turn in turns]) if pulls.any() else None
        self.pulls = pulls.to(self.weights.device, non_blocking=True)
        corrected = any(turn.correction is not None for turn in turns)
        self.corrections = torch.stack([turn.added for turn in turns]) if corrected else None

    def of(self, active: list[int]) -> Part:
        """Some rows: views where they are the first ones, else copies."""
        where = index_of(active, self.weights.device)
        state = [slot[where] for slot in self.state]
        return Part(self.weights[where], state, self.steps[where], isinstance(where, slice))

    def add_to_gradients(self, active: list[int], part: Part, grad: Tensor) -> None:
        """Add to the gradients ``[m, D]`` of some rows those of their proximal terms, and their corrections."""
        where = index_of(active, grad.device)
        if self.anchors is not None:
            grad.add_(self.pulls[where] * (part.weights - self.anchors[where]))
        if self.corrections is not None:
            grad.add_(self.corrections[where])

    def take(self, active: list[int], part: Part) -> None:
        """Take rows back that have been changed by a step."""
        self.taken[active] += 1
        if not part.views:
            where = index_of(active, self.weights.device)
            self.weights[where], self.steps[where] = part.weights, part.steps
            for slot, changed in zip(self.state, part.state, strict=True):
                slot[where] = changed

    def put_back(self) -> None:
        """Leave everybody with its weights and its optimizer's state."""
        steps = counted(self.turns[0].optimizer, self.slots, self.steps[:, 0], self.taken)
        for k, turn in enumerate(self.turns):
            turn.weights.copy_(self.weights[k])
            if self.slots:
                put_state(turn.optimizer, self.slots, [slot[k].clone() for slot in self.state], steps[k])


@dataclass(frozen=True)
class Part:
    """Some of the rows, as views of them or as copies."""

    weights: Tensor
    state: list[Tensor]
    steps: Tensor
    views: bool
