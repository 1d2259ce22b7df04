"""The switches of RFFL one by one, and made-up uploads in which each of them, and every rule behind it, matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.servers import RFFL, Verdict
from tests.servers.reference import PRESETS
from tests.servers.tasks import downloads, sent, task

LAYERS = {37: [1, 17, 1, 5, 13], 101: [3, 1, 64, 7, 1, 25]}
GAMMA = 0.5

ALTERNATIVES: dict[str, Sequence[Any]] = {
    "clip": (True, False),
    "normalise": (True, False),
    "first_weights": ("examples", "uniform"),
    "threshold": ("members", "participants"),
    "removal_from": (0, 3, 10, "never"),
    "quota": ("layer", "vector"),
    "altruism": (True, False),
    "subtract_own": (True, False),
    "similarity": ("own_included", "leave_one_out"),
    "duplicates": ("each", "once"),
    "probation": (0, 1, 4),
    "confirmed_by": (1 / 3, 0.5),
    "removal_confidence": ("off", 0.9, 0.999),
    "short_memory": ("off", 0.0, 0.5),
    "earned": (True, False),
}
GUARDS = [*ALTERNATIVES][8:]


def flips(presets: Sequence[str], names: Sequence[str]) -> list[Any]:
    """Every other value of each of these switches alone, as preset and changes; confirmation goes with probation."""
    return [
        pytest.param(
            preset,
            {name: value} | ({"probation": PRESETS[preset]["probation"] or 1} if name == "confirmed_by" else {}),
            id=f"{preset}-{name}={value}",
        )
        for preset in presets
        for name in names
        for value in ALTERNATIVES[name]
        if value != PRESETS[preset][name]
    ]


FLIPS = flips([*PRESETS], [*ALTERNATIVES])
GUARDED_FLIPS = flips(["released"], GUARDS) + flips(["guarded"], [*ALTERNATIVES])
"""Each guard alone, and `guarded` with each switch another."""
ALL_GUARDS = {name: PRESETS["guarded"][name] for name in GUARDS} | {"confirmed_by": 0.5, "earned": True}
presets = pytest.mark.parametrize("preset", PRESETS)
alone = pytest.mark.filterwarnings("ignore:Round .*one upload at most tells anything")


def started(examples: Sequence[int], layers: Sequence[int], **settings: Any) -> RFFL:
    """A server before its first round."""
    server = RFFL(gamma=settings.pop("gamma", GAMMA), **settings)
    server.start(task(examples, layers))
    return server


def step(server: RFFL, updates: Tensor) -> Verdict:
    """One round in which all members send."""
    senders = server.members.nonzero().flatten().tolist()
    return server.step(sent(server, updates)[senders], senders)


def assert_finite(verdict: Verdict) -> None:
    """No number of a verdict in which everybody has sent is NaN or infinite."""
    for values in (verdict.weights, verdict.similarities, verdict.reputations, verdict.quotas, downloads(verdict)):
        assert values.isfinite().all()


def local_updates(participants: int, entries: int, seed: int) -> Tensor:
    """Updates of one round: the first participant works against the common direction, the last with it.

    Lengths go from below the norm bound to far above it.
    """
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(entries, generator=generator)
    agreement = torch.linspace(-0.6, 2, participants)[:, None] if participants > 1 else torch.ones(1, 1)
    lengths = (10.0 ** torch.linspace(-1, 1, participants))[torch.randperm(participants, generator=generator), None]
    noise = torch.randn(participants, entries, generator=generator)
    drawn: Tensor = (agreement * common + noise) * lengths / entries**0.5
    return drawn


Cast = Callable[[Tensor, Tensor, int], Tensor]
"""What participants compute in a round, from the direction that they share, noise of their own, and its number."""


def clones(common: Tensor, own: Tensor, now: int) -> Tensor:
    """Four honest, and three who are one: copies and near copies, then apart, then alike but not the same.

    In two rounds all but one nearly agree, two of them exactly; in the end two copy somebody honest.
    """
    rows = common + own
    if now < 3:
        rows[4:] = own[4]
        rows[6] += 0.1 * own[6]
    elif now == 3:
        rows[4:] = own[4:]
    elif now < 7:
        rows[4:] = own[4] + 0.5 * own[4:]
    elif now < 9:
        rows = common + (0.05 if now == 7 else 0.005) * own
        rows[5], rows[6] = rows[0], own[6]
    else:
        rows[5], rows[6] = rows[3], rows[3] + 0.1 * own[6]
    return rows


def silence(common: Tensor, own: Tensor, now: int) -> Tensor:
    """Three who work on, the best of all, who is silent for longer than it worked, one who begins late, a free-rider.

    In some rounds one of them alone tells anything, or nobody does, or one and its copy.
    """
    rows = (1.0 if now < 3 else 0.5) * common + own
    rows[3] = (3 * common + own[3]) * (now < 3 or now > 6)
    rows[4] *= now > 6
    rows[5] = own[5]
    if now == 9:
        rows[1:] = 0
    elif now == 10:
        rows[:] = 0
    elif now == 11:
        rows[1], rows[2:] = rows[0], 0
    return rows


def turning(common: Tensor, own: Tensor, now: int) -> Tensor:
    """Four honest, one who turns against them, one who has nothing new to say, and one who never had.

    The last two send what is next to nothing of what all others send, and the rest at right angles to it.
    """
    rows = 2 * common + own
    if now:
        rows[4] = own[4] - 2 * common
    for i in (5, 6):
        if now or i == 6:
            basis = torch.linalg.qr(torch.cat([rows[:4], common[None]]).T)[0]
            apart = own[i] - basis @ (basis.T @ own[i])
            rows[i] = apart + 0.02 * common
    return rows


def two(common: Tensor, own: Tensor, now: int) -> Tensor:
    """Two who agree, nearly agree, are the same; one of whom is silent, works on and turns."""
    rows = common + (1.0 if now < 3 else 0.05 if now < 5 else 0.0 if now == 5 else 0.5) * own
    rows[1] *= 0 if 6 <= now < 9 else -1 if now > 13 else 1
    return rows


CASTS: dict[Cast, tuple[int, int]] = {
    clones: (7, 13),
    silence: (6, 18),
    turning: (7, 26),
    two: (2, 16),
}
"""Made-up federations in which something happens: how many they are, and for how many rounds."""
casts = pytest.mark.parametrize("cast", CASTS, ids=lambda cast: cast.__name__)


def played(cast: Cast, entries: int = 101) -> list[Tensor]:
    """What such a federation computes in every round; lengths go from below the norm bound to far above it."""
    participants, rounds = CASTS[cast]
    updates = []
    for now in range(rounds):
        generator = torch.Generator().manual_seed(now)
        common, own = (torch.randn(shape, generator=generator) for shape in ((entries,), (participants, entries)))
        lengths = (10.0 ** torch.linspace(-1, 1, participants))[torch.randperm(participants, generator=generator), None]
        updates.append(cast(common, own, now) * lengths / entries**0.5)
    return updates
