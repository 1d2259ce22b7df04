"""What adversaries achieve, and whether they are found."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class ReadAs(Metric):
    """Share of the examples of one class that a model reads as a certain class; NaN without such examples.

    Read as what they are, it is the target accuracy of a label-flipping attack, read as what adversaries call them, its
    success rate (Xu & Lyu 2021, Section 4).

    Args:
        source: The class whose examples count.
        target: The class that is looked for among the answers.
        kwargs: See `torchmetrics.Metric`.

    Example:
        >>> success = ReadAs(source=0, target=2)
        >>> success.update(torch.eye(3)[[0, 2, 2, 1]], torch.tensor([0, 0, 2, 0]))
        >>> round(success.compute().item(), 4)
        0.3333
    """

    full_state_update: bool = False
    found: Tensor
    count: Tensor

    def __init__(self, source: int, target: int, **kwargs: Any) -> None:
        # Merging across ranks would average different participants' models.
        super().__init__(sync_on_compute=False, **kwargs)
        self.source, self.target = source, target
        for name in ("found", "count"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx=None)

    def update(self, logits: Tensor, y: Tensor) -> None:
        """Add examples: logits ``[B, C]`` and classes ``[B]``."""
        answers = logits[y == self.source].argmax(1)
        self.found += (answers == self.target).sum()
        self.count += len(answers)

    def compute(self) -> Tensor:
        """The share, a scalar."""
        return (self.found / self.count).float()


class Detection(Metric):
    """Whether those who were removed are those who attack, and when.

    Precision is the share of adversaries among the removed, recall the share of removed among the adversaries, and the
    round is the last in which an adversary was removed. Each is NaN where it is undefined.

    Example:
        >>> detection = Detection()
        >>> detection.update(torch.tensor([11.0, torch.nan, 11.0, 12.0]), torch.tensor([False, False, True, True]))
        >>> [round(value.item(), 4) for value in detection.compute()]
        [0.6667, 1.0, 12.0]
    """

    full_state_update: bool = False
    removed: list[Tensor]
    adversary: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(sync_on_compute=False, **kwargs)
        self.add_state("removed", [], dist_reduce_fx=None)
        self.add_state("adversary", [], dist_reduce_fx=None)

    def update(self, removed: Tensor, adversary: Tensor) -> None:
        """Add participants: the round in which each was removed, NaN if it was not, and who attacks, ``[n]`` each."""
        self.removed.append(removed)
        self.adversary.append(adversary)

    def compute(self) -> tuple[Tensor, Tensor, Tensor]:
        """Precision, recall and last round, three scalars."""
        rounds = torch.cat([torch.empty(0), *self.removed])
        adversary = torch.cat([torch.empty(0, dtype=torch.bool), *self.adversary])
        found = rounds[adversary & rounds.isfinite()]
        hits = torch.tensor(float(len(found)))
        last = found.max() if len(found) else torch.tensor(torch.nan)
        return hits / rounds.isfinite().sum(), hits / adversary.sum(), last
