"""Uploads that tell nothing, and what users are told: reasons of removals, and diagnostics of a rule's own."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.functional.rounding import MULTIPLE, rounding_level
from rffl_pl.servers import CFFL, RFFL, Consensus, Evidence, FedAvg, Median, Verdict
from tests.functional.reference import close, uploads
from tests.servers.tasks import shards, task

ENTRIES = 53
presets = pytest.mark.parametrize("preset", ["released", "paper", "altruism", "guarded"])


def started(server: Any, participants: int = 5, **others: Any) -> Any:
    """A server before its first round."""
    server.start(task(shards(participants), [ENTRIES], **others))
    return server


def test_an_update_at_the_level_of_rounding_is_sent_as_zeros() -> None:
    """Noise is sent as if it told something, or an update above the level is touched."""
    model, direction = torch.ones(ENTRIES), uploads(1, ENTRIES, 1)[0]
    level = MULTIPLE * float(rounding_level(model))
    unit = direction / direction.norm()
    server = started(RFFL())
    assert not server.outgoing(0.9 * level * unit, {}, model).any()
    assert torch.equal(server.outgoing(1.1 * level * unit, {}, model), 1.1 * level * unit)
    assert server.kept(0.9 * level * unit).any()


@pytest.mark.filterwarnings("ignore:Round .*no positive sum")  # of five in 53 dimensions, who leave themselves out
@presets
def test_who_tells_nothing_keeps_its_reputation(preset: Any) -> None:
    """Silence costs or earns reputation, is scored, is removed for, or is not named."""
    server = started(RFFL(preset=preset, alpha=0.5))
    for now in range(4):
        verdict = server.step(uploads(5, ENTRIES, now)[server.members], server.members.nonzero().flatten().tolist())
    here = server.members.nonzero().flatten().tolist()
    quiet = [here[0], here[-1]]
    for now in range(4, 30):
        before = verdict
        rows = uploads(5, ENTRIES, now)
        rows[quiet] = 0
        here = server.members.nonzero().flatten().tolist()
        verdict = server.step(rows[here], here)
        assert verdict.silent == tuple(quiet)
        assert torch.equal(verdict.reputations[quiet], before.reputations[quiet])
        assert verdict.similarities[quiet].isnan().all()
        assert verdict.members[quiet].all()
        assert verdict.reputations.sum().item() == pytest.approx(1)


def test_who_never_told_anything_is_scored() -> None:
    """A free-rider that sends zeros from the start keeps what it was given."""
    server = started(RFFL(alpha=0.5))
    for now in range(13):
        rows = 1 + uploads(5, ENTRIES, now)
        rows[2] = 0
        here = server.members.nonzero().flatten().tolist()
        verdict = server.step(rows[here], here)
        assert verdict.silent == ((2,) if 2 in here else ())
        if 2 in here:
            assert verdict.similarities[2] == 0
    assert not verdict.members[2]


@presets
def test_a_round_that_tells_nothing_changes_nothing(preset: Any) -> None:
    """With nobody telling anything somebody moves, is removed, or the user is told never or every time."""
    server = started(RFFL(preset=preset, alpha=0.5, removal_from=0))
    here = server.step(uploads(5, ENTRIES, 1), range(5)).members.nonzero().flatten().tolist()
    before = server.reputations
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            verdict = server.step(torch.zeros(len(here), ENTRIES), here)
            assert torch.equal(verdict.reputations, before)
            assert verdict.members.nonzero().flatten().tolist() == here
            assert verdict.silent == tuple(here)
            assert not any(verdict.download(i).any() for i in range(5))
    few = "one upload at most" if preset == "guarded" else "nobody's upload"
    assert [f"{few} tells anything" in str(warning.message) for warning in caught] == [True]


def removal(noise: Tensor) -> Verdict:
    """The round in which participant 0, which weighs least, is removed."""
    server = RFFL(removal_from=1, alpha=0.0)
    server.start(task([1, 25, 30, 44], [noise.shape[1]]))
    server.step(noise, range(4))
    return server.step(noise, range(4))


@pytest.mark.parametrize("seed", range(3))
def test_a_removal_among_orthogonal_uploads_is_explained(seed: int) -> None:
    """Where similarity is one's own weight alone, the user does not read why and what to do; elsewhere he does."""
    noise = torch.randn(4, 2000, generator=torch.Generator().manual_seed(seed))
    verdict = removal(noise)
    assert verdict.removed == (0,)
    assert list(verdict.reasons) == [0]
    assert "its reputation" in verdict.reasons[0]
    assert "below the threshold 0.0833" in verdict.reasons[0]
    assert "almost orthogonal" in verdict.reasons[0]
    assert "--server.removal_from never" in verdict.reasons[0]
    alike = noise + 1
    alike[0] *= -1
    (reason,) = removal(alike).reasons.values()
    assert "below the threshold" in reason
    assert "orthogonal" not in reason


