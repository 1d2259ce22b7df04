"""Rules that somebody writes who forgets something: each ends in one sentence, and nobody's model is touched by it."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from rffl_pl.adversaries import Adversary, OmniscientAdversary, Situation
from rffl_pl.errors import UserError
from rffl_pl.runs import RunFolder
from rffl_pl.servers import NNM, Consensus, Evidence, FedAvg, Server, Verdict
from rffl_pl.servers.coordinates import Coordinates
from tests.bad_input.refusal import FIT, assert_refused
from tests.cli.folders import Run, assert_same_bits
from tests.conftest import QUICK, only_run
from tests.functional.reference import uploads
from tests.ranks import forked
from tests.runs import federate, kept_in
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
        "what --server combines of a block [4, 30] to have shape [30], but got [].",
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


@pytest.mark.parametrize(
    "mistake", ["weights of all in one", "weights by zero", "a mean of means", "one measure of all"]
)
def test_a_decision_behind_mixing(mistake: str) -> None:
    """It ends in a traceback of ours, or the mixing is blamed."""
    told, expected = DECISIONS[mistake]
    with pytest.raises(UserError) as refusal:
        one_round(NNM(rule=Deciding(**told), tolerated=0), uploads(P, D, 1))
    assert expected in str(refusal.value)


def test_a_rule_that_hears_losses_behind_mixing() -> None:
    """It hears none."""
    with pytest.raises(UserError, match=r"Expected --server\.rule to be one of .* but got Hearing, for which uploads"):
        started(NNM(rule=Hearing()), shards(P), D)


class Sending(FedAvg):
    """Has participants send and remember what its option says."""

    def __init__(self, *, what: str = "") -> None:
        super().__init__()
        self.what = what

    def kept(self, update: Tensor) -> Tensor:
        return update.mul_(0.1) if self.what == "kept" else super().kept(update)

    def outgoing(self, update: Tensor, memory: dict[str, Any], model: Tensor) -> Tensor:
        if self.what == "number":
            memory["sent"] = 1
        if self.what in ("update", "model"):
            {"update": update, "model": model}[self.what].clamp_(-0.1, 0.1)
        kinds: dict[str, Any] = {"nothing": None, "half": update[: len(update) // 2]}
        return kinds.get(self.what, update)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("nothing", "outgoing of --server Sending to give shape [4810], but got NoneType."),
        ("half", "outgoing of --server Sending to give shape [4810], but got shape [2405]."),
        ("kept", "kept of --server Sending to leave updates as they are, but it changes them in place, and others are"),
        (
            "update",
            "outgoing of --server Sending to leave updates as they are, but it changes them in place, and others",
        ),
        (
            "model",
            "outgoing of --server Sending to leave updates as they are, but it changes them in place, and others",
        ),
        ("number", "Sending to remember tensors, which a checkpoint keeps, but its memory has sent of type int; give"),
    ],
)
def test_what_nobody_can_send(what: str, expected: str) -> None:
    """Whoever writes a rule looks for the mistake in our code."""
    with pytest.raises(UserError) as refusal:
        federate(Sending(what=what))
    assert expected in str(refusal.value)


class Travelling(FedAvg):
    """Packs, unpacks and hands out models as its option says."""

    hands_models = True

    def __init__(self, *, what: str = "") -> None:
        super().__init__()
        self.what = what

    def pack(self, upload: Tensor) -> Tensor:
        kinds: dict[str, Any] = {"floats": upload.clone(), "bytes": bytes(8), "rows": upload.view(torch.uint8)[None]}
        return kinds.get(self.what, super().pack(upload))  # type: ignore[no-any-return]

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        upload = super().unpack(payload, dimension)
        kinds: dict[str, Any] = {"ten": upload[:10], "one": torch.ones(1), "nothing": None}
        return kinds.get(self.what, upload)  # type: ignore[no-any-return]

    def model_for(self, participant: int) -> Tensor | None:
        zeros = torch.zeros(4810)
        kinds = {"short": zeros[:10], "a number": zeros[:1], "double": zeros.double(), "list": [0.0], "NaN": zeros / 0}
        return kinds.get(self.what)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("floats", "pack of --server Travelling to give bytes, a tensor [K] of uint8, but got torch.float32 of shape"),
        ("bytes", "pack of --server Travelling to give bytes, a tensor [K] of uint8, but got bytes; a tensor of"),
        ("rows", "a tensor [K] of uint8, but got torch.uint8 of shape [1, 19240]; a tensor"),
        ("ten", "unpack of --server Travelling to give shape [4810], but got shape [10]."),
        ("one", "unpack of --server Travelling to give shape [4810], but got shape [1]."),
        ("nothing", "unpack of --server Travelling to give shape [4810], but got NoneType."),
        ("short", "model_for of --server Travelling to give shape [4810], but got shape [10]."),
        ("a number", "model_for of --server Travelling to give shape [4810], but got shape [1]."),
        ("double", "model_for of --server Travelling to give float32, but got torch.float64; give model.float()."),
        ("list", "model_for of --server Travelling to give shape [4810], but got list."),
        ("NaN", "the model_for a participant of --server Travelling to be finite, but round 1 has NaN"),
    ],
)
def test_what_cannot_travel(what: str, expected: str) -> None:
    """It ends in a traceback of ours, spreads over all entries, or has its bytes counted wrongly."""
    with pytest.raises(UserError) as refusal:
        federate(Travelling(what=what))
    assert expected in str(refusal.value)


class Pair(NamedTuple):
    """Holds rows."""

    first: Tensor
    others: list[Tensor]


class Shelf:
    """Holds rows, and itself."""

    def __init__(self, rows: list[Tensor]) -> None:
        self.rows, self.me = rows, self


def rows_in(kept: Any) -> list[Tensor]:
    """All rows that something holds."""
    if isinstance(kept, Tensor | np.ndarray):
        return [torch.as_tensor(kept)]
    if isinstance(kept, Shelf):
        return kept.rows
    if isinstance(kept, Evidence):
        return [*kept.uploads]
    held = kept.values() if isinstance(kept, dict) else () if isinstance(kept, str) else kept
    return [row for one in held for row in rows_in(one)]


class Remembering(FedAvg):
    """Half of the step is what everybody sent in the round before, kept in copies or as it was given."""

    def __init__(self, *, kept: str) -> None:
        super().__init__()
        self.kept_in = kept
        self.last: dict[str, Any] = {}

    def weigh(self, evidence: Evidence) -> Tensor:
        rows, before = [*evidence.uploads], self.last.get("rows", [])
        kinds: dict[str, Any] = {
            "copies": [row.clone() for row in rows],
            "list": rows,
            "dict": dict(enumerate(rows)),
            "tuple": (*rows, "the last"),
            "named": Pair(rows[0], rows[1:]),
            "deque": deque(rows, maxlen=20),
            "defaultdict": defaultdict(list, enumerate(rows)),
            "set": {*rows},
            "arrays": [row.numpy() for row in rows],
            "object": Shelf(rows),
            "evidence": evidence,
        }
        self.last = {"rows": kinds[self.kept_in]}
        before = sorted(rows_in(before), key=lambda row: float(row.double().sum()))
        self.added = torch.stack(before).mean(0) / 2 if before else torch.zeros_like(rows[0])
        return super().weigh(evidence)

    def stride(self, combined: Tensor) -> Tensor:
        return super().stride(combined) + self.added

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"last": {**self.last}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.last = {**state["last"]}


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize(
    "kept", ["list", "dict", "tuple", "named", "deque", "defaultdict", "set", "arrays", "object", "evidence"]
)
def test_uploads_that_a_rule_keeps(kept: str, around: bool) -> None:
    """Those of who is hosted beside the server would be written over by the next round, and others' not."""
    ran = []
    for how in ("copies", kept):
        rule = Remembering(kept=how)
        ran.append(federate(NNM(rule=rule) if around else rule, rounds=4).cohort.weights)
    assert torch.equal(*ran)


