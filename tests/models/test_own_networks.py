"""Networks as users write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from rffl_pl.adversaries import Adversary
from tests.conftest import QUICK, Ended, only_run


class Viewing(nn.Module):
    """Flattens by `view`, which takes what lies in the order of its dimensions alone."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.linear = nn.Linear(36, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = max_pool2d(torch.relu(self.convolution(x)), 2)
        logits: Tensor = self.linear(x.view(x.size(0), -1))
        return logits


class Flattening(Viewing):
    """The same, however its inputs lie."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(max_pool2d(torch.relu(self.convolution(x)), 2).flatten(1))
        return logits


class Peeking(Adversary):
    """Takes inputs in the order of their dimensions alone, as where it is rehearsed."""

    def poison(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if x.stride() != torch.empty(x.shape).stride():
            raise ValueError(f"strides {x.stride()}")
        return x, y

    def measures(self, num_classes: int) -> dict[str, Metric]:
        return {"peeked": MulticlassAccuracy(num_classes, average="micro")}

    def probe(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.poison(x, y)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_a_network_that_views(rffl: Callable[..., Ended], tmp_path: Path, engine: str) -> None:
    """The usual network of a tutorial ends in a traceback in its first round, or learns something else."""
    for name in ("Viewing", "Flattening"):
        ended = rffl(
            "fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.max_epochs", 2, "--model.engine", engine,
            "--model.network", f"tests.models.test_own_networks.{name}", "--run.name", name, "--server", "FLTrust",
            "--adversaries", '["tests.models.test_own_networks.Peeking"]',
        )  # fmt: skip
        assert ended.code == 0, ended.err
    viewing, flattening = (only_run(tmp_path / "runs", name) for name in ("Viewing", "Flattening"))
    for path in (viewing / "weights").iterdir():
        there = torch.load(flattening / "weights" / path.name, weights_only=True)
        for key, value in torch.load(path, weights_only=True).items():
            torch.testing.assert_close(value, there[key], rtol=1e-4, atol=1e-5)
