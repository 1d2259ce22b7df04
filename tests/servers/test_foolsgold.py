"""FoolsGold against float64 histories: who weighs how much, what is remembered of whom, and a refusal."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from rffl_pl.servers import FoolsGold
from tests.functional.reference import FOOLSGOLD_ROWS, ReferenceHistory, close, reference_foolsgold, uploads
from tests.servers.tasks import assert_refused, every_kind, shards, spoil
from tests.servers.test_consensus import one_round, rounds, started, step_of

NAN = float("nan")


@pytest.mark.parametrize("scale", ["mean", "sum"])
@pytest.mark.parametrize("kappa", [1.0, 0.3])
@pytest.mark.parametrize(("participants", "entries"), [(3, 7), (5, 53), (8, 7), (12, 53)])
def test_foolsgold(participants: int, entries: int, kappa: float, scale: Any) -> None:
    """Weights or step of some round differ, with histories by identity and somebody else missing in every round."""
    for seed in range(3):
        server = started(FoolsGold(confidence=kappa, scale=scale), shards(participants), entries)
        memory = ReferenceHistory()
        for rows, senders in rounds(participants, entries, 5, seed):
            a = reference_foolsgold([memory.add(i, rows[i].tolist()).tolist() for i in senders], kappa)[2]
            a = a / a.sum() if scale == "mean" else a
            verdict = server.step(rows[senders], senders)
            close(verdict.weights[senders], a)
            assert verdict.weights.count_nonzero() == np.count_nonzero(a)
            close(step_of(verdict), a @ rows[senders].double().numpy())


def test_foolsgold_golden() -> None:
    """The worked example through a server: the two Sybils weigh something."""
    rows = torch.tensor(FOOLSGOLD_ROWS)
    verdict = one_round(FoolsGold(), rows)
    assert verdict.weights.tolist() == [0.5, 0.5, 0, 0]
    close(step_of(verdict), [0.5, 0.5, 0], 1e-6)
    assert one_round(FoolsGold(scale="sum"), rows).weights.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("scale", ["mean", "sum"])
@pytest.mark.parametrize("lengths", ["equal", "different"])
def test_foolsgold_of_one_direction(lengths: str, scale: Any) -> None:
    """Uploads that all point the same way do not weigh the same, are NaN, or are not warned of exactly once."""
    for m in range(3, 13):
        lengthened = torch.ones(m, 1) if lengths == "equal" else torch.linspace(0.3, 3, m)[:, None]
        server = started(FoolsGold(scale=scale), shards(m), 53)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            verdicts = [server.step(uploads(1, 53, seed=m) * lengthened, list(range(m))) for _ in range(3)]
        for verdict in verdicts:
            close(verdict.weights, [1.0 if scale == "sum" else 1 / m] * m, 1e-12)
            assert step_of(verdict).isfinite().all()
        assert len(caught) == 1, f"{m} participants"
        assert "Round 1: FoolsGold" in str(caught[0].message)


def test_foolsgold_remembers() -> None:
    """Twins of the first rounds weigh something as soon as they part, or histories follow the rows, not identities."""
    server = started(FoolsGold(), shards(4), 6)
    base = torch.eye(6)[:4]
    twins = torch.stack([base[0], base[1], base[2], base[2]])
    for _ in range(5):
        server.step(twins, [0, 1, 2, 3])
    assert server.step(base, [0, 1, 2, 3]).weights.tolist() == [0.5, 0.5, 0, 0]
    assert server.step(base[1:], [1, 2, 3]).weights.tolist() == [0, 1, 0, 0]


@every_kind
def test_foolsgold_forgets_bad_uploads(kind: str) -> None:
    """A bad upload stays in the history, or takes the sender's or others' past with it."""
    spoiled, absent = (started(FoolsGold(), shards(6), 53) for _ in range(2))
    everybody, good = list(range(6)), [0, 1, 3, 4]
    for now in range(6):
        rows = uploads(6, 53, seed=now)
        if now in (0, 3):
            last = spoiled.step(spoil(rows, [2, 5], kind), everybody), absent.step(rows[good], good)
        else:
            last = spoiled.step(rows, everybody), absent.step(rows, everybody)
        assert torch.equal(last[0].weights, last[1].weights)
        assert torch.equal(step_of(last[0]), step_of(last[1]))


@pytest.mark.parametrize("confidence", [0.0, -1.0, NAN])
def test_foolsgold_refuses(confidence: float) -> None:
    """A confidence that is not positive gets through to the first round, or the message does not name it."""
    assert_refused(lambda: FoolsGold(confidence=confidence), "--server.confidence", str(confidence))
