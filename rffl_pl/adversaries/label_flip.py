"""False labels: targeted poisoning (Xu & Lyu 2021, Section 4), and of all classes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from rffl_pl.adversaries.base import Adversary
from rffl_pl.errors import UserError
from rffl_pl.metrics import ReadAs


class LabelFlip(Adversary):
    """Trains honestly on false labels: ``target`` for every example of class ``source``, or all classes mirrored.

    Args:
        source: The class that is to be misread.
        target: What it is to be read as.
        classes: ``one``: `source` alone; ``mirrored``: of C classes each c is called C - 1 - c, whatever `source` and
            `target` are, as ByzFL (https://byzfl.epfl.ch) and Blades (https://arxiv.org/abs/2206.05359) have it. The
            one in the middle of an odd number stays what it is.

    Raises:
        UserError: If the two are equal, and before the first round if one of them is no class of the data set.
    """

    def __init__(self, *, source: int = 1, target: int = 7, classes: Literal["one", "mirrored"] = "one") -> None:
        if source == target and classes == "one":
            both = self._option("source and --adversaries.target")
            raise UserError(f"Expected {both} to be two classes, but got {source} for both.")
        self.source, self.target, self.classes = source, target, classes
        self.last = 0  # the last class, once the task is known

    def prepare(self, num_classes: int) -> None:
        self.last = num_classes - 1
        if self.classes == "one" and not (0 <= self.source < num_classes and 0 <= self.target < num_classes):
            both = self._option("source and --adversaries.target")
            raise UserError(
                f"Expected {both} to lie in 0 .. {num_classes - 1}, but got {self.source} and {self.target}; "
                "give two classes of this data set."
            )

    def labels(self, y: Tensor) -> Tensor:
        if self.classes == "mirrored":
            return self.last - y
        return torch.where(y == self.source, self.target, y)

    def measures(self, num_classes: int) -> dict[str, Metric]:
        """Target accuracy, and attack success: how much of class `source` is read as what it is, and as `target`.

        Where classes are mirrored, both of every class and its mirror image.
        """
        called = {self.source: self.target}
        if self.classes == "mirrored":
            called = {c: num_classes - 1 - c for c in range(num_classes) if 2 * c != num_classes - 1}
        return {
            "target_accuracy": ReadAs([*called], [*called]),
            "attack_success": ReadAs([*called], [*called.values()]),
        }
