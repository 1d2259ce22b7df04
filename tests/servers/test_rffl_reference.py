"""RFFL against a float64 reference written from the specification, with every switch and every rule behind one."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.servers import Verdict
from tests.servers.reference import PRESETS, ReferenceRFFL, Round, agreement
from tests.servers.switches import (
    ALL_GUARDS,
    CASTS,
    FLIPS,
    GAMMA,
    GUARDED_FLIPS,
    LAYERS,
    Cast,
    alone,
    assert_finite,
    casts,
    clones,
    local_updates,
    played,
    presets,
    silence,
    started,
    step,
    turning,
)
from tests.servers.tasks import downloads, every_kind, finite_fraction, sent, shards, spoil

NAN, INF = float("nan"), float("inf")
quiet = pytest.mark.filterwarnings("ignore:Round ")


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
        # With the server's own quota: beside a whole number of entries, rounding would depend on the last bit of it.
        close(verdict.download(i), reference.download(expected, i, uploads.get(i), quota))


def run_both(preset: str, changes: dict[str, Any], rounds: Sequence[Tensor], alpha: float) -> int:
    """Compare server and reference over the updates of some rounds; returns how many participants were removed."""
    participants, entries = rounds[0].shape
    server = started(shards(participants), LAYERS[entries], preset=preset, alpha=alpha, **changes)
    reference = ReferenceRFFL(shards(participants), LAYERS[entries], GAMMA, alpha, **(PRESETS[preset] | changes))
    for updates in rounds:
        senders = [i for i, member in enumerate(reference.members) if member]
        outgoing = sent(server, updates)
        uploads = {i: reference.upload(updates[i].tolist()) for i in senders}
        torch.testing.assert_close(outgoing[senders], torch.tensor([*uploads.values()]), rtol=1e-5, atol=1e-6)
        verdict = server.step(outgoing[senders], senders)
        assert_same(verdict, reference.step(uploads), reference, uploads)
        assert all(math.isnan(verdict.similarities[i]) for i in range(participants) if i not in senders)
    return participants - sum(reference.members)


def drawn(participants: int, entries: int, seed: int) -> list[Tensor]:
    """Thirteen rounds of updates."""
    return [local_updates(participants, entries, seed=1000 * seed + now) for now in range(13)]


@pytest.mark.parametrize("entries", LAYERS)
@pytest.mark.parametrize("participants", [1, 2, 5, 12])
@alone
@presets
def test_preset_is_the_reference(preset: str, participants: int, entries: int) -> None:
    """A preset computes another algorithm than its column of the specification, in some round."""
    for seed in range(2):
        run_both(preset, {}, drawn(participants, entries, seed), alpha=0.95)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("preset", "changes"), FLIPS)
def test_single_switch_is_the_reference(preset: str, changes: dict[str, Any], seed: int) -> None:
    """A switch, alone, does something else than its row of the specification, or moves another row too."""
    run_both(preset, changes, drawn(7, 37, seed), alpha=0.7)


@presets
def test_comparison_includes_removals(preset: str) -> None:
    """The comparisons above would be about rounds in which everybody stays."""
    removed = run_both(preset, {}, drawn(7, 37, 0), alpha=0.7)
    assert 0 < removed < 6


@casts
@quiet
@presets
def test_preset_is_the_reference_where_something_happens(preset: str, cast: Cast) -> None:
    """A preset treats clones, silence, those who turn or two who agree otherwise than its specification."""
    run_both(preset, {}, played(cast), alpha=0.7)


@casts
@quiet
@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        *GUARDED_FLIPS,
        pytest.param("released", ALL_GUARDS, id="released-all"),
        pytest.param("guarded", ALL_GUARDS, id="guarded-all"),
    ],
)
def test_guard_is_the_reference_where_something_happens(preset: str, changes: dict[str, Any], cast: Cast) -> None:
    """A guard does something else than its row of the specification where there is something to guard against."""
    run_both(preset, changes, played(cast), alpha=0.7)


def everything(preset: str, cast: Cast, **changes: Any) -> Tensor:
    """All that anybody sends and gets in a made-up federation."""
    rounds = played(cast)
    server = started(shards(len(rounds[0])), LAYERS[101], preset=preset, alpha=0.7, **changes)
    made = [sent(server, rounds[0])]
    for verdict in (step(server, updates) for updates in rounds):
        made += [verdict.weights, verdict.quotas, verdict.members, downloads(verdict)]
    numbers = torch.cat([values.double().flatten() for values in made])
    assert numbers.isfinite().all()
    return numbers


as_it_is = functools.cache(everything)


@quiet
@pytest.mark.parametrize(("preset", "changes"), GUARDED_FLIPS)
def test_comparison_meets_every_switch(preset: str, changes: dict[str, Any]) -> None:
    """The comparisons above would be the same without a switch."""
    both = ((as_it_is(preset, cast), everything(preset, cast, **changes)) for cast in CASTS)
    met = any(not torch.allclose(one, other, rtol=1e-3, atol=1e-4) for one, other in both)  # more than rounding
    assert met == (changes != {"threshold": "participants"} or preset != "guarded")  # which goes by contributions


@pytest.mark.parametrize("preset", ["released", "paper"])
def test_comparison_meets_either_threshold(preset: str) -> None:
    """Whoever lies between the thresholds of all and of those who are left goes whatever the switch says, or stays."""
    rounds = []
    for now in range(16):
        common, apart = torch.randn(2, 101, generator=torch.Generator().manual_seed(now))
        apart -= apart @ common / common.square().sum() * common
        rows = torch.stack([*[-common] * 2, 0.19 * common + apart, *[common] * 4])
        rounds.append(rows / 101**0.5)
    switches: list[dict[str, Any]] = [{"threshold": name, "removal_from": 0} for name in ("members", "participants")]
    removed = [run_both(preset, changes, rounds, alpha=0.7) for changes in switches]
    assert removed == [3, 2]


RULES: dict[str, tuple[Cast, dict[str, Any]]] = {
    "near copies are one": (clones, {"like": 1.0}),
    "of a majority copies alone are one": (clones, {"copy": 0.99}),
    "the same agree in nothing": (clones, {"agreement": lambda self, good, i, j, same: agreement(good[i], good[j])}),
    "the limit of the confirmed": (turning, {"against": 0.1}),
    "less than a tenth downloads nothing": (turning, {"idle": lambda self, i: False}),
    "silence is not scored": (silence, {"unscored": lambda self, silent: []}),
    "silence is paid no longer than work was": (silence, {"at_rest": lambda self, i: False}),
    "rounds that compare nothing are no silence": (
        silence,
        {"rest": lambda self, silent, compared, rest=ReferenceRFFL.rest: rest(self, silent, True)},
    ),
}


@quiet
@pytest.mark.parametrize("rule", RULES)
def test_comparison_meets_every_rule(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """The comparisons above would be the same without a rule that no switch turns off."""
    cast, without = RULES[rule]
    for name, value in without.items():
        monkeypatch.setattr(ReferenceRFFL, name, value)
    with pytest.raises(AssertionError):
        run_both("guarded", {}, played(cast), alpha=0.7)


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
