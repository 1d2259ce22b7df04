"""A measure that is made of others, as users write them."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from rffl_pl.evaluation import Evaluation, _never


class Balanced(Metric):
    """The mean of two accuracies."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = MulticlassAccuracy(3, average="micro"), MulticlassAccuracy(3, average="macro")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.one.update(preds, target)
        self.other.update(preds, target)

    def compute(self) -> Tensor:
        found: Tensor = (self.one.compute() + self.other.compute()) / 2
        return found


def test_none_of_them_is_merged_over_ranks() -> None:
    """Every rank would measure a mean over others' models, or wait for one that has fewer."""
    evaluation = Evaluation([Balanced()], {})
    (name,) = (name for name in evaluation.measures if "balanced" in name.lower())
    fresh = evaluation._fresh(name, torch.device("cpu"))
    merging = [metric.distributed_available_fn for metric in fresh.modules() if isinstance(metric, Metric)]
    assert merging == [_never] * 3
