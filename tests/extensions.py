"""What a user adds to the package from outside it, each by its class path alone."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from rffl_pl.adversaries import Adversary, FreeRider, Situation
from rffl_pl.callbacks import RoundCallback
from rffl_pl.datamodules.splits import Pool, Split
from rffl_pl.runs import Round
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


class Diary(RoundCallback):
    """Writes a line about every round that it is told of, and ends training after some.

    Args:
        file: Where to.
        after: How many rounds; a run that goes on counts on.
    """

    def __init__(self, file: str, *, after: int) -> None:
        self.file, self.after, self.told = Path(file), after, 0

    def numbers(self, played: Round) -> dict[str, float]:
        accuracies = torch.tensor(played.measures["accuracy"][: played.honest])
        jain: Any = accuracies.mean().square() / accuracies.square().mean()  # a tensor, as people write it
        return {"jain": jain, "none": math.nan}

    def on_round_end(self, trainer: Trainer, played: Round) -> None:
        self.told += 1
        with self.file.open("a") as file:
            file.write(f"{self.told} {played.number} {played.mean_accuracy:.6f}\n")
        trainer.should_stop = self.told >= self.after

    def state_dict(self) -> dict[str, int]:
        return {"told": self.told}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.told = state["told"]
