"""RFFL: rounds by hand, and what no round may ever break."""

import itertools
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.servers import RFFL
from tests.servers.switches import LAYERS, assert_finite, local_updates, presets, started, step
from tests.servers.tasks import (
    assert_refused,
    downloads,
    every_kind,
    finite_fraction,
    shards,
    spoil,
    task,
)

NAN, INF = float("nan"), float("inf")


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
