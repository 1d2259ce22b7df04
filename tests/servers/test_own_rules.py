"""Rules that somebody writes who forgets something: each ends in one sentence, and nobody's model is touched by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.servers import NNM, Consensus, Evidence, FedAvg, FedOpt, Server, Verdict
from tests.bad_input.refusal import FIT, assert_refused
from tests.cli.folders import Run
from tests.conftest import only_run
from tests.functional.reference import uploads
from tests.ranks import forked
from tests.runs import kept_in
from tests.servers.tasks import shards, task
from tests.servers.test_consensus import one_round, started, step_of

HERE = __name__
P, D = 4, 30


class Answering(FedAvg):
    """Answers as FedAvg does, but for what is changed of it."""

    def __init__(self, change: Callable[[Verdict], Verdict]) -> None:
        super().__init__()
        self.change = change

    def rule(self, evidence: Evidence) -> Verdict:
        return self.change(super().rule(evidence))


def downloading(step: Any) -> Callable[[Verdict], Verdict]:
    return lambda verdict: replace(verdict, download=lambda participant: step)


VERDICTS: dict[str, tuple[Callable[[Verdict], Verdict], str]] = {
    "a weight too few": (
        lambda v: replace(v, weights=v.weights[1:]),
        "weights of --server Answering to be a tensor with an entry for each of 4 participants, but got shape [3].",
    ),
    "similarities of nobody": (
        lambda v: replace(v, similarities=None),  # type: ignore[arg-type]
        "similarities of --server Answering to be a tensor with an entry for each of 4 participants, but got NoneType.",
    ),
    "members by number": (
        lambda v: replace(v, members=torch.tensor([0, 1, 2, 3])),
        "members of --server Answering to be True or False for every participant, but got torch.int64.",
    ),
    "weights that are no numbers": (
        lambda v: replace(v, weights=v.weights / 0),
        "weights of --server Answering to be finite, but round 1 has NaN or infinity there; mend its rule and go on",
    ),
    "a measure of all": (
        lambda v: replace(v, measures={"spread": 3.0}),  # type: ignore[dict-item]
        "spread of --server Answering to be a tensor with an entry for each of 4 participants, but got float.",
    ),
    "a quota by rounding": (
        lambda v: replace(v, quotas=v.quotas + 3e-16),
        "between 0 and 1, but got 1.0000000000000002 in round 1; clamp(0, 1) what only rounding takes beyond.",
    ),
    "no download": (downloading(None), "a download of --server Answering to be a tensor with an entry for each of 30"),
    "half a download": (downloading(torch.ones(15)), "an entry for each of 30 coordinates, but got shape [15]."),
    "a finer download": (downloading(torch.ones(30).double()), "to be of the uploads' torch.float32, but got torch.fl"),
    "a download of nothing": (downloading(torch.ones(30) / 0), "a download of --server Answering to be finite, but"),
}


@pytest.mark.parametrize("mistake", VERDICTS)
def test_a_verdict_that_is_none(mistake: str) -> None:
    """It shows later as a traceback of ours, as somebody's fault, or not at all."""
    change, expected = VERDICTS[mistake]
    with pytest.raises(UserError) as refusal:
        one_round(Answering(change), uploads(P, D, 1)).download(2)
    assert expected in str(refusal.value)


class Deciding(Consensus):
    """Weighs, combines, steps and measures as it is told."""

    def __init__(self, **told: Any) -> None:
        super().__init__()
        self.told = told

    def weigh(self, evidence: Evidence) -> Tensor:
        return self.told.get("weigh", super().weigh)(evidence)  # type: ignore[no-any-return]

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return self.told.get("combine", super().combine)(block, weights)  # type: ignore[no-any-return]

    def stride(self, combined: Tensor) -> Tensor:
        return self.told.get("stride", super().stride)(combined)  # type: ignore[no-any-return]

    def measures(self, evidence: Evidence, weights: Tensor) -> dict[str, Tensor]:
        return self.told.get("measures", super().measures)(evidence, weights)  # type: ignore[no-any-return]


