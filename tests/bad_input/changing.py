"""Classes of a user's own that change what they are given, or count in plain attributes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from rffl_pl.adversaries import Adversary
from rffl_pl.datamodules import FederatedDataModule, Sources
from rffl_pl.models import Perceptron


class Shifting(Perceptron):
    """Shifts its inputs in place, always or in training alone."""

    def __init__(self, *, always: bool = True) -> None:
        super().__init__(inputs=64, hidden=8, classes=10)
        self.always = always

    def forward(self, x: Tensor) -> Tensor:
        if self.always or self.training:
            x -= 0.5
        logits: Tensor = super().forward(x)  # type: ignore[no-untyped-call]  # torch's
        return logits


class Shrunk(Perceptron):
    """Halves its inputs where they lie, by NumPy, of which torch does not know."""

    def __init__(self) -> None:
        super().__init__(inputs=64, hidden=8, classes=10)

    def forward(self, x: Tensor) -> Tensor:
        halved = x.numpy()
        halved *= 0.5
        logits: Tensor = super().forward(x)  # type: ignore[no-untyped-call]  # torch's
        return logits


class Shrinking(Perceptron):
    """Holds its weights short, as Kim 2014 has it, or the mean of what it has seen; where it is measured, too."""

    seen: Tensor
    calls: Tensor

    def __init__(self, *, what: str) -> None:
        super().__init__(inputs=64, hidden=8, classes=10)
        self.what = what
        self.register_buffer("seen", torch.zeros(1, 8, 8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def shrink(self, x: Tensor) -> None:
        weight = self.get_parameter("1.weight")
        if self.what == "weights in training":
            weight.data.renorm_(2, 0, 0.1) if self.training else self.calls.add_(1)
        elif self.what == "weights":
            weight.data.renorm_(2, 0, 0.1)
        else:
            self.seen.lerp_(x.mean(0), 0.1)

    def forward(self, x: Tensor) -> Tensor:
        self.shrink(x)
        logits: Tensor = super().forward(x - self.seen)  # type: ignore[no-untyped-call]  # torch's
        return logits


class Counting(Perceptron):
    """Warms up by a counter that no checkpoint keeps."""

    def __init__(self) -> None:
        super().__init__(inputs=64, hidden=8, classes=10)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += int(self.training)
        logits: Tensor = super().forward(x)  # type: ignore[no-untyped-call]  # torch's
        return logits * min(1.0, 0.1 * self.calls)


class Relabelling(nn.Module):
    """A loss that changes the classes that it is given."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(logits, y.clamp_(max=8))


class Squashing(MulticlassAccuracy):
    """A measure that makes probabilities of the logits in place."""

    def __init__(self) -> None:
        super().__init__(10)

    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds.sigmoid_(), target)


class Painting(Adversary):
    """Paints what it trains with, or what it is measured on, black."""

    def __init__(self, *, probing: bool) -> None:
        self.probing = probing

    def measures(self, num_classes: int) -> dict[str, Metric]:
        return {"success": MulticlassAccuracy(num_classes)} if self.probing else {}

    def probe(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.zero_(), y

    def poison(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x if self.probing else x.zero_()), y


class Categories(FederatedDataModule):
    """Columns of categories, one of which a network for twenty does not know."""

    num_classes = 2

    def __init__(self, federation: Any, *, where: str, unknown: int, **kwargs: Any) -> None:
        super().__init__(federation, **kwargs)
        self.where, self.unknown = where, unknown

    def load(self) -> Sources:
        x = torch.randint(0, 20, (90, 3), generator=torch.Generator().manual_seed(0))
        parts = {part: x.clone() for part in ("train", "validation", "test")}
        parts[self.where][71, 1] = self.unknown
        made: dict[str, Any] = {part: TensorDataset(x, torch.arange(90) % 2) for part, x in parts.items()}
        return Sources(**made)


class Looking(nn.Sequential):
    """A network for twenty categories."""

    def __init__(self) -> None:
        super().__init__(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(12, 2))


class Bounded(nn.Sequential):
    """Likewise, with embeddings that torch holds short wherever they are read."""

    def __init__(self) -> None:
        super().__init__(nn.Embedding(20, 4, max_norm=1.0), nn.Flatten(), nn.Linear(12, 2))
