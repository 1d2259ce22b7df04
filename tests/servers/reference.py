"""RFFL in float64 loops, written from the specification alone (no torch, nothing of ``rffl_pl``).

One line of arithmetic here for one row of the specification's table, so that a reader can check them side by side.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from scipy import stats

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
OFF: dict[str, Any] = {  # what neither paper nor released code has
    "similarity": "own_included",  # leave_one_out: to what the others alone make
    "duplicates": "each",  # once: uploads that repeat each other share one weight and no similarity
    "probation": 0,  # rounds without a download, which last until enough of the others agree
    "confirmed_by": 1 / 3,  # the share of the others that is enough
    "removal_confidence": "off",  # of removal
    "short_memory": "off",  # weight of the past in the faster average that caps quotas
    "earned": False,  # similarities since the beginning cap quotas
}
PRESETS = {name: OFF | steps for name, steps in PRESETS.items()}
PRESETS["altruism"] = PRESETS["released"] | {"altruism": True}
PRESETS["guarded"] = PRESETS["released"] | {
    "normalise": True,
    "first_weights": "uniform",
    "removal_from": 0,
    "similarity": "leave_one_out",
    "duplicates": "once",
    "probation": 1,
    "removal_confidence": 0.999,
    "short_memory": 0.5,
}


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


def quotas(reputations: Vector, members: Sequence[bool]) -> list[float]:
    """r / max r; 0 outside the reputable set and for what is not positive."""
    top = max((r for r, m in zip(reputations, members, strict=True) if m), default=0.0)
    return [r / top if m and top > 0 and r > 0 else 0.0 for r, m in zip(reputations, members, strict=True)]


def agreement(x: Vector, y: Vector) -> float:
    """The inner product over its standard deviation under random signs."""
    spread = math.sqrt(math.fsum((a * b) ** 2 for a, b in zip(x, y, strict=True)))
    return math.fsum(a * b for a, b in zip(x, y, strict=True)) / spread if spread > 0 else 0.0


def upper_bound(pairs: Sequence[tuple[float, float]], memory: float, confidence: float) -> float:
    """Of the ratio of sums of pairs (x, y), older ones weighted less, by Student's t on what the ratio leaves."""
    weights = [memory ** (len(pairs) - 1 - t) for t in range(len(pairs))]
    below = math.fsum(w * y for w, (_, y) in zip(weights, pairs, strict=True))
    squares = math.fsum(w * w for w in weights)
    if len(pairs) < 2 or sum(weights) ** 2 / squares <= 1.5:
        return math.inf
    ratio = math.fsum(w * x for w, (x, _) in zip(weights, pairs, strict=True)) / below
    n = sum(weights) ** 2 / squares
    left = math.fsum((w * (x - ratio * y)) ** 2 for w, (x, y) in zip(weights, pairs, strict=True))
    error = math.sqrt(left * n / (n - 1)) / below
    return float(ratio + stats.t.ppf(confidence, n - 1) * error)


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