DECISIONS: dict[str, tuple[dict[str, Any], str]] = {
    "weights of all in one": (
        {"weigh": lambda evidence: torch.ones(())},
        "weights of --server Deciding to be a tensor with an entry for each of 4 uploads, but got shape [].",
    ),
    "weights by zero": ({"weigh": lambda evidence: evidence.examples / 0}, "weights of --server Deciding to be finite"),
    "a mean of means": (
        {"combine": lambda block, weights: block.mean()},
        "combine of --server Deciding to give shape [30] of a block [4, 30], but got shape [].",
    ),
    "nothing combined": (
        {"combine": lambda block, weights: None},
        "combine of --server Deciding to give shape [30] of a block [4, 30], but got NoneType.",
    ),
    "a finer step": (
        {"stride": lambda combined: combined.double()},
        "the step of --server Deciding to be of the uploads' torch.float32, but got torch.float64.",
    ),
    "a step by zero": ({"stride": lambda combined: combined / 0}, "the step of --server Deciding to be finite, but ro"),
    "a step too short": (
        {"stride": lambda combined: combined[1:]},
        "the step of --server Deciding to be a tensor with an entry for each of 30 coordinates, but got shape [29].",
    ),
    "one measure of all": (
        {"measures": lambda evidence, weights: {"longest": evidence.squared_norms.max()}},
        "longest of --server Deciding to be a tensor with an entry for each of 4 uploads, but got shape [].",
    ),
}


@pytest.mark.parametrize("mistake", DECISIONS)
def test_a_decision_that_is_none(mistake: str) -> None:
    """Likewise; and the model that a server keeps stays as it was."""
    told, expected = DECISIONS[mistake]
    server = Deciding(**told)
    server.start(task(shards(P), [D], participation=0.5))
    assert server.model is not None
    before = server.model.clone()
    with pytest.raises(UserError) as refusal:
        server.step(uploads(P, D, 1), range(P))
    assert expected in str(refusal.value)
    if mistake != "one measure of all":
        assert torch.equal(server.model, before)


def test_a_server_that_combines_to_one_number() -> None:
    """It spreads over all coordinates of a block."""

    class Own(FedAvg):
        def rule(self, evidence: Evidence) -> Verdict:
            return downloading(evidence.combined(lambda block, _: block.sum(), evidence.examples))(
                super().rule(evidence)
            )

    with pytest.raises(
        UserError, match=r"what evidence\.combined is given to make shape \[30\] of a block \[4, 30\], but"
    ):
        one_round(Own(), uploads(P, D, 1))


def test_members_that_are_changed_in_place() -> None:
    """A removal is announced, and for ever, however it is written down."""

    def without(verdict: Verdict) -> Verdict:
        verdict.members[2] = False  # which is the server's own
        return verdict

    server = Answering(without)
    verdict = one_round(server, uploads(P, D, 1))
    assert verdict.removed == (2,)
    assert verdict.members.tolist() == server.members.tolist() == [True, True, False, True]
    server.change = lambda verdict: replace(verdict, members=torch.ones(P, dtype=torch.bool))
    again = server.step(uploads(3, D, 2), [0, 1, 3])
    assert again.removed == ()
    assert again.members.tolist() == [True, True, False, True]


class Warm(Consensus):
    """Steps less from round to round."""

    def stride(self, combined: Tensor) -> Tensor:
        return combined / (1 + self.round)


class Signed(Consensus):
    """Has participants send signs alone, which travel as bytes of their own."""

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        return update.sign()

    def pack(self, upload: Tensor) -> Tensor:
        return upload.to(torch.int8).view(torch.uint8)

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        return payload.view(torch.int8).float()


class Hearing(FedAvg):
    """Goes by losses."""

    hears_losses = True


def test_a_rule_behind_mixing_knows_its_round() -> None:
    """Its schedule stands still, which nobody says."""
    alone, behind = started(Warm(), shards(P), D), started(NNM(rule=Warm(), tolerated=0), shards(P), D)
    for now in range(3):
        rows = uploads(P, D, now)
        one, other = (step_of(server.step(rows, range(P))) for server in (alone, behind))
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_what_participants_send_behind_mixing() -> None:
    """A rule's mask or noise is left out without a word."""
    server, update = NNM(rule=Signed(), tolerated=0), uploads(1, D, 1)[0]
    sent = server.outgoing(update, {}, torch.zeros(D))
    assert torch.equal(sent, update.sign())
    payload = server.pack(sent)
    assert payload.numel() == D
    assert torch.equal(server.unpack(payload, D), sent)


