"""Laws of RFFL with each switch by itself: numbers decide nothing, copies, one alone, two, and resumption."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.servers.reference import PRESETS
from tests.servers.switches import (
    ALL_GUARDS,
    CASTS,
    GAMMA,
    GUARDED_FLIPS,
    GUARDS,
    LAYERS,
    Cast,
    casts,
    local_updates,
    played,
    presets,
    started,
    step,
)
from tests.servers.tasks import assert_equal, downloads, sent, shards, through_file

pytestmark = pytest.mark.filterwarnings("ignore:Round ")
variants = pytest.mark.parametrize(
    ("preset", "changes"), [pytest.param(preset, {}, id=preset) for preset in PRESETS] + GUARDED_FLIPS
)


def made_up(participants: int, now: int, own: float = 1.0) -> Tensor:
    """A round of updates with a common direction, as long as the norm bound or a little longer."""
    generator = torch.Generator().manual_seed(now)
    common, apart = (torch.randn(shape, generator=generator) for shape in ((101,), (participants, 101)))
    rows: Tensor = (common + own * apart) / 101**0.5
    return rows


def assert_permuted(rounds: list[Tensor], preset: str, changes: dict[str, Any]) -> int:
    """Participants who are numbered otherwise get what they got before; returns how many stay."""
    participants, entries = rounds[0].shape
    order = torch.randperm(participants, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([1, 0]) if participants == 2 else order
    sizes = torch.tensor(shards(participants))
    straight = started(sizes.tolist(), LAYERS[entries], preset=preset, alpha=0.7, **changes)
    permuted = started(sizes[order].tolist(), LAYERS[entries], preset=preset, alpha=0.7, **changes)
    for updates in rounds:
        one, other = step(straight, updates), step(permuted, updates[order])
        assert torch.equal(one.members[order], other.members)
        for name in ("weights", "similarities", "reputations", "quotas"):
            torch.testing.assert_close(
                getattr(one, name)[order], getattr(other, name), atol=1e-6, rtol=0, equal_nan=True
            )
        torch.testing.assert_close(downloads(one)[order], downloads(other), atol=1e-6, rtol=0)
    return int(one.members.sum())


@presets
def test_permutation_of_participants(preset: str) -> None:
    """A participant's number decides something."""
    assert assert_permuted([local_updates(7, 37, seed=now) for now in range(13)], preset, {}) < 7


@casts
@variants
def test_permutation_where_something_happens(preset: str, changes: dict[str, Any], cast: Cast) -> None:
    """A participant's number decides who of the clones counts, who is confirmed, or which of two is."""
    assert_permuted(played(cast), preset, changes)


@variants
def test_copies_are_treated_alike(preset: str, changes: dict[str, Any]) -> None:
    """Of participants who always send the same, one gets something that another does not."""
    server = started([11, 18, 25, 40, 40, 40], LAYERS[101], preset=preset, alpha=0.7, **changes)
    for now in range(13):
        rows = made_up(6, now)
        rows[4:] = rows[3]
        verdict = step(server, rows)
        for values in (verdict.weights, verdict.similarities, verdict.reputations, verdict.quotas, verdict.members):
            torch.testing.assert_close(values[4:].double(), values[[3, 3]].double(), rtol=1e-9, atol=0, equal_nan=True)
        torch.testing.assert_close(downloads(verdict)[4:], downloads(verdict)[[3, 3]])


ONCE = [
    {"preset": "released", "duplicates": "once", "removal_from": "never"} | more
    for more in (
        {},
        {"similarity": "leave_one_out"},
        {"normalise": True},
        {"first_weights": "uniform"},
        {"probation": 1},
        {"probation": 3, "confirmed_by": 0.5},
        {"short_memory": 0.5},
        {"earned": True},
    )
] + [{"preset": "guarded", "removal_confidence": "off", "removal_from": "never"}]


@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("copies", [2, 5])
@pytest.mark.parametrize("options", ONCE, ids=lambda options: ",".join(f"{name}={v}" for name, v in options.items()))
def test_copies_weigh_as_one(options: dict[str, Any], copies: int, alpha: float) -> None:
    """Sending the same under so many names moves anybody's weight, similarity, quota or download.

    It is exact where nothing is remembered. Otherwise it is until reputations hold something that was shared out among
    more: the first weights, or after a round the reputations. Then copies together still weigh as much as one of them.
    Removal is left out, which goes by the mean member or the number of members: copies are counted there.
    """
    examples = [11, 18, 25, 40]
    one = started(examples, LAYERS[101], alpha=alpha, **options)
    many = started(examples + [40] * (copies - 1), LAYERS[101], alpha=alpha, **options)
    uniform = one.switches.first_weights == "uniform"
    before = None
    for now in range(8):
        rows = made_up(4, now)
        alone = step(one, rows)
        crowd = step(many, torch.cat([rows, rows[3:].expand(copies - 1, -1)]))
        shares = torch.cat([crowd.weights[:3], crowd.weights[3:].sum(0, keepdim=True)])
        if alpha == 0 or now < (1 if uniform else 2):
            torch.testing.assert_close(shares / shares.sum(), alone.weights, rtol=1e-6, atol=0)
            torch.testing.assert_close(crowd.similarities[:4], alone.similarities, rtol=1e-6, atol=0)
        if alpha == 0 or (now == 0 and not uniform):
            torch.testing.assert_close(crowd.quotas[:4], alone.quotas, rtol=1e-6, atol=0)
            torch.testing.assert_close(
                downloads(crowd)[:4] / float(shares.sum()), downloads(alone), rtol=1e-4, atol=1e-6
            )
        if before is not None:
            torch.testing.assert_close(shares, before[:4])
        before = crowd.reputations
    assert alone.quotas.min() > 0


