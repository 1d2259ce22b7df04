"""A network with running statistics, and who makes them infinite, by their paths."""

from __future__ import annotations

from torch import Tensor, nn

from rffl_pl.adversaries import Adversary


class Normed(nn.Module):
    """Two layers for 64 inputs, flattened, with BatchNorm before and between them."""

    def __init__(self, inputs: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.BatchNorm1d(inputs), nn.Linear(inputs, 16), nn.BatchNorm1d(16), nn.ReLU(),
            nn.Linear(16, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x)
        return logits


class Blinding(Adversary):
    """Trains on images so bright that their variance overflows, which leaves its update finite."""

    def poison(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return 1e25 * x, y