@pytest.mark.parametrize("around", [NNM, FedOpt])
@pytest.mark.parametrize("mistake", DECISIONS)
def test_a_decision_within(mistake: str, around: Callable[..., Consensus]) -> None:
    """It ends in a traceback of ours, or the rule around it is blamed."""
    told, expected = DECISIONS[mistake]
    with pytest.raises(UserError) as refusal:
        one_round(around(rule=Deciding(**told)), uploads(P, D, 1))
    assert expected.replace("--server Deciding", "--server.rule Deciding") in str(refusal.value)


def test_a_rule_that_hears_losses_behind_mixing() -> None:
    """It hears none."""
    with pytest.raises(UserError, match=r"Expected --server\.rule to be one of .* but got Hearing, for which uploads"):
        started(NNM(rule=Hearing()), shards(P), D)


class Averaging(FedAvg):
    """Keeps a number, of which NumPy makes one of its own in the second round."""

    def __init__(self) -> None:
        super().__init__()
        self.typical: Any = 0.0

    def weigh(self, evidence: Evidence) -> Tensor:
        if evidence.round == 1:
            self.typical = {"lengths": [np.mean(evidence.squared_norms.numpy())]}
        return super().weigh(evidence)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"typical": self.typical}


SENTENCE = (
    "Expected state_dict of --server Averaging to hold tensors and Python's own numbers and texts, which a checkpoint "
    "keeps, but typical has numpy.float64; give float(...) or torch.as_tensor(...)."
)


@pytest.mark.slow
def test_state_that_no_checkpoint_gives_back(rffl: Run, tmp_path: Path) -> None:
    """Checkpoints are written that nobody can read, and called damaged; the one before stays, on both ranks."""
    run = (*FIT, "--server", f"{HERE}.Averaging", "--trainer.max_epochs", 3)
    assert_refused(rffl(*run, "--run.root", tmp_path / "one"), SENTENCE)
    assert kept_in(only_run(tmp_path / "one") / "checkpoints" / "last.ckpt")["federation"]["round"] == 1
    ended = forked(2, *run, root=tmp_path / "two", grace=2)
    assert ended.code != 0  # that of the other rank, which is ended
    assert " ".join(ended.err.split()).count(SENTENCE) == 1


def test_what_a_checkpoint_keeps() -> None:
    """All of it is let pass."""
    server: Server = Averaging()
    server.start(task(shards(P), [D]))
    server.typical = {"a": [1, 2.5, "x", None, True, (torch.ones(2),)], 3: {}}  # type: ignore[attr-defined]
    assert server.whole_state()["typical"] == server.typical  # type: ignore[attr-defined]


def test_downloads_in_one_tensor() -> None:
    """Everybody gets what the last one was to get."""

    class Own(FedAvg):
        def rule(self, evidence: Evidence) -> Verdict:
            room = torch.empty(40)
            return replace(super().rule(evidence), download=lambda i: room.fill_(i))

    server = Own()
    server.start(task(shards(2), [40]))
    verdict = server.step(uploads(2, 40, 0), range(2))
    verdict.download(0)
    with pytest.raises(
        UserError, match=r"but participant 1's is the previous participant's tensor, .* return a clone\(\)\."
    ):
        verdict.download(1)


def test_every_download_is_looked_at() -> None:
    """The first is sound, and NaN reaches the second participant."""

    class Own(FedAvg):
        def rule(self, evidence: Evidence) -> Verdict:
            return replace(super().rule(evidence), download=lambda i: torch.full((40,), torch.nan if i else 0.0))

    server = Own()
    server.start(task(shards(2), [40]))
    verdict = server.step(uploads(2, 40, 0), range(2))
    verdict.download(0)
    with pytest.raises(UserError, match="finite"):
        verdict.download(1)
