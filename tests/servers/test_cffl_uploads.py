"""CFFL's uploads on their way and unfit ones, what an interruption or a second run leaves of a server."""

from typing import Any

import pytest
import torch

from rffl_pl.servers import CFFL
from tests.functional.reference import close, uploads
from tests.servers.reference_cffl import LAYERS, D, initial_weights, waves
from tests.servers.tasks import assert_equal, downloads, every_kind, finite_fraction, shards, spoil, task, through_file
from tests.servers.test_cffl import VARIANTS, members_of, play, started

pytestmark = pytest.mark.filterwarnings("ignore:--server.steepness")


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("bound", [1e-3, 0.05, 1e9])
def test_uploads_travel_without_loss(bound: float, share: float) -> None:
    """Of the entries, many of them equal at the bound, more or fewer than announced are sent, or others arrive."""
    server = started(6, upload_share=share, bound=bound)
    updates = uploads(6, D, seed=1)
    updates[2] = 0
    updates[3, 5:] = 0
    outgoing = torch.stack([server.outgoing(update, {}, torch.zeros(D)) for update in updates])
    count = max(1, int(share * D))
    assert (outgoing[[0, 1, 4, 5]].count_nonzero(1) == count).all()
    for row in outgoing:
        payload = server.pack(row)
        assert payload.dtype == torch.uint8
        assert payload.shape == (8 * count,)
        assert torch.equal(server.unpack(payload, len(row)), row)
    assert outgoing.abs().max() <= torch.tensor(bound)
    assert torch.equal(updates[0], uploads(6, D, seed=1)[0])


@every_kind
@pytest.mark.parametrize("bad", [[2], [0, 6], [0, 1, 2, 4, 6], [*range(1, 7)]], ids=str)
@pytest.mark.parametrize("settings", [{}, {"compounding": "none", "summation": "mean"}], ids=str)
def test_bad_uploads_do_not_count(settings: dict[str, Any], bad: list[int], kind: str) -> None:
    """A bad upload gets into the step, is not named, is scored, or makes another round than if it had not been sent."""
    for earlier in (0, 3):
        spoiled, absent = (started(7, steepness=0.5, removal_share=0.1, **settings) for _ in range(2))
        for now in range(earlier):
            rows = uploads(7, D, now)
            before = spoiled.step(rows, range(7)), absent.step(rows, range(7))
        rows, good = uploads(7, D, seed=8), [i for i in range(7) if i not in bad]
        verdict = spoiled.step(spoil(rows, bad, kind), range(7))
        assert verdict.set_aside == tuple(bad)
        assert finite_fraction(verdict) == 1
        assert (verdict.weights[bad] == 0).all()
        assert_equal(verdict, absent.step(rows[good], good))
        assert torch.equal(spoiled.model, absent.model)
        if earlier and len(bad) == 1:
            assert (verdict.reputations[bad] < before[0].reputations[bad]).all()


@every_kind
@pytest.mark.parametrize("compounding", ["released", "none"])
def test_nothing_but_bad_uploads(compounding: Any, kind: str) -> None:
    """With every upload bad somebody downloads something, is removed, or loses reputation."""
    for earlier in (0, 3):
        server = started(5, compounding=compounding, removal_share=1.0 if earlier == 0 else 0.1, steepness=0.5)
        reputations = torch.zeros(5)
        for now in range(earlier):
            reputations = play(server, uploads(5, D, now)).reputations
        model, senders = server.model, members_of(server)
        verdict = server.step(spoil(uploads(5, D, seed=9), range(5), kind)[senders], senders)
        assert verdict.set_aside == tuple(senders)
        assert torch.equal(downloads(verdict), torch.zeros(5, D))
        assert verdict.removed == ()
        assert finite_fraction(verdict) == 1
        close(verdict.reputations, reputations, 1e-12)
        assert torch.equal(server.model, model)


@every_kind
@pytest.mark.parametrize("share", [0.001, 0.1, 1.0])
def test_bad_updates_on_the_way(share: float, kind: str) -> None:
    """On the way from update to upload a NaN gets lost and the rest counts, or a clamped long update does not."""
    server = started(5, upload_share=share, steepness=0.5, removal_share=0.0)
    for now in range(4):
        verdict = play(server, spoil(uploads(5, D, now), [1, 3], kind))
        assert verdict.set_aside == (() if kind == "1e38" else (1, 3))
        assert finite_fraction(verdict) == 1
    assert server.model.isfinite().all()


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_resumes_to_the_same_bits(settings: dict[str, Any]) -> None:
    """A run that was interrupted after any round goes on otherwise than one that was not, or a saved state moves on."""
    rounds = [uploads(7, D, now) for now in range(8)]
    whole = started(7, waves(1), **settings)
    saved, verdicts = [whole.state_dict()], []
    for updates in rounds:
        verdicts.append(play(whole, updates))
        saved.append(whole.state_dict())
    for done in (0, 1, 3, 6):
        resumed = started(7, waves(1), **settings)
        resumed.load_state_dict(through_file(saved[done]))
        for updates, verdict in zip(rounds[done:], verdicts[done:], strict=True):
            assert_equal(play(resumed, updates), verdict)
        assert torch.equal(resumed.model, whole.model)


def test_starts_afresh() -> None:
    """A second run of the same server goes on with the first one's reputations, members, model or rounds."""
    server, runs = CFFL(removal_share=0.8), []
    for _ in range(2):
        server.start(task(shards(7), LAYERS, initial=initial_weights(), accuracy=waves(steepness=100.0)))
        runs.append([play(server, uploads(7, D, now)) for now in range(5)])
    assert any(verdict.removed for verdict in runs[0])
    for one, other in zip(*runs, strict=True):
        assert_equal(one, other)


def test_initial_weights_are_not_changed() -> None:
    """The server's model is the task's own tensor, which others use."""
    initial = initial_weights()
    server = CFFL()
    server.start(task(shards(5), LAYERS, initial=initial, accuracy=waves()))
    play(server, uploads(5, D, seed=1))
    assert torch.equal(initial, initial_weights())


@pytest.mark.filterwarnings("ignore:--server.steepness")
def test_entries_beyond_the_bound_do_not_arrive() -> None:
    """Whoever does not clamp its own upload passes the server."""
    server = CFFL(bound=0.01, upload_share=0.5)
    server.start(task(shards(4), [40], accuracy=lambda weights: 1.0))
    assert server.unpack(server.pack(torch.linspace(-5, 5, 40)), 40).abs().max() <= 0.0101
