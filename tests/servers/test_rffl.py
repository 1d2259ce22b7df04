"""RFFL against a float64 reference written from the specification, and what no round may ever break."""

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.servers import RFFL, Verdict
from tests.servers.reference import PRESETS, ReferenceRFFL, Round
from tests.servers.tasks import (
    assert_equal,
    assert_refused,
    downloads,
    every_kind,
    finite_fraction,
    sent,
    shards,
    spoil,
    task,
    through_file,
)

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
FLIPS = [  # confirmation goes with probation alone
    pytest.param(
        preset,
        {name: value} | ({"probation": steps["probation"] or 1} if name == "confirmed_by" else {}),
        id=f"{preset}-{name}={value}",
    )
    for preset, steps in PRESETS.items()
    for name, values in ALTERNATIVES.items()
    for value in values
    if value != steps[name]
]
presets = pytest.mark.parametrize("preset", PRESETS)
NAN, INF = float("nan"), float("inf")


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


def assert_same(
    verdict: Verdict, expected: Round, reference: ReferenceRFFL, uploads: Mapping[int, list[float]]
) -> None:
    """Every number of the verdict is the reference's."""

    def close(actual: Tensor, values: Sequence[float]) -> None:
        torch.testing.assert_close(actual.double(), torch.tensor(values).double(), rtol=1e-5, atol=1e-5, equal_nan=True)

    senders = list(uploads)
    assert verdict.members.tolist() == expected.members
    assert list(verdict.removed) == expected.removed
    close(verdict.weights, expected.weights)
    close(verdict.similarities[senders], [expected.similarities[i] for i in senders])
    close(verdict.reputations, expected.reputations)
    close(verdict.quotas, expected.quotas)
    for i, quota in enumerate(verdict.quotas.tolist()):
        # With the server's own quota: beside a whole number of entries, rounding would hang on the last bit of it.
        close(verdict.download(i), reference.download(expected, i, uploads.get(i), quota))


def run_both(
    preset: str, changes: dict[str, Any], *, participants: int, entries: int, rounds: int, seed: int, alpha: float
) -> int:
    """Compare server and reference for some rounds; returns how many participants were removed."""
    layers = LAYERS[entries]
    server = started(shards(participants), layers, preset=preset, alpha=alpha, **changes)
    reference = ReferenceRFFL(shards(participants), layers, GAMMA, alpha, **(PRESETS[preset] | changes))
    for now in range(rounds):
        updates = local_updates(participants, entries, seed=1000 * seed + now)
        senders = [i for i, member in enumerate(reference.members) if member]
        outgoing = sent(server, updates)
        uploads = {i: reference.upload(updates[i].tolist()) for i in senders}
        torch.testing.assert_close(outgoing[senders], torch.tensor([*uploads.values()]), rtol=1e-5, atol=1e-6)
        verdict = server.step(outgoing[senders], senders)
        assert_same(verdict, reference.step(uploads), reference, uploads)
        told = len(senders) > 1 or reference.on["similarity"] == "own_included"  # alone there is nothing to be like
        assert [i for i, s in enumerate(verdict.similarities.tolist()) if not math.isnan(s)] == senders * told
    return participants - sum(reference.members)


alone = pytest.mark.filterwarnings("ignore:Round .*one upload at most tells anything")


@pytest.mark.parametrize("entries", LAYERS)
@pytest.mark.parametrize("participants", [1, 2, 5, 12])
@alone
@presets
def test_preset_is_the_reference(preset: str, participants: int, entries: int) -> None:
    """A preset computes another algorithm than its column of the specification, in some round."""
    for seed in range(2):
        run_both(preset, {}, participants=participants, entries=entries, rounds=13, seed=seed, alpha=0.95)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("preset", "changes"), FLIPS)
def test_single_switch_is_the_reference(preset: str, changes: dict[str, Any], seed: int) -> None:
    """A switch, alone, does something else than its row of the specification, or moves another row too."""
    run_both(preset, changes, participants=7, entries=37, rounds=13, seed=seed, alpha=0.7)


@presets
def test_comparison_includes_removals(preset: str) -> None:
    """The comparisons above would be about rounds in which everybody stays."""
    removed = run_both(preset, {}, participants=7, entries=37, rounds=13, seed=0, alpha=0.7)
    assert 0 < removed < 6


