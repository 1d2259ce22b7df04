"""Classes of a user's own that fail in the method that their option names."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from rffl_pl.adversaries import Adversary
from rffl_pl.servers import FedAvg


class Where:
    """Knows where it is to fail; to be mixed into another."""

    where: str

    def reach(self, where: str) -> None:
        """Fail if it is here."""
        if where == self.where:
            raise KeyError(where)


class Failing(Where, Adversary):
    """An attack."""

    def __init__(self, *, where: str) -> None:
        self.where = where

    def prepare(self, num_classes: int) -> None:
        self.reach("prepare")

    def trains_in(self, round_index: int) -> bool:
        if round_index == 2:  # two are rehearsed
            self.reach("trains_in")
        return True

    def measures(self, num_classes: int) -> dict[str, Metric]:
        self.reach("measures")
        return {"success": MulticlassAccuracy(num_classes)} if self.where == "probe" else {}

    def probe(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        self.reach("probe")
        return x, y


class Packing(Where, FedAvg):
    """A server."""

    def __init__(self, *, where: str) -> None:
        super().__init__()
        self.where = where

    def pack(self, upload: Tensor) -> Tensor:
        self.reach("pack")
        return super().pack(upload)

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        self.reach("unpack")
        return super().unpack(payload, dimension)

    def model_for(self, participant: int) -> Tensor | None:
        self.reach("model_for")
        return super().model_for(participant)

    def state_dict(self) -> dict[str, Any]:
        self.reach("state_dict")
        return super().state_dict()