@pytest.mark.parametrize("more", [{}, {"removal_from": 0}, {"quota": "vector"}], ids=str)
@variants
def test_one_participant(preset: str, changes: dict[str, Any], more: dict[str, Any]) -> None:
    """A lone participant is removed from its own federation, or does not get its whole aggregate.

    Where others have to confirm it, or it is paid by its similarity to others alone, it trains alone.
    """
    server = started([40], LAYERS[37], preset=preset, **changes | more)
    steps = server.switches
    by_others = steps.similarity == "leave_one_out" and (steps.short_memory != "off" or steps.earned)
    quota = 0.0 if steps.probation or by_others else 1.0
    for now in range(12):
        updates = local_updates(1, 37, seed=now)
        verdict = step(server, updates)
        assert (verdict.reputations.item(), verdict.quotas.item(), verdict.removed) == (1.0, quota, ())
        upload = sent(server, updates)[0]
        term = upload * GAMMA / upload.norm() if steps.normalise else upload
        torch.testing.assert_close(verdict.download(0), term * quota - upload * steps.subtract_own)


@pytest.mark.parametrize("sign", [1, -1])
@variants
def test_two_participants(preset: str, changes: dict[str, Any], sign: int) -> None:
    """Of two who agree one is removed or never paid; two opposites are confirmed; or who is right is told apart.

    To what the other makes, both are as similar; neither can be removed for it.
    """
    server = started(shards(2), LAYERS[101], preset=preset, **changes)
    for now in range(12):
        rows = made_up(2, now, own=0.5)
        rows[1] *= sign
        verdict = step(server, rows)
        if server.switches.similarity == "leave_one_out":
            assert float(verdict.similarities[0]) == pytest.approx(float(verdict.similarities[1]))
            assert sign * float(verdict.similarities[0]) > 0.5
            assert verdict.members.all()
        if sign < 0 and server.switches.probation:
            assert not verdict.quotas.any()
    if sign > 0:
        assert verdict.members.all()
        assert (verdict.quotas > 0).all()


def assert_resumed(rounds: list[Tensor], options: dict[str, Any], after: tuple[int, ...]) -> bool:
    """A run goes on from any of these rounds to the same bits; returns whether everybody stays."""
    participants, entries = rounds[0].shape
    whole = started(shards(participants), LAYERS[entries], alpha=0.7, **options)
    saved, verdicts = [whole.state_dict()], []
    for updates in rounds:
        verdicts.append(step(whole, updates))
        saved.append(whole.state_dict())
    for done in after:
        resumed = started(shards(participants), LAYERS[entries], alpha=0.7, **options)
        resumed.load_state_dict(through_file(saved[done]))
        for updates, verdict in zip(rounds[done:], verdicts[done:], strict=True):
            assert_equal(step(resumed, updates), verdict)
    return bool(verdicts[-1].members.all())


@pytest.mark.parametrize("options", [{"preset": preset} for preset in PRESETS] + [{"earned": True}], ids=str)
def test_resumes_to_the_same_bits(options: dict[str, Any]) -> None:
    """A run that was interrupted after any round goes on otherwise than one that was not, or a saved state moves on."""
    assert not assert_resumed([local_updates(7, 37, seed=now) for now in range(13)], options, (0, 1, 6, 11))


@casts
@pytest.mark.parametrize(
    "options",
    [{name: ALL_GUARDS[name]} for name in GUARDS if name != "confirmed_by"]
    + [{"preset": preset} | ALL_GUARDS for preset in ("released", "guarded")]
    + [{"preset": "guarded"}],
    ids=lambda options: "all" if len(options) > 2 else "-".join(map(str, next(iter(options.items())))),
)
def test_resumes_where_something_happens(options: dict[str, Any], cast: Cast) -> None:
    """A checkpoint of a run with clones, silence or somebody who turns forgets who told what, or who is who's copy."""
    _, rounds = CASTS[cast]
    assert_resumed(played(cast), options, (2, 5, 8, rounds - 2))


class _Largest(TorchDispatchMode):
    """How many entries the largest tensor has that anything makes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.entries = max([self.entries, *(one.numel() for one in tree_leaves(made) if isinstance(one, Tensor))])
        return made


@pytest.mark.parametrize("preset", ["released", "paper", "altruism"])
def test_without_guards_nothing_is_kept_of_every_pair(preset: str) -> None:
    """A matrix of participants by participants is 3.5 GB at 20,000, which guards alone are told to cost."""
    participants = 300
    server = started(shards(participants), LAYERS[101], preset=preset)
    with _Largest() as largest:
        for now in range(3):
            downloads(step(server, made_up(participants, now)))
    assert 101 * participants <= largest.entries < participants**2