def test_golden_released_round() -> None:
    """Reputations are not normalised, do not start at 0, or first weights are not shard sizes (servers.md 4.8)."""
    uploads = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, -2.0]])
    verdict = step(started([1, 1, 2], [3], clip=False), uploads)

    def close(actual: Tensor, *expected: float) -> None:
        torch.testing.assert_close(actual.double(), torch.tensor(expected).double(), rtol=0, atol=1e-6)

    close(verdict.weights, 0.25, 0.25, 0.5)
    close(verdict.similarities, 0.406579, 0.406579, 0.903508)
    close(verdict.reputations, 0.236842, 0.236842, 0.526316)
    close(verdict.quotas, 0.45, 0.45, 1.0)
    close(verdict.download(2), 0.45, 0.15, -1.0)
    close(verdict.download(0), 0.45, 0.0, -1.0)


def test_paper_round_by_hand() -> None:
    """The paper's download lacks a term: topk(g) - r u of two orthogonal uploads of different length."""
    verdict = step(started([1, 9], [2], preset="paper", gamma=1.0), torch.tensor([[4.0, 0.0], [0.0, 0.5]]))
    torch.testing.assert_close(verdict.reputations, torch.tensor([0.5, 0.5]).double())
    torch.testing.assert_close(verdict.similarities, torch.tensor([0.5, 0.5]).double().sqrt())
    torch.testing.assert_close(downloads(verdict), torch.tensor([[0.5 - 2.0, 0.5], [0.5, 0.5 - 0.25]]))


def test_negative_reputation_gets_nothing() -> None:
    """A negative cosine is taken for a positive one, or buys its owner entries of the aggregate."""
    opposed = torch.tensor([[0.3, 0.1], [0.3, 0.1], [-0.3, -0.1]])
    server = started([5, 5, 5], [2])
    verdict = step(server, opposed)
    torch.testing.assert_close(verdict.reputations, torch.tensor([1.0, 1.0, -1.0]).double())
    assert verdict.members.all()
    assert verdict.quotas.tolist() == [1.0, 1.0, 0.0]
    torch.testing.assert_close(verdict.download(0), opposed[0] / 3)
    assert not verdict.download(2).any()
    torch.testing.assert_close(step(server, opposed).weights, torch.tensor([1.0, 1.0, -1.0]).double())


def test_who_is_removed_has_nothing() -> None:
    """It has a reputation of minus zero, which tables show."""
    verdict = step(started([5, 5, 5], [2], removal_from=0), torch.tensor([[0.3, 0.1], [0.3, 0.1], [-0.3, -0.1]]))
    assert verdict.removed == (2,)
    assert not verdict.reputations.signbit().any()
    assert not verdict.quotas.signbit().any()


@pytest.mark.parametrize("changes", [{}, {"removal_from": 0}, {"quota": "vector"}], ids=str)
@alone
@presets
def test_one_participant(preset: str, changes: dict[str, Any]) -> None:
    """A lone participant is removed from its own federation, or does not get its whole aggregate."""
    server = started([40], LAYERS[37], preset=preset, **changes)
    for now in range(12):
        updates = local_updates(1, 37, seed=now)
        verdict = step(server, updates)
        quota = 0.0 if preset == "guarded" else 1.0  # where nobody else can confirm it, it trains alone
        assert (verdict.reputations.item(), verdict.quotas.item(), verdict.removed) == (1.0, quota, ())
        upload = sent(server, updates)[0]
        expected = upload * GAMMA / upload.norm() - upload if preset == "paper" else upload * quota
        torch.testing.assert_close(verdict.download(0), expected)


@presets
def test_zero_upload(preset: str) -> None:
    """A participant that learnt nothing makes the round NaN or enters the aggregate."""
    layers = LAYERS[37]
    updates = local_updates(4, 37, seed=5)
    updates[1] = 0
    server = started(shards(4), layers, preset=preset)
    reference = ReferenceRFFL(shards(4), layers, GAMMA, **PRESETS[preset])
    uploads = {i: reference.upload(row.tolist()) for i, row in enumerate(updates)}
    verdict = step(server, updates)
    assert_finite(verdict)
    assert verdict.similarities[1] == 0
    assert verdict.set_aside == ()
    assert_same(verdict, reference.step(uploads), reference, uploads)


@pytest.mark.parametrize(
    "poison",
    [[NAN] * 37, [NAN] + [0.1] * 36, [0.1] * 36 + [INF], [-INF] + [0.0] * 36, [INF, -INF, NAN] + [1.0] * 34],
    ids=["all nan", "one nan", "one inf", "one -inf", "mixed"],
)
@presets
def test_broken_upload(preset: str, poison: list[float]) -> None:
    """One participant's NaN or infinity reaches the aggregate, the others' reputations or anybody's download."""
    layers = LAYERS[37]
    server = started(shards(4), layers, preset=preset)
    reference = ReferenceRFFL(shards(4), layers, GAMMA, **PRESETS[preset])
    for now in range(12):
        updates = local_updates(4, 37, seed=now)
        updates[2] = torch.tensor(poison)
        senders = [i for i, member in enumerate(reference.members) if member]
        uploads = {i: reference.upload(updates[i].tolist()) for i in senders}
        verdict = step(server, updates)
        assert verdict.set_aside == ((2,) if 2 in senders else ())
        assert verdict.weights[2] == 0
        assert_same(verdict, reference.step(uploads), reference, uploads)
        assert downloads(verdict).isfinite().all()


