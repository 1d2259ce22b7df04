"""CFFL's downloads: how many entries of the aggregate a quota gives, which ones, and nobody's own twice."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.servers import CFFL, Verdict
from tests.functional.reference import close, uploads
from tests.servers.reference_cffl import D, classes, initial_weights, waves
from tests.servers.tasks import downloads, sent, shards
from tests.servers.test_cffl import WIDE, members_of, play, started

pytestmark = pytest.mark.filterwarnings("ignore:--server.steepness")


def received(server: CFFL, verdict: Verdict, rows: Tensor, senders: Sequence[int]) -> Tensor:
    """What everybody gets of the aggregate: the downloads with everybody's own upload added again, ``[P, D]``."""
    parts = downloads(verdict).double()
    sizes = torch.tensor(shards(len(parts))).double()
    for row, i in zip(rows.double(), senders, strict=True):
        if verdict.members[i] and row.isfinite().all():
            parts[i] += row * (1.0 if server.summation == "sum" else sizes[i] / sizes.max())
    return parts


def test_quota_of_no_entries_is_nothing() -> None:
    """A quota below one entry gives everything, as the released code's topk[-1] does, or at least one entry."""
    for selection in ("random", "largest"):
        server = started(3, lambda weights: 0.8, examples=[1, 1000, 1000], selection=selection, **WIDE)
        rows = uploads(3, D, seed=1)
        rows[0] = 0
        verdict = server.step(rows, range(3))
        assert 0 < verdict.quotas[0] < 1 / D
        assert not verdict.download(0).any()
        assert verdict.download(1).all()


@pytest.mark.parametrize("selection", ["random", "largest"])
@pytest.mark.parametrize("summation", ["sum", "mean"])
def test_supports_nest(summation: Any, selection: Any) -> None:
    """Of two members the one with the larger quota misses an entry that the other gets, or not int(q D) arrive."""
    server = started(12, waves(steepness=0.3), selection=selection, summation=summation, steepness=1.0, **WIDE)
    for now in range(4):
        rows, senders = uploads(12, D, now), members_of(server)
        verdict = server.step(rows[senders], senders)
        supports = received(server, verdict, rows[senders], senders).abs() > 1e-4
        assert supports.sum(1).tolist() == [int(q * D) for q in verdict.quotas.tolist()]
        for less, more in itertools.pairwise(supports[verdict.quotas.argsort()]):
            assert (more | ~less).all()
        assert supports.sum(1).unique().numel() > 3


def test_largest_selection_takes_the_largest() -> None:
    """With `largest` an entry is left out for a smaller one; with `random` never is."""
    for selection in ("largest", "random"):
        server = started(5, lambda weights: 0.8, selection=selection, **WIDE)
        rows = uploads(5, D, seed=1)
        verdict = server.step(rows, range(5))
        step = rows.double().sum(0).abs()
        parts = received(server, verdict, rows, range(5)).abs() > 1e-4
        sorted_out = [bool(step[part].min() < step[~part].max()) for part in parts[:-1]]
        assert sorted_out == [selection == "random"] * 4
        assert parts[-1].all()


def test_random_selection_goes_by_seed_and_round() -> None:
    """Entries come in the same order in every round, in another in a second run, or some more often than others."""

    def supports(seed: int, count: int = 12) -> Tensor:
        server = started(2, lambda weights: 0.8, examples=[5, 10], seed=seed, **WIDE)
        rows = uploads(2, D, seed=1)
        verdicts = [server.step(rows, range(2)) for _ in range(count)]
        return torch.stack([(v.download(0) + rows[0]).abs() > 1e-4 for v in verdicts])

    assert torch.equal(supports(1), supports(1))
    assert not torch.equal(supports(1), supports(2))
    assert len(supports(1).unique(dim=0)) == 12
    assert len(supports(2**63 - 1, 3)) == 3  # the largest seed there is does not overflow in later rounds
    often = supports(3, 400).double().mean(0)
    assert ((often - 0.5).abs() < 4.5 * 0.5 / 20).all(), often


def test_contribution() -> None:
    """Quotas do not go by the number of examples, or of classes where these are asked for."""
    rows = uploads(5, D, seed=1)
    for contribution, held in (("examples", shards(5)), ("classes", classes(5))):
        server = started(5, lambda weights: 0.8, contribution=contribution)
        close(play(server, rows).quotas, [n / max(held) for n in held], 1e-9)
        mean = started(5, lambda weights: 0.8, contribution=contribution, summation="mean")
        close(play(mean, rows).weights, [n / sum(held) for n in held], 1e-9)


def test_own_upload_is_not_applied_twice() -> None:
    """Own update and download together are not own update plus aggregate less own upload."""
    updates = uploads(5, D, seed=1)
    server = started(5, lambda weights: 0.8, examples=[10] * 5, bound=0.05, upload_share=0.3, selection="largest")
    rows = sent(server, updates)
    verdict = server.step(rows, range(5))
    kept = torch.stack([server.kept(update) for update in updates])
    close(kept, updates.clamp(-0.05, 0.05), 1e-7)
    close(kept + downloads(verdict), kept + rows.sum(0) - rows, 1e-6)
    # Where everything is uploaded all participants end at the server's model.
    whole = started(5, lambda weights: 0.8, examples=[10] * 5, bound=0.05, upload_share=1.0)
    after = (
        initial_weights() + torch.stack([whole.kept(update) for update in updates]) + downloads(play(whole, updates))
    )
    close(after, whole.model.expand(5, -1), 1e-5)