def shared_out(values: Vector, heirs: Sequence[bool]) -> list[float] | None:
    """Those of the heirs scaled so that all add up to 1; None where negative ones leave too little to divide by."""
    theirs = [v for v, heir in zip(values, heirs, strict=True) if heir]
    mass = 1 - math.fsum(v for v, heir in zip(values, heirs, strict=True) if not heir)
    if not math.fsum(theirs) > math.fsum(map(abs, theirs)) / 10 or mass <= 0:
        return None
    total = math.fsum(theirs)
    return [v / total * mass if heir else v for v, heir in zip(values, heirs, strict=True)]


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
    """The server of one run; ``settings`` are a preset's entries with whatever a test flips.

    Every number of a rule, and every rule that a test takes out, is an attribute of its own.
    """

    like = 0.99  # a cosine above it makes two uploads one
    copy = 1 - 1e-6  # and above this one among those that are each like more than half of all
    least = 0.1  # who surely contributes less is removed, and as a member downloads nothing
    against = -0.5  # the limit of removal for whoever was confirmed

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

        self.pairs: list[list[tuple[float, float]]] = [[] for _ in self.sizes]  # similarity and mean of scored rounds
        self.similar: list[list[float]] = [[] for _ in self.sizes]
        self.agreed: dict[tuple[int, int], list[float]] = {}
        self.confirmed = [False] * self.count
        self.told = [False] * self.count  # who has ever sent anything but zeros
        self.scored = [0] * self.count  # rounds in which everybody had a similarity
        self.rested = [0] * self.count  # rounds in which others told something, and it nothing any more

    def upload(self, update: Vector) -> list[float]:
        """What a participant sends of its own update."""
        return clip(update, self.bound) if self.on["clip"] and finite(update) else list(update)

    def step(self, uploads: Mapping[int, Vector]) -> Round:
        """One round; ``uploads`` holds what every participant that sends has sent."""
        dimension = sum(self.layers)
        good = {i: x for i, x in uploads.items() if self.members[i] and finite(x) and norm(x) > 0}
        silent = [i for i, x in uploads.items() if self.members[i] and finite(x) and norm(x) == 0 and self.told[i]]
        same = self.repeated(good)
        weights = [self.weights[i] / len(same[i]) if i in good else 0.0 for i in range(self.count)]
        terms = {i: normalise(x, self.bound) if self.on["normalise"] else x for i, x in good.items()}

        def combined(left_out: set[int]) -> list[float]:
            total = [0.0] * dimension
            for i, term in terms.items():
                if i not in left_out:
                    total = [g + weights[i] * v for g, v in zip(total, term, strict=True)]
            return total

        aggregate = combined(set())
        alone = self.on["similarity"] == "leave_one_out"
        similarities = [0.0] * self.count
        compared = any(len(same[i]) < len(good) for i in good) if alone else bool(good)  # there is something to be like
        for i in good:
            similarities[i] = cosine(combined(same[i]) if alone else aggregate, good[i]) if compared else math.nan
        self.rest(silent, compared)
        for i in self.unscored(silent):
            similarities[i] = math.nan
        self.told = [told or i in good for i, told in enumerate(self.told)]
        self.remember(similarities, good, same)

        scored = [m and not math.isnan(s) for m, s in zip(self.members, similarities, strict=True)]
        averaged = [
            moving_average(r, s, self.alpha) if here else r
            for r, s, here in zip(self.reputations, similarities, scored, strict=True)
        ]
        # Where nobody is scored, or negative ones leave too little, the last valid stay: at first the first weights.
        shared = shared_out(averaged, scored) if any(scored) else None
        new = list(self.weights) if shared is None else shared

        judged = [
            self.on["removal_from"] != "never" and here and self.scored[i] >= self.on["removal_from"]
            for i, here in enumerate(scored)
        ]
        removed = [i for i in range(self.count) if judged[i] and self.too_little(i, new[i])]
        members = [m and i not in removed for i, m in enumerate(self.members)]
        self.scored = [times + here for times, here in zip(self.scored, scored, strict=True)]
        if removed:  # what they had goes to the scored, or to all who have something
            left = [r if m else 0.0 for r, m in zip(new, members, strict=True)]
            scored_members = [here and m for here, m in zip(scored, members, strict=True)]
            new = shared_out(left, scored_members) or shared_out(left, [r != 0 for r in left]) or left

        share = self.capped(quotas(new, members), members)
        if self.on["altruism"]:
            share = [math.tanh(2 * q) / math.tanh(2) for q in share]
        result = Round(weights, similarities, new, share, members, removed, aggregate)
        for i in range(self.count):
            result.downloads.append(self.download(result, i, good.get(i), share[i]))
        self.members, self.reputations, self.weights = members, new, new
        self.round += 1
        return result

    def repeated(self, good: Mapping[int, Vector]) -> dict[int, set[int]]:
        """Whom everybody's upload counts as one with, itself among them."""
        if self.on["duplicates"] == "each":
            return {i: {i} for i in good}
        cosines = {(i, j): cosine(good[i], good[j]) for i in good for j in good if i < j}
        cosines |= {(j, i): value for (i, j), value in cosines.items()}
        like = {i: {j for j in good if i == j or cosines[i, j] > self.like} for i in good}
        most = {i for i in good if 2 * len(like[i]) > len(good)}
        return {
            i: {j for j in good if i == j or cosines[i, j] > (self.copy if i in most and j in most else self.like)}
            for i in good
        }

    def rest(self, silent: Sequence[int], compared: bool) -> None:
        """Who tells nothing any more, in a round that compares uploads, has rested once more."""
        for i in silent:
            self.rested[i] += compared

    def unscored(self, silent: Sequence[int]) -> Sequence[int]:
        """Silence is no evidence against whoever has told something before."""
        return silent

    def remember(self, similarities: Vector, good: Mapping[int, Vector], same: Mapping[int, set[int]]) -> None:
        """What the guards go by: similarities beside their mean, and who agrees with whom."""
        scored = [i for i in range(self.count) if self.members[i] and not math.isnan(similarities[i])]
        mean = math.fsum(similarities[i] for i in scored) / max(len(scored), 1)
        for i in scored:
            self.similar[i].append(similarities[i])
            if mean > 0:
                self.pairs[i].append((similarities[i], mean))
        above = NormalDist().inv_cdf(0.999 if self.on["removal_confidence"] == "off" else self.on["removal_confidence"])
        for i, j in [(i, j) for i in good for j in good]:
            self.agreed.setdefault((i, j), []).append(self.agreement(good, i, j, same))
        for i in good:
            others = {j: 1 / len(same[j]) for j in good if j not in same[i]}
            votes = sum(
                w for j, w in others.items() if sum(self.agreed[i, j]) / math.sqrt(len(self.agreed[i, j])) > above
            )
            if votes > 0 and votes > sum(others.values()) * self.on["confirmed_by"] - 1e-9:
                self.confirmed[i] = True

    def agreement(self, good: Mapping[int, Vector], i: int, j: int, same: Mapping[int, set[int]]) -> float:
        """Of two participants in one round: nothing where they are the same, in whatever round it is added up."""
        return 0.0 if j in same[i] else agreement(good[i], good[j])

    def too_little(self, i: int, reputation: float) -> bool:
        """Whether a member is to be removed."""
        among = sum(self.members) if self.on["threshold"] == "members" else self.count
        threshold = 1 / 3 / max(among, 1)
        if self.on["removal_confidence"] == "off":
            return reputation < threshold
        limit = self.against if self.on["probation"] and self.confirmed[i] else self.least
        return self.at_most(i) < limit

    def at_most(self, i: int) -> float:
        """What somebody contributed of late, of what the mean member does, at most."""
        return upper_bound(self.pairs[i], 0.9, self.on["removal_confidence"])

    def at_rest(self, i: int) -> bool:
        """Whether somebody was silent in more rounds than it was scored in."""
        return self.rested[i] > self.scored[i]

    def idle(self, i: int) -> bool:
        """Whether somebody surely contributes less than a tenth, and downloads nothing, a member or not."""
        return self.on["removal_confidence"] != "off" and self.at_most(i) < self.least

    def capped(self, share: list[float], members: Sequence[bool]) -> list[float]:
        """Quotas, at most what recent and all similarities allow, and nothing in probation."""
        caps = [share]
        if self.on["short_memory"] != "off":
            recent = []
            for values in self.similar:
                weights = [self.on["short_memory"] ** (len(values) - 1 - t) for t in range(len(values))]
                recent.append(math.fsum(w * s for w, s in zip(weights, values, strict=True)) / max(sum(weights), 1e-12))
            caps.append(quotas(recent, [m and not self.at_rest(i) for i, m in enumerate(members)]))
        if self.on["earned"]:
            caps.append(quotas([math.fsum(max(s, 0) for s in values) for values in self.similar], members))
        share = [min(each) for each in zip(*caps, strict=True)]
        share = [0.0 if self.idle(i) else q for i, q in enumerate(share)]
        if self.on["probation"]:
            uploads = [len(self.agreed.get((i, i), [])) for i in range(self.count)]
            free = [self.confirmed[i] and uploads[i] >= self.on["probation"] for i in range(self.count)]
            share = [q if f else 0.0 for q, f in zip(share, free, strict=True)]
        return share

    def download(self, result: Round, i: int, upload: Vector | None, q: float) -> list[float]:
        """The sparsified aggregate, less the participant's own weighted upload; zeros for who was removed."""
        g = result.aggregate
        if not result.members[i]:
            return [0.0] * len(g)
        kept = top_k_layers(g, self.layers, q) if self.on["quota"] == "layer" else top_k_vector(g, q)
        if self.on["subtract_own"] and upload is not None and finite(upload):
            kept = [a - result.weights[i] * b for a, b in zip(kept, upload, strict=True)]
        return kept
