"""Accuracy and loss of several participants' models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torchmetrics import Metric


class ParticipantScores(Metric):
    """Accuracy and mean cross-entropy of n models, each ``[n]``.

    Args:
        participants: Number n of models.
        kwargs: See `torchmetrics.Metric`.

    Example:
        >>> scores = ParticipantScores(2)
        >>> scores.update(0, torch.tensor([[9.0, 0.0], [0.0, 9.0]]), torch.tensor([0, 1]))
        >>> scores.update(1, torch.tensor([[9.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1]))
        >>> scores.compute()[0]
        tensor([1.0000, 0.5000])
    """

    full_state_update: bool = False
    correct: Tensor
    loss: Tensor
    count: Tensor

    def __init__(self, participants: int, **kwargs: Any) -> None:
        # Merging across ranks would average different participants' models.
        super().__init__(sync_on_compute=False, **kwargs)
        for name in ("correct", "loss", "count"):
            self.add_state(name, torch.zeros(participants, dtype=torch.float64), dist_reduce_fx=None)

    def update(self, index: int, logits: Tensor, labels: Tensor) -> None:
        """Count one batch of the ``index``-th model: logits ``[B, C]``, labels ``[B]``."""
        self.correct[index] += (logits.argmax(1) == labels).sum()
        self.loss[index] += cross_entropy(logits.float(), labels, reduction="sum")
        self.count[index] += len(labels)

    def compute(self) -> tuple[Tensor, Tensor]:
        """Accuracies and mean losses, ``[n]`` each (torchmetrics makes scalars of n = 1); NaN without an example."""
        return (self.correct / self.count).float(), (self.loss / self.count).float()
