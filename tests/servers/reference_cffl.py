"""CFFL in float64 loops, written from its definition alone (nothing of ``rffl_pl``), and a task for it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

LAYERS = [3, 40, 1, 9]
D = sum(LAYERS)
# The released code's for MNIST, which need not be the defaults.
SETTINGS: dict[str, Any] = {
    "upload_share": 0.1,
    "bound": 0.01,
    "steepness": 5.0,
    "doubling_rounds": None,
    "compounding": "released",
    "removal_share": 1 / 3,
    "contribution": "examples",
    "summation": "sum",
    "selection": "random",
}
Accuracy = Callable[[Any], float]


def classes(participants: int) -> list[int]:
    """1 to 10 classes, not in the order of shard sizes."""
    return [1 + (7 * i) % 10 for i in range(participants)]


def initial_weights(seed: int = 0) -> Tensor:
    """Weights that every participant starts from."""
    return torch.randn(D, generator=torch.Generator().manual_seed(seed))


def waves(seed: int = 0, steepness: float = 20.0) -> Accuracy:
    """An accuracy in [0.1, 0.9] that changes with every weight and never settles."""
    direction = np.random.default_rng(seed).normal(size=D) * steepness
    return lambda weights: 0.5 + 0.4 * math.sin(float(np.asarray(weights, dtype=np.float64) @ direction))


def reference_top(x: Sequence[float], count: int) -> list[float]:
    """x with only its largest magnitudes kept; among equals the first ones."""
    kept = set(sorted(range(len(x)), key=lambda j: (-abs(x[j]), j))[:count])
    return [float(v) if j in kept else 0.0 for j, v in enumerate(x)]


@dataclass
class Round:
    """Everything the server decided in one round."""

    weights: list[float]
    reputations: list[float]
    quotas: list[float]
    members: list[bool]
    removed: list[int]
    aggregate: np.ndarray


class Reference:
    """The server of one run; steps are numbered as in servers.md 4.2."""

    def __init__(self, sizes: Sequence[int], accuracy: Accuracy, initial: Any, **settings: Any) -> None:
        self.on = SETTINGS | settings
        self.count = len(sizes)
        held = sizes if self.on["contribution"] == "examples" else classes(self.count)
        self.shares = [n / max(held) for n in held]
        self.accuracy, self.model = accuracy, np.asarray(initial, dtype=np.float64)
        self.members = [True] * self.count
        self.stored = [0.0] * self.count
        self.round = 0

    def upload(self, update: Sequence[float]) -> list[float]:
        """Steps 1 and 2."""
        clamped = [min(max(v, -self.on["bound"]), self.on["bound"]) for v in update]
        return reference_top(clamped, max(1, int(self.on["upload_share"] * len(clamped))))

    def sharpened(self, averaged: Sequence[float]) -> list[float]:
        """Step 5."""
        growth = 1 + self.round / self.on["doubling_rounds"] if self.on["doubling_rounds"] else 1
        raised = [math.sinh(self.on["steepness"] * growth * c) for c in averaged]
        return [x / math.fsum(raised) for x in raised] if math.fsum(raised) > 0 else raised

    def step(self, sent: Mapping[int, Sequence[float]]) -> Round:
        """Steps 3 to 7; ``sent`` holds the uploads that can be computed with."""
        scores = [self.accuracy(self.model + np.asarray(sent[i])) if i in sent else 0.0 for i in range(self.count)]
        used, members = self.sharpened(self.stored), list(self.members)
        if math.fsum(scores) > 0:
            fresh = [score / math.fsum(scores) for score in scores]
            averaged = [
                0.8 * c + 0.2 * new if member else 0.0
                for c, new, member in zip(self.stored, fresh, self.members, strict=True)
            ]
            used = self.sharpened(averaged)
            threshold = self.on["removal_share"] / sum(self.members)
            members = [member and c >= threshold for member, c in zip(self.members, used, strict=True)]
            used = [c if member else 0.0 for c, member in zip(used, members, strict=True)]
            if members != self.members:
                used = [c / math.fsum(used) for c in used]
            averaged = [c if member else 0.0 for c, member in zip(averaged, members, strict=True)]
            self.stored = used if self.on["compounding"] == "released" else averaged
        elif self.on["compounding"] == "released":
            used = self.stored

        here = [i for i in sent if members[i]]
        total = math.fsum(self.shares[i] for i in here)
        weights = [0.0] * self.count
        for i in here:
            weights[i] = 1.0 if self.on["summation"] == "sum" else self.shares[i] / total
        aggregate = sum((weights[i] * np.asarray(sent[i]) for i in here), np.zeros(len(self.model)))
        top = max(used)
        quotas = [c / top * share if top > 0 else 0.0 for c, share in zip(used, self.shares, strict=True)]
        removed = [i for i in range(self.count) if self.members[i] and not members[i]]
        self.model = self.model + aggregate
        self.members = members
        self.round += 1
        return Round(weights, used, quotas, members, removed, aggregate)

    def subtracted(self, i: int, result: Round, sent: Mapping[int, Sequence[float]]) -> np.ndarray:
        """What step 8 takes off the download for i's own upload."""
        if i not in sent or not result.members[i]:
            return np.zeros(len(self.model))
        return np.asarray(sent[i]) * (1.0 if self.on["summation"] == "sum" else self.shares[i])