@every_kind
@pytest.mark.parametrize("bad", [[2], [0, 6], [0, 1, 2, 4, 6]], ids=str)
@presets
def test_bad_uploads_do_not_count(preset: str, bad: list[int], kind: str) -> None:
    """A bad upload gets into a number, is not named, or makes another round than if it had not been sent."""
    for now in (0, 2):
        server = started(shards(7), LAYERS[37], preset=preset, removal_from="never")
        reference = ReferenceRFFL(shards(7), LAYERS[37], GAMMA, **(PRESETS[preset] | {"removal_from": "never"}))
        for earlier in range(now):
            rows = local_updates(7, 37, seed=earlier)
            step(server, rows)
            reference.step({i: reference.upload(row.tolist()) for i, row in enumerate(rows)})
        rows = torch.tensor([reference.upload(row.tolist()) for row in local_updates(7, 37, seed=now)])
        verdict = server.step(spoil(rows, bad, kind), list(range(7)))
        assert verdict.set_aside == tuple(bad)
        assert finite_fraction(verdict) == 1
        good = {i: rows[i].tolist() for i in range(7) if i not in bad}
        expected = reference.step(good)
        assert_same(verdict, expected, reference, good)
        assert (
            [verdict.weights[i].item() for i in bad] == [verdict.similarities[i].item() for i in bad] == [0] * len(bad)
        )


@every_kind
@presets
def test_bad_uploads_in_every_round(preset: str, kind: str) -> None:
    """With bad uploads on the way from updates to downloads something is not finite, or a member is named that is fit.

    A clip brings a finite upload down to its bound, however long it was.
    """
    server = started(shards(5), LAYERS[37], preset=preset)
    for now in range(13):
        here = {i for i, member in enumerate(server.members.tolist()) if member}
        verdict = step(server, spoil(local_updates(5, 37, seed=now), [1, 3], kind))
        unfit = set() if kind == "1e38" and server.switches.clip else {1, 3} & here
        assert set(verdict.set_aside) == unfit
        assert finite_fraction(verdict) == 1


@every_kind
@pytest.mark.filterwarnings("ignore:Round .*no positive sum")
@presets
def test_nothing_but_bad_uploads(preset: str, kind: str) -> None:
    """With every upload bad somebody downloads something, is removed, or loses reputation."""
    for now in (0, 3):
        server = started(shards(5), LAYERS[37], preset=preset, alpha=0.9, removal_from=0)
        for earlier in range(now):
            before = step(server, local_updates(5, 37, seed=earlier))
        senders = server.members.nonzero().flatten().tolist()
        verdict = server.step(spoil(local_updates(5, 37, seed=now), range(5), kind)[senders], senders)
        assert verdict.set_aside == tuple(senders)
        assert torch.equal(downloads(verdict), torch.zeros(5, 37))
        assert verdict.removed == ()
        assert finite_fraction(verdict) == 1
        if now:
            torch.testing.assert_close(verdict.reputations, before.reputations, rtol=1e-12, atol=0)


@presets
def test_nothing_but_broken_uploads(preset: str) -> None:
    """A round in which no upload can be used removes or rewards somebody, or does not end."""
    server = started(shards(3), LAYERS[37], preset=preset, alpha=0.0)
    before = step(server, local_updates(3, 37, seed=7))
    with pytest.warns(UserWarning, match="last valid"):
        verdict = step(server, torch.full((3, 37), NAN))
    assert_finite(verdict)
    assert torch.equal(verdict.reputations, before.reputations)
    assert verdict.set_aside == tuple(before.members.nonzero().flatten().tolist())
    assert not downloads(verdict).any()


