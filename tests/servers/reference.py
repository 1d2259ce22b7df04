"""RFFL in float64 loops, written from the specification alone (no torch, nothing of ``rffl_pl``).

One line of arithmetic here for one row of the specification's table, so that a reader can check them side by side.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Vector = Sequence[float]

# What each preset does, one entry per switch: the columns of the specification's table.
PRESETS: dict[str, dict[str, Any]] = {
    "released": {
        "clip": True,  # an upload longer than the norm bound is cut to it before it is sent
        "normalise": False,  # the aggregate scales every upload to the norm bound
        "first_weights": "examples",  # examples: shard sizes over their sum, reputations from 0; uniform: 1/P is both
        "threshold": "members",  # members: (1/3)/|R|; participants: 1/(3P)
        "removal_from": 10,
        "quota": "layer",  # layer: ceil(n q) entries of each layer; vector: floor(D q) of the whole vector
        "altruism": False,
        "subtract_own": False,
    },
    "paper": {
        "clip": False,
        "normalise": True,
        "first_weights": "uniform",
        "threshold": "participants",
        "removal_from": 0,
        "quota": "vector",
        "altruism": False,
        "subtract_own": True,
    },
}
PRESETS["altruism"] = PRESETS["released"] | {"altruism": True}


def finite(x: Vector) -> bool:
    """No entry is NaN or infinite."""
    return all(math.isfinite(v) for v in x)


def norm(x: Vector) -> float:
    """Euclidean length."""
    return math.sqrt(math.fsum(v * v for v in x))


def clip(x: Vector, bound: float) -> list[float]:
    """If the length is above the bound: bound * x / (length + 1e-7)."""
    length = norm(x)
    return [bound * v / (length + 1e-7) for v in x] if length > bound else list(x)


def normalise(x: Vector, bound: float) -> list[float]:
    """bound * x / length; nothing for a zero vector."""
    length = norm(x)
    return [bound * v / length for v in x] if length > 0 else [0.0] * len(x)


def cosine(x: Vector, y: Vector) -> float:
    """Cosine similarity, 0 where either vector is zero."""
    lengths = norm(x) * norm(y)
    return math.fsum(a * b for a, b in zip(x, y, strict=True)) / lengths if lengths > 0 else 0.0


def moving_average(old: float, new: float, alpha: float) -> float:
    """alpha * old + (1 - alpha) * new."""
    return alpha * old + (1 - alpha) * new


def quotas(reputations: Vector, members: Sequence[bool], altruism: bool) -> list[float]:
    """r / max r, or tanh(2 r / max r) / tanh(2); 0 outside the reputable set and for what is not positive."""
    top = max((r for r, m in zip(reputations, members, strict=True) if m), default=0.0)
    out = []
    for r, member in zip(reputations, members, strict=True):
        q = r / top if member and top > 0 and r > 0 else 0.0
        out.append(math.tanh(2 * q) / math.tanh(2) if altruism else q)
    return out


def top_k(x: Vector, k: int) -> list[float]:
    """x with only its k largest magnitudes kept; among equals the first ones."""
    kept = set(sorted(range(len(x)), key=lambda j: (-abs(x[j]), j))[:k])
    return [v if j in kept else 0.0 for j, v in enumerate(x)]


def top_k_layers(x: Vector, layers: Sequence[int], q: float) -> list[float]:
    """In each layer of n entries the ceil(n q) largest magnitudes."""
    out: list[float] = []
    start = 0
    for n in layers:
        out += top_k(x[start : start + n], math.ceil(n * q) if q > 0 else 0)
        start += n
    return out


def top_k_vector(x: Vector, q: float) -> list[float]:
    """Of the whole vector of D entries the floor(D q) largest magnitudes."""
    return top_k(x, math.floor(len(x) * q) if q > 0 else 0)


@dataclass
class Round:
    """Everything the server decided in one round; lists are indexed by participant."""

    weights: list[float]
    similarities: list[float]
    reputations: list[float]
    quotas: list[float]
    members: list[bool]
    removed: list[int]
    aggregate: list[float]
    downloads: list[list[float]] = field(default_factory=list)


class ReferenceRFFL:
    """The server of one run; ``settings`` are a preset's entries with whatever a test flips."""

    def __init__(
        self, sizes: Sequence[int], layers: Sequence[int], bound: float, alpha: float = 0.95, **settings: Any
    ) -> None:
        self.on = PRESETS["released"] | settings
        self.sizes, self.layers, self.bound, self.alpha = list(sizes), list(layers), bound, alpha
        self.count = len(self.sizes)
        self.members = [True] * self.count
        self.round = 0
        if self.on["first_weights"] == "examples":
            self.weights = [n / sum(self.sizes) for n in self.sizes]
            self.reputations = [0.0] * self.count
        else:
            self.weights = [1 / self.count] * self.count
            self.reputations = [1 / self.count] * self.count

    def upload(self, update: Vector) -> list[float]:
        """What a participant sends of its own update."""
        return clip(update, self.bound) if self.on["clip"] and finite(update) else list(update)

    def step(self, uploads: Mapping[int, Vector]) -> Round:
        """One round; ``uploads`` holds what every participant that sends has sent."""
        dimension = sum(self.layers)
        good = {i: x for i, x in uploads.items() if self.members[i] and finite(x)}
        weights = [self.weights[i] if i in good else 0.0 for i in range(self.count)]
        aggregate = [0.0] * dimension
        for i, x in good.items():
            term = normalise(x, self.bound) if self.on["normalise"] else x
            aggregate = [g + weights[i] * v for g, v in zip(aggregate, term, strict=True)]
        similarities = [cosine(aggregate, good[i]) if i in good else 0.0 for i in range(self.count)]

        averaged = [
            moving_average(r, s, self.alpha) if m else 0.0
            for r, s, m in zip(self.reputations, similarities, self.members, strict=True)
        ]
        total = math.fsum(averaged)
        # Without a positive sum the last valid ones stay: before the first round these are its weights.
        new = [r / total for r in averaged] if total > 0 else list(self.weights)

        removed: list[int] = []
        if self.on["removal_from"] != "never" and self.round >= self.on["removal_from"]:
            among = sum(self.members) if self.on["threshold"] == "members" else self.count
            removed = [i for i in range(self.count) if self.members[i] and new[i] < 1 / 3 / max(among, 1)]
        members = [m and i not in removed for i, m in enumerate(self.members)]
        new = [r if m else 0.0 for r, m in zip(new, members, strict=True)]
        total = math.fsum(new)
        new = [r / total for r in new] if total > 0 else new

        share = quotas(new, members, self.on["altruism"])
        result = Round(weights, similarities, new, share, members, removed, aggregate)
        for i in range(self.count):
            result.downloads.append(self.download(result, i, good.get(i), share[i]))
        self.members, self.reputations, self.weights = members, new, new
        self.round += 1
        return result

    def download(self, result: Round, i: int, upload: Vector | None, q: float) -> list[float]:
        """The sparsified aggregate, less the participant's own weighted upload; zeros for who was removed."""
        g = result.aggregate
        if not result.members[i]:
            return [0.0] * len(g)
        kept = top_k_layers(g, self.layers, q) if self.on["quota"] == "layer" else top_k_vector(g, q)
        if self.on["subtract_own"] and upload is not None and finite(upload):
            kept = [a - result.weights[i] * b for a, b in zip(kept, upload, strict=True)]
        return kept