class Lottery(FedAvg):
    """Draws wherever it is asked, as torch, NumPy and Python do it, and goes by its round where participants are."""

    hands_models = True

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        return update + 0.01 * 0.5**self.round * torch.randn_like(update)

    def kept(self, update: Tensor) -> Tensor:
        return super().kept(update) + 0.01 * torch.randn_like(update)

    def pack(self, upload: Tensor) -> Tensor:
        return super().pack(upload + 0.01 * torch.randn_like(upload))

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        upload = super().unpack(payload, dimension)
        return upload + 0.01 * torch.randn_like(upload)

    def weigh(self, evidence: Evidence) -> Tensor:
        return super().weigh(evidence) * (torch.rand(len(evidence.senders)) + np.random.rand() + random.random())

    def model_for(self, participant: int) -> Tensor | None:
        assert self.model is not None
        return self.model + 0.01 * torch.randn_like(self.model)

    def rule(self, evidence: Evidence) -> Verdict:
        verdict = super().rule(evidence)

        def download(participant: int) -> Tensor:
            return verdict.download(participant) * (1 + 0.1 * torch.rand(()))

        return replace(verdict, download=download)


class Noisy(Adversary):
    """Draws from torch's own stream, also for whether it trains, and for what its success is measured on."""

    def trains_in(self, round_index: int) -> bool:
        return bool(torch.rand(()) < 0.5)

    def measures(self, num_classes: int) -> dict[str, Metric]:
        return {"noisy": MulticlassAccuracy(num_classes)}

    def probe(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x + torch.randn_like(x), y

    def upload(self, situation: Situation) -> Tensor:
        return situation.update + 0.1 * torch.randn_like(situation.update)


class Knowing(OmniscientAdversary):
    """Likewise, and knows."""

    def collude(self, situation: Situation) -> Tensor:
        assert situation.honest is not None
        return situation.honest.mean(0) + 0.1 * torch.randn_like(situation.update)


@pytest.mark.slow
@pytest.mark.distributed
def test_what_ones_own_draws(rffl: Run, tmp_path: Path) -> None:
    """Neither ranks nor an interruption change it; and a rule knows its round wherever it is."""
    line = (
        "fit", "--config", "configs/digits.yaml", *QUICK, "--server", f"{HERE}.Lottery", "--federation.adversaries", 2,
        "--adversaries", f"[{HERE}.Noisy,{HERE}.Knowing]", "--federation.participation", 0.7,
    )  # fmt: skip
    assert rffl(*line, "--trainer.max_epochs", 4, "--run.root", tmp_path / "whole").code == 0
    begun = forked(3, *line, "--trainer.max_epochs", 2, root=tmp_path / "begun")
    assert begun.code == 0, begun.err
    last = only_run(tmp_path / "begun") / "checkpoints" / "last.ckpt"
    on = forked(2, *line, "--trainer.max_epochs", 4, "--ckpt_path", last, root=tmp_path / "on")
    assert on.code == 0, on.err
    whole, gone_on = only_run(tmp_path / "whole"), only_run(tmp_path / "on")
    assert_same_bits(whole, gone_on)
    found = [[entry.measures["noisy"] for entry in RunFolder(run).rounds()] for run in (whole, gone_on)]
    assert found[0] == found[1]
    assert found[0][2] != found[0][3]


class Drawing(FedAvg):
    """Draws from torch's stream or NumPy's where its option says."""

    def __init__(self, *, where: str) -> None:
        super().__init__()
        self.where = where

    def noise(self, where: str, size: int) -> Tensor:
        """What is drawn, if it is here."""
        if where != self.where.removeprefix("numpy "):
            return torch.zeros(size)
        return torch.from_numpy(np.random.randn(size)).float() if "numpy" in self.where else torch.randn(size)

    def weigh(self, evidence: Evidence) -> Tensor:
        return super().weigh(evidence) + 0.1 * self.noise("weigh", len(evidence.senders))

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return super().combine(block, weights) + self.noise("combine", block.shape[1])

    def stride(self, combined: Tensor) -> Tensor:
        return super().stride(combined) + self.noise("stride", len(combined))

    def rule(self, evidence: Evidence) -> Verdict:
        verdict = super().rule(evidence)
        step = verdict.download(0) + self.noise("rule", self.coordinates.size)
        return replace(verdict, download=lambda participant: step + self.noise("download", len(step)))

    def model_for(self, participant: int) -> Tensor | None:
        model = super().model_for(participant)
        return None if model is None else model + self.noise("model", len(model))


def part_of(where: str, size: int) -> Drawing:
    """A server of four participants that has so many of 30 coordinates."""
    server, coordinates = Drawing(where=where), Coordinates(D)
    coordinates.where = slice(0, size)
    server.start(task(shards(P), [D], coordinates=coordinates))
    return server


@pytest.mark.parametrize("where", ["weigh", "combine", "stride", "numpy stride", "rule"])
def test_what_is_drawn_by_coordinate_on_a_part(where: str) -> None:
    """All ranks add the same noise to their parts, and the model's is no noise any more."""
    part_of(where, D).step(uploads(P, D, 1), range(P))
    part = part_of(where, 12)
    if where == "weigh":
        part.step(uploads(P, D, 1)[:, :12], range(P))
    else:
        with pytest.raises(UserError, match=r"Drawing to combine uploads without drawing .*; give --exchange central"):
            part.step(uploads(P, D, 1)[:, :12], range(P))


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("where", ["weigh", "download", "model"])
def test_what_is_drawn_of_one_participant_on_a_part(rffl: Run, tmp_path: Path, where: str) -> None:
    """Likewise; what is drawn before has the bits of one server."""
    line = (
        "fit", "--config", "configs/digits.yaml", *QUICK, "--server", f"{HERE}.Drawing", "--server.where", where,
        "--trainer.max_epochs", 4, "--federation.participation", 0.5,
        "--trainer.callbacks+=tests.distributed.probe.SmallBlocks",
    )  # fmt: skip
    ended = forked(2, *line, "--exchange", "sharded", root=tmp_path / "two")
    if where == "weigh":
        assert ended.code == 0, ended.err
        assert forked(1, *line, root=tmp_path / "one").code == 0
        assert_same_bits(only_run(tmp_path / "one"), only_run(tmp_path / "two"))
    else:
        assert f"Drawing to give a participant its {where} without drawing at random under --exchange" in ended.err


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
        UserError, match=r"but participant 1's is the tensor of the one before, .* return a clone\(\)\."
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