def test_keeps_the_last_valid_reputations_and_says_so_once() -> None:
    """Without a positive reputation the run goes on with NaN, with none, or with a warning every round."""
    server = started(shards(3), LAYERS[37], alpha=0.0)
    valid = step(server, local_updates(3, 37, seed=8))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            verdict = step(server, torch.full((3, 37), NAN))
            assert torch.equal(verdict.reputations, valid.reputations)
            assert torch.equal(verdict.quotas, valid.quotas)
            assert not downloads(verdict).any()
    assert ["last valid" in str(warning.message) for warning in caught] == [True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recovered = step(server, local_updates(3, 37, seed=9))
    assert torch.equal(recovered.weights, valid.reputations)
    assert recovered.reputations.sum().item() == pytest.approx(1)


@pytest.mark.filterwarnings("ignore:Round .*no positive sum")
@pytest.mark.parametrize("preset", ["released", "altruism"])
@pytest.mark.parametrize("tilt", [0.0, 1e-3, 0.03])
def test_opposite_uploads_leave_reputations_in_bounds(preset: Any, tilt: float) -> None:
    """Whoever sends the opposite of another makes reputations, and with them the next aggregate, huge."""
    server = RFFL(preset=preset)
    server.start(task([70, 100], LAYERS[37]))
    for now in range(3):
        rows = local_updates(2, 37, seed=now)
        rows[1] = tilt * rows[1] - rows[0]
        verdict = step(server, rows)
        assert verdict.reputations.abs().max() < 10
        assert max(float(verdict.download(i).norm()) for i in (0, 1)) < 10


def test_first_round_without_reputations() -> None:
    """Before any valid reputations the first-round weights do not stand for them."""
    server = started([1, 1, 2], [2])
    with pytest.warns(UserWarning, match="last valid"):
        verdict = step(server, torch.zeros(3, 2))
    assert verdict.reputations.tolist() == [0.25, 0.25, 0.5]
    assert step(server, torch.ones(3, 2)).weights.tolist() == [0.25, 0.25, 0.5]


def test_negative_sum_keeps_the_last_valid() -> None:
    """Division by a negative sum turns every sign round: who worked against the aggregate gets the best reputation."""
    server = started([10, 1, 1], [2])
    with pytest.warns(UserWarning, match="last valid"):
        verdict = step(server, torch.tensor([[0.2, 0.0], [-0.2, 0.0], [-0.2, 0.0]]))
    torch.testing.assert_close(verdict.similarities, torch.tensor([1.0, -1.0, -1.0]).double())
    torch.testing.assert_close(verdict.reputations, torch.tensor([10.0, 1.0, 1.0]).double() / 12)


def with_nobody_left(**settings: Any) -> RFFL:
    """A server whose members have all been removed; no rounds lead there, for the best of n has at least 1/n."""
    server = started(shards(3), LAYERS[37], **settings)
    nobody = torch.zeros(3, dtype=torch.bool)
    state = {"members": nobody, "round": 12, "reputations": torch.zeros(3, dtype=torch.float64)}
    server.load_state_dict({**server.state_dict(), **state})
    return server


@pytest.mark.filterwarnings("ignore:Round 13. every participant has been removed")
@presets
def test_nobody_left(preset: str) -> None:
    """Without members the run stops, or somebody still downloads, weighs or is removed."""
    server = with_nobody_left(preset=preset)
    for _ in range(3):
        verdict = server.step(torch.empty(0, 37), [])
        assert not verdict.members.any()
        assert verdict.removed == ()
        assert torch.equal(downloads(verdict), torch.zeros(3, 37))
        for values in (verdict.weights, verdict.reputations, verdict.quotas):
            assert torch.equal(values, torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("threshold", ["members", "participants"])
def test_nobody_left_is_said_once(threshold: Any) -> None:
    """That everybody trains alone from now on is not said, or said every round."""
    server = with_nobody_left(threshold=threshold)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            server.step(torch.empty(0, 37), [])
    assert ["every participant has been removed" in str(warning.message) for warning in caught] == [True]


def test_ties_are_cut_exactly() -> None:
    """All of the equal entries are downloaded, or a random choice of them."""
    uploads = torch.tensor([[0.1, 0.1, -0.1, 0.1, -0.1], [0.1, 0.1, -0.1, 0.1, -0.1], [0.0, 0.0, 0.0, 0.0, 0.2]])
    verdict = step(started([1, 1, 0], [5]), uploads)
    assert verdict.quotas[2].item() == pytest.approx(0.0, abs=1e-9)  # opposed to the aggregate
    verdict = step(started([1, 1, 0], [5]), uploads.abs())
    assert verdict.quotas[2].item() == pytest.approx(5**-0.5)
    torch.testing.assert_close(verdict.download(2), torch.tensor([0.1, 0.1, 0.1, 0.0, 0.0]))


@presets
def test_supports_nest(preset: str) -> None:
    """Of two members the one with the larger quota misses an entry that the other gets."""
    server = started(shards(12), LAYERS[101], preset=preset, subtract_own=False, removal_from="never")
    for now in range(3):
        verdict = step(server, local_updates(12, 101, seed=now))
        order = verdict.quotas.argsort()
        supports = downloads(verdict)[order] != 0
        for less, more in itertools.pairwise(supports):
            assert (more | ~less).all()
        assert supports[-1].all()
        assert supports.sum(1)[0] < supports.sum(1)[-1]
        assert not supports[verdict.quotas[order] == 0].any()


@presets
def test_permutation_of_participants(preset: str) -> None:
    """A participant's number decides something."""
    order = torch.randperm(7, generator=torch.Generator().manual_seed(0))
    sizes = torch.tensor(shards(7))
    straight = started(sizes.tolist(), LAYERS[37], preset=preset, alpha=0.7)
    permuted = started(sizes[order].tolist(), LAYERS[37], preset=preset, alpha=0.7)
    for now in range(13):
        updates = local_updates(7, 37, seed=now)
        one, other = step(straight, updates), step(permuted, updates[order])
        assert torch.equal(one.members[order], other.members)
        for name in ("weights", "similarities", "reputations", "quotas"):
            torch.testing.assert_close(
                getattr(one, name)[order], getattr(other, name), atol=1e-6, rtol=0, equal_nan=True
            )
        torch.testing.assert_close(downloads(one)[order], downloads(other), atol=1e-6, rtol=0)
    assert not one.members.all()


@presets
def test_removed_for_ever(preset: str) -> None:
    """Somebody who was removed comes back, weighs something or downloads something."""
    server = started(shards(7), LAYERS[37], preset=preset, alpha=0.7)
    gone: set[int] = set()
    for now in range(20):
        verdict = step(server, local_updates(7, 37, seed=now))
        assert gone.isdisjoint(verdict.removed)
        assert all(verdict.weights[i] == 0 and verdict.similarities[i].isnan() for i in gone)
        gone |= set(verdict.removed)
        assert {i for i, member in enumerate(verdict.members.tolist()) if not member} == gone
        for i in gone:
            assert verdict.reputations[i] == verdict.quotas[i] == 0
            assert torch.equal(verdict.download(i), torch.zeros(37))
        assert verdict.reputations.sum().item() == pytest.approx(1)
    assert gone


@pytest.mark.parametrize("options", [{"preset": preset} for preset in PRESETS] + [{"earned": True}], ids=str)
def test_resumes_to_the_same_bits(options: dict[str, Any]) -> None:
    """A run that was interrupted after any round goes on otherwise than one that was not, or a saved state moves on."""
    rounds = [local_updates(7, 37, seed=now) for now in range(13)]
    whole = started(shards(7), LAYERS[37], alpha=0.7, **options)
    saved, verdicts = [whole.state_dict()], []
    for updates in rounds:
        verdicts.append(step(whole, updates))
        saved.append(whole.state_dict())
    assert not verdicts[-1].members.all()
    for done in (0, 1, 6, 11):
        resumed = started(shards(7), LAYERS[37], alpha=0.7, **options)
        resumed.load_state_dict(through_file(saved[done]))
        for updates, verdict in zip(rounds[done:], verdicts[done:], strict=True):
            assert_equal(step(resumed, updates), verdict)


def test_starts_afresh() -> None:
    """A second run of the same server goes on with the first one's reputations, members or rounds."""
    server = started(shards(7), LAYERS[37], preset="paper", alpha=0.0)
    first = [step(server, local_updates(7, 37, seed=now)) for now in range(3)]
    server.start(task(shards(7), LAYERS[37]))
    second = [step(server, local_updates(7, 37, seed=now)) for now in range(3)]
    assert any(verdict.removed for verdict in first)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.reputations, other.reputations)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gamma", 0.0),
        ("gamma", -1.0),
        ("gamma", NAN),
        ("alpha", 1.1),
        ("alpha", -0.1),
        ("alpha", NAN),
        ("removal_from", -1),
    ],
)
def test_refuses_settings_without_a_meaning(option: str, value: Any) -> None:
    """A negative norm bound turns every upload round, silently, or the message does not say what and where."""
    settings: dict[str, Any] = {option: value}
    assert_refused(lambda: RFFL(**settings), f"--server.{option}", str(value))


def test_an_upload_a_little_too_long_is_clipped() -> None:
    """What is 5 % longer than agreed passes the server."""
    server = RFFL(gamma=0.5)
    server.start(task([10, 10], [40]))
    rows = torch.zeros(2, 40)
    rows[:, 0] = 0.525
    assert float(server.step(rows, range(2)).download(0).norm()) == pytest.approx(0.5, rel=1e-5)