def test_a_takeover_is_named() -> None:
    """Where one upload is the aggregate, the user is not told who takes over and what keeps everybody from it."""
    noise = torch.randn(4, 2000, generator=torch.Generator().manual_seed(0))
    noise *= 0.01 * torch.tensor([[0.02], [0.1], [0.1], [1.0]])  # the honest have converged
    reason = removal(noise).reasons[0]
    assert "almost participant 3's upload alone" in reason
    assert "--server.preset guarded" in reason
    assert "word embeddings" not in reason


@pytest.mark.filterwarnings("ignore:--server.steepness")
@pytest.mark.parametrize(
    ("compounding", "hint"), [("released", "--server.compounding none"), ("none", "removal_share 0")]
)
def test_a_removal_by_cffl_is_explained_with_its_own_options(compounding: Any, hint: str) -> None:
    """CFFL's user reads of an option that CFFL does not have, or of none, or not at all."""

    def accuracy(weights: Tensor) -> float:
        return 0.9 if weights[0] == 0 else 0.0

    rows = 0.01 * torch.eye(3, ENTRIES)
    server = started(CFFL(compounding=compounding), 3, accuracy=accuracy)
    verdict = server.step(rows, range(3))
    assert verdict.removed == (0,)
    assert hint in verdict.reasons[0]
    assert "validation accuracy with its upload 0.000" in verdict.reasons[0]
    assert "removal_from" not in verdict.reasons[0]


class WithoutExtremes(Consensus):
    """A user's rule: without the highest and the lowest of every entry."""

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return block.sort(0).values[1 : len(block) - 1].mean(0)

    def measures(self, evidence: Evidence, weights: Tensor) -> dict[str, Tensor]:
        return {"length": evidence.squared_norms.sqrt()}


def test_a_rule_of_ones_own() -> None:
    """A rule of one method is not applied to every coordinate, or its diagnostic gets lost or mixed up."""
    rows = uploads(7, ENTRIES, 1)
    rows[2, 3] = torch.nan
    senders = [0, 1, 2, 3, 4, 6]
    verdict = started(WithoutExtremes(), 7).step(rows[senders], senders)
    good = [0, 1, 3, 4, 6]
    close(verdict.download(5), rows[good].sort(0).values[1:-1].double().mean(0))
    lengths = verdict.measures["length"]
    close(lengths[good], rows[good].double().norm(dim=1), 1e-9)
    assert lengths[[2, 5]].isnan().all()
    assert verdict.set_aside == (2,)


def test_an_upload_without_weight_is_not_combined() -> None:
    """A rule that weighs somebody 0 still combines its upload."""

    class Favourites(Median):
        def weigh(self, evidence: Evidence) -> Tensor:
            return (evidence.senders < 3).double()

    rows = uploads(5, ENTRIES, 1)
    close(started(Favourites()).step(rows, range(5)).download(0), rows[:3].median(0).values)


def test_evidence_of_a_round() -> None:
    """A statistic that a decision may ask for is another one, or of other uploads than the sound."""
    found: list[Evidence] = []

    class Watched(FedAvg):
        def weigh(self, evidence: Evidence) -> Tensor:
            found.append(evidence)
            return super().weigh(evidence)

    rows = uploads(5, ENTRIES, 1)
    rows[1] = torch.inf
    started(Watched()).step(rows[:4], range(4))
    (evidence,), good = found, rows[[0, 2, 3]].double()
    assert evidence.senders.tolist() == [0, 2, 3]
    assert evidence.asked.tolist() == [0, 1, 2, 3]
    assert evidence.examples.tolist() == [shards(5)[i] for i in (0, 2, 3)]
    close(evidence.squared_norms, good.square().sum(1), 1e-12)
    close(evidence.gram, good @ good.T, 1e-9)
    distances = torch.cdist(good, good).square().fill_diagonal_(torch.inf)
    close(evidence.squared_distances, distances, 1e-6)
    assert evidence.gram is evidence.gram
