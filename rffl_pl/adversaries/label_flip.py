"""Targeted poisoning (Xu & Lyu 2021, Section 4)."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric

from rffl_pl.adversaries.base import Adversary
from rffl_pl.errors import UserError
from rffl_pl.metrics import ReadAs


class LabelFlip(Adversary):
    """Trains honestly on false labels: ``target`` for every example of class ``source``.

    Args:
        source: The class that is to be misread.
        target: What it is to be read as.

    Raises:
        UserError: If the two are equal, and before the first round if one of them is no class of the data set.
    """

    def __init__(self, *, source: int = 1, target: int = 7) -> None:
        if source == target:
            raise UserError(f"Expected LabelFlip's source and target to be two classes, but got {source} for both.")
        self.source, self.target = source, target

    def prepare(self, num_classes: int) -> None:
        if not (0 <= self.source < num_classes and 0 <= self.target < num_classes):
            raise UserError(
                f"Expected LabelFlip's source and target to lie in 0 .. {num_classes - 1}, but got {self.source} and "
                f"{self.target}; give --adversaries.source and --adversaries.target two classes of this data set."
            )

    def labels(self, y: Tensor) -> Tensor:
        return torch.where(y == self.source, self.target, y)

    def measures(self, num_classes: int) -> dict[str, Metric]:
        """Target accuracy, and attack success: how much of class `source` is read as what it is, and as `target`."""
        return {
            "target_accuracy": ReadAs(self.source, self.source),
            "attack_success": ReadAs(self.source, self.target),
        }
