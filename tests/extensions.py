"""What a user adds to the package from outside it, each by its class path alone."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from rffl_pl.adversaries import Adversary, FreeRider, Situation
from rffl_pl.datamodules.splits import Pool, Split
from rffl_pl.servers import RFFL, Verdict
from rffl_pl.servers.evidence import Evidence


class Echo(FreeRider):
    """Does not train; begins with noise and then sends back the part of the aggregate that it downloaded last."""

    keeps_download: ClassVar[bool] = True

    def upload(self, situation: Situation) -> Tensor:
        return super().upload(situation) if situation.download is None else situation.download


class Hoard(Adversary):
    """Uploads the sum of all its updates so far."""

    def upload(self, situation: Situation) -> Tensor:
        past = situation.memory.get("sum", torch.zeros_like(situation.update))
        situation.memory["sum"] = past + situation.update
        return situation.memory["sum"]


class Trigger(Adversary):
    """Trains its models to read every image with a bright corner as one class, and reports how many do.

    Args:
        target: The class.
    """

    def __init__(self, *, target: int = 0) -> None:
        self.target = target

    def poison(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        half = len(y) // 2
        return torch.cat([stamped(x[:half]), x[half:]]), torch.cat([torch.full_like(y[:half], self.target), y[half:]])

    def measures(self, num_classes: int) -> dict[str, Metric]:
        return {"backdoor_success": MulticlassAccuracy(num_classes, average="micro")}

    def probe(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        others = y != self.target
        return stamped(x[others]), torch.full_like(y[others], self.target)


def stamped(x: Tensor) -> Tensor:
    """Images ``[B, C, H, W]`` with a bright corner."""
    x = x.clone()
    x[..., :2, :2] = 4.0
    return x


class Measured(RFFL):
    """RFFL that also reports how long every upload was."""

    def rule(self, evidence: Evidence) -> Verdict:
        lengths = evidence.spread(evidence.squared_norms.sqrt(), torch.nan)
        return replace(super().rule(evidence), measures={"length": lengths})


class Turns(Split):
    """Examples dealt out like cards, more of them to whoever sits at an odd number."""

    def cut(self, pool: Pool) -> list[Tensor]:
        seats = [i for i in range(pool.participants) for _ in range(1 + i % 2)]
        dealt = torch.arange(len(pool.labels)) % len(seats)
        return [(torch.tensor(seats)[dealt] == i).nonzero().flatten() for i in range(pool.participants)]
