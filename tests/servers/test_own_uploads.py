"""What participants send, hand over and remember under a rule of one's own: what cannot be ends in one sentence."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from rffl_pl.adversaries import InnerProduct, Situation
from rffl_pl.callbacks import ReputationExchange
from rffl_pl.callbacks.find import find
from rffl_pl.errors import UserError
from rffl_pl.functional import blocks
from rffl_pl.round.given import kept, sent, unpacked
from rffl_pl.servers import NNM, Evidence, FedAvg, Verdict
from tests.runs import federate


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


def test_rules_of_the_package_are_not_looked_at() -> None:
    """Every update is hashed, time and again, to see that rules leave it which always do: a tenth of a round."""
    module = federate(NNM(rule=FedAvg()), rounds=1)
    played = find(module.trainer, ReputationExchange)
    assert played is not None
    table, unread = played._table(module.trainer, module), torch.empty(4810, device="meta")
    assert kept(table, 0, unread, 1).is_meta
    assert not sent(table, 0, torch.zeros(4810), {}, unread, 1).any()


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


class EightBits(FedAvg):
    """A scale in four bytes and a byte for every entry, of which the second payload is not aligned for the scale."""

    def pack(self, upload: Tensor) -> Tensor:
        scale = upload.abs().max().clamp_min(1e-30) / 127
        entries = (upload / scale).round().to(torch.int8)
        return torch.cat([scale.view(1).view(torch.uint8), entries.view(torch.uint8)])

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        return payload[4:].view(torch.int8) * payload[:4].view(torch.float32)


class SixteenBits(FedAvg):
    """Half of the bytes, given back as they came."""

    def pack(self, upload: Tensor) -> Tensor:
        return upload.half().view(torch.uint8)

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        return payload.view(torch.float16)


class Noised(FedAvg):
    """Adds numbers of NumPy's, which are in double precision."""

    def outgoing(self, update: Tensor, memory: dict[str, Any], model: Tensor) -> Tensor:
        return update + torch.from_numpy(np.full(len(update), 1e-3))


class Strided(InnerProduct):
    """Uploads a view that has gaps between its numbers."""

    def collude(self, situation: Situation) -> Tensor:
        upload = super().collude(situation)
        return torch.stack([upload, upload], 1)[:, 0]


class Rounds(Callback):
    """Keeps every round's verdict."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        played = find(trainer, ReputationExchange)
        assert played is not None
        assert played.verdict is not None
        self.verdicts.append(played.verdict)


@pytest.mark.parametrize("server", [EightBits, SixteenBits, Noised, FedAvg])
def test_uploads_of_another_kind(server: type[FedAvg]) -> None:
    """Of who is hosted elsewhere, and of who knows all, they are another type; or they fit no payload, or no view."""
    rounds = Rounds()
    federate(server(), [Strided()], rounds)
    assert [verdict.set_aside for verdict in rounds.verdicts] == [(), ()]
    assert all(verdict.weights.min() > 0 for verdict in rounds.verdicts)


def test_what_is_unpacked_is_in_single_precision() -> None:
    """Uploads of other ranks' participants are taken as they are unpacked, and would be of another type there."""
    server, upload = SixteenBits(), torch.linspace(-1, 1, 7)
    arrived = unpacked(server, server.pack(upload), 7, 0)
    assert torch.equal(arrived, upload.half().float())


class Hoarding(FedAvg):
    """Keeps on itself, on participants' side, what its option says."""

    def __init__(self, *, what: str = "") -> None:
        super().__init__()
        self.what = what
        self.left: list[Tensor] = []
        self.scale, self.own, self.mask, self.seen = 1.0, 0.0, torch.empty(0), -1

    def kept(self, update: Tensor) -> Tensor:
        if self.what == "own":
            self.own = float(update.norm())
        return super().kept(update)

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        if self.what == "left":  # what is not sent, for the next time
            self.left = [update - update.sign() * update.abs().mean()]
        if self.what == "memory":
            memory["left"] = update - update.sign() * update.abs().mean()
        if not len(self.mask):  # of everybody, as soon as it is asked for
            self.mask = torch.ones_like(update)
        if self.seen != self.round:
            self.seen = self.round
        return update * self.mask

    def pack(self, upload: Tensor) -> Tensor:
        if self.what == "scale":
            self.scale = float(upload.abs().max()) or 1.0
        return super().pack(upload)


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("what", ["own", "left", "scale"])
def test_what_a_rule_keeps_of_a_participant_on_itself(what: str, around: bool) -> None:
    """The next one of the same process is given it, or on another rank nobody; it trains, with other results."""
    rule = Hoarding(what=what)
    told = f"Expected --server(.rule)? Hoarding not to change itself .* its attribute {what} changes; keep .* memory"
    with pytest.raises(UserError, match=told):
        federate(NNM(rule=rule) if around else rule)
    assert rule.seen == -1


@pytest.mark.parametrize("what", ["", "memory"])
def test_what_a_rule_prepares_for_everybody(what: str) -> None:
    """A mask that is made once, or in every round, is nobody's."""
    federate(Hoarding(what=what))


class Halving(FedAvg):
    """Halves where its option says, in place."""

    def __init__(self, *, what: str) -> None:
        super().__init__()
        self.what = what

    def weigh(self, evidence: Evidence) -> Tensor:
        for row in evidence.uploads if self.what == "uploads" else ():
            row.mul_(0.5)
        return super().weigh(evidence)

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return super().combine(block, weights.mul_(0.5) if self.what == "weights" else weights / 2)


def test_uploads_that_are_changed_where_they_are_judged() -> None:
    """What judges them again came to something else, and the rule was said to forget its state."""
    with pytest.raises(UserError, match="server Halving to leave uploads as they are where it judges them, but it cha"):
        federate(Halving(what="uploads"), rounds=3)


def test_weights_that_are_changed_where_uploads_are_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block had half of the weights of the one before, and the rule was refused as one on whole vectors."""
    monkeypatch.setattr(blocks, "_ENTRIES", 5000)
    one, other = (federate(Halving(what=what)).cohort.weights for what in ("weights", "a copy"))
    assert torch.equal(one, other)


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
