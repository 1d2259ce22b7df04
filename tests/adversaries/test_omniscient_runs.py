"""Attacks that know everything, in a run: what they are shown, how what they forge travels, and who is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from rffl_pl.adversaries import (
    ALIE,
    Fang,
    FreeRider,
    InnerProduct,
    LabelFlip,
    Mimic,
    MinMax,
    OmniscientAdversary,
    Situation,
)
from rffl_pl.adversaries.cast import Poisoned
from rffl_pl.servers import CFFL, RFFL, Server, SignSGD
from tests.adversaries.test_attacked_runs import DIGITS, Run, plain_update, simulates, stream
from tests.conftest import only_run
from tests.runs import Diary, Recorded, RecordedCFFL, RecordedFedAvg, federate


class RecordedRFFL(Recorded, RFFL):
    """Clips."""


class RecordedSignSGD(Recorded, SignSGD):
    """Sends signs."""


class Loud(OmniscientAdversary):
    """A user's own attack, of which a test sees what it is shown."""

    def __init__(self, *, double: bool = False) -> None:
        self.dtype = torch.float64 if double else torch.float32
        self.diary = Diary()

    def collude(self, situation: Situation) -> Tensor:
        assert situation.honest is not None
        self.diary.lines.append(situation.honest.clone())
        return 100 * torch.randn(situation.honest.shape[1], generator=situation.generator).to(self.dtype)


class Recalling(OmniscientAdversary):
    """Keeps what it remembers of its last download."""

    keeps_download = True

    def __init__(self) -> None:
        self.diary = Diary()

    def collude(self, situation: Situation) -> Tensor:
        assert situation.honest is not None
        self.diary.lines.append(situation.download if situation.download is None else situation.download.clone())
        return situation.honest[0]


class Deaf(OmniscientAdversary):
    """An attack that has an `upload` as well."""

    def __init__(self) -> None:
        self.diary = Diary()

    def upload(self, situation: Situation) -> Tensor:
        self.diary.lines.append(situation.round)
        return situation.update

    def collude(self, situation: Situation) -> Tensor:
        assert situation.honest is not None
        return situation.honest[0]


class Poison(Callback):
    """Makes the inputs of the second round not finite."""

    def __init__(self, participants: list[int]) -> None:
        self.participants = participants

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        batch.update({i: shard.shard for i, shard in batch.items() if isinstance(shard, Poisoned)})
        for participant in self.participants if trainer.current_epoch == 1 else []:
            batch[participant] = Poisoned(batch[participant], lambda x, y: (x * torch.nan, y))


def test_an_omniscient_attack_of_ones_own(rffl: Run, tmp_path: Path) -> None:
    """A user's class is taken by its path, and the run says, once, that it simulates."""
    attack = ("--adversaries", "[]", "--adversaries+=tests.adversaries.test_omniscient_runs.Loud")
    ended = rffl(*DIGITS, *attack, "--trainer.max_epochs", 2)
    assert ended.code == 0, ended.err
    assert ended.err.count("Simulation: Loud is shown the honest uploads on the server.") == 1
    assert "tests.adversaries.test_omniscient_runs.Loud" in (only_run(tmp_path / "runs") / "config.yaml").read_text()


def as_sent(server: Server, forged: Tensor) -> Tensor:
    """What a server has of a forged upload, by hand."""
    if isinstance(server, RFFL):
        clipped: Tensor = forged * 0.5 / (forged.norm() + 1e-7)
        return clipped
    if isinstance(server, SignSGD):
        return forged.sign()
    if isinstance(server, CFFL):
        clamped = forged.clamp(-0.01, 0.01)
        first = clamped.abs().argsort(descending=True, stable=True)[: int(0.1 * len(forged))]
        return torch.zeros_like(forged).scatter(0, first, clamped[first])
    return forged


every_server = pytest.mark.parametrize("kind", [RecordedFedAvg, RecordedRFFL, RecordedSignSGD, RecordedCFFL])


@every_server
def test_omniscient_adversary(kind: type[Recorded]) -> None:
    """It is shown exactly the honest finite uploads that the server has, and its own travels as everybody's."""
    server, attack = kind(), Loud()
    with pytest.warns(UserWarning, match="Simulation: Loud is shown the honest uploads on the server"):
        federate(server, [attack], Poison([1]), rounds=2)
    assert len(attack.diary.lines) == len(server.seen) == 2
    for round_index, finite in enumerate([[0, 1, 2, 3, 4], [0, 2, 3, 4]]):
        uploads, senders = server.seen[round_index]
        assert senders == list(range(6))
        assert uploads.isfinite().all(1).nonzero().flatten().tolist() == [*finite, 5]
        assert torch.equal(attack.diary.lines[round_index], uploads[finite])
        forged = 100 * torch.randn(uploads.shape[1], generator=stream(5, round_index))
        torch.testing.assert_close(uploads[5], as_sent(server, forged))


@simulates
def test_omniscient_adversary_recalls_its_download() -> None:
    """Of each round the step that was its own: the mean of all that was uploaded in the last one, by examples."""
    server, attack = RecordedFedAvg(), Recalling()
    federate(server, [attack], rounds=3)
    first, *later = attack.diary.lines
    assert first is None
    assert len(later) == 2
    for download, (uploads, _) in zip(later, server.seen, strict=False):
        assert download is not None
        shares = torch.tensor(server.task.examples) / sum(server.task.examples)
        torch.testing.assert_close(download, shares @ uploads)


@every_server
@simulates
def test_omniscient_adversary_in_double_precision(kind: type[Recorded]) -> None:
    """An attack that computes in float64 is sent as float32, like that of `upload`, under every wire format."""
    server = kind()
    federate(server, [Loud(double=True)], rounds=1)
    uploads, _ = server.seen[0]
    assert uploads.dtype == torch.float32
    forged = 100 * torch.randn(uploads.shape[1], generator=stream(5, 0))
    torch.testing.assert_close(uploads[5], as_sent(server, forged))


@simulates
@pytest.mark.parametrize("epsilon", [50.0, 0.1])
def test_inner_product_reaches_rffl_clipped(epsilon: float) -> None:
    """Loud, it has the norm bound; hidden, it is what it is: minus epsilon times the honest mean."""
    server = RecordedRFFL(gamma=0.5)
    federate(server, [InnerProduct(epsilon=epsilon)], rounds=1)
    uploads, _ = server.seen[0]
    assert (uploads[:5].norm(dim=1) <= 0.5 + 1e-6).all()
    forged = -epsilon * uploads[:5].mean(0)
    assert (float(forged.norm()) > 0.5) == (epsilon == 50)
    torch.testing.assert_close(uploads[5], forged * min(1, 0.5 / float(forged.norm())), rtol=1e-4, atol=1e-6)


@simulates
def test_inner_product_votes_against_the_majority() -> None:
    """Under SignSGD what arrives is signs, against those of the honest mean."""
    server = RecordedSignSGD()
    federate(server, [InnerProduct()], rounds=1)
    uploads, _ = server.seen[0]
    assert set(uploads.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(uploads[5], -uploads[:5].mean(0).sign())


@simulates
def test_those_who_know_everything_side_by_side() -> None:
    """What reaches the server is not made of this round's honest uploads alone, or two who mimic copy two."""
    server = RecordedFedAvg()
    both = [Fang(), Fang(against="krum")]
    federate(server, [ALIE(), MinMax(bound="sum"), Mimic(warmup=2), Mimic(warmup=2), *both], rounds=4)
    for uploads, _ in server.seen:
        honest = uploads[:5].double()
        sigma, mu = torch.std_mean(honest, 0, correction=0)
        torch.testing.assert_close(uploads[5].double(), mu - 1.5 * sigma, rtol=1e-4, atol=1e-6)
        away = (uploads[6].double() - mu).norm()
        torch.testing.assert_close(away, (honest - mu).norm(dim=1).max(), rtol=1e-4, atol=1e-6)
        assert torch.equal(uploads[7], uploads[8])
        assert (uploads[:5] == uploads[7]).all(1).sum() == 1
        assert torch.where(mu < 0, uploads[9] >= honest.amax(0), uploads[9] <= honest.amin(0)).all()
        torch.testing.assert_close(uploads[10], -uploads[10].abs().max() * uploads[:5].mean(0).sign())


@simulates
def test_nobody_honest_to_know() -> None:
    """Where no honest upload is finite there is nothing to collude from: not called, and the run goes on."""
    server, attack = RecordedFedAvg(), Loud()
    federate(server, [attack], Poison([0, 1, 2, 3, 4]), rounds=3)
    assert len(server.seen) == 3
    assert [len(known) for known in attack.diary.lines] == [5, 5]


@simulates
def test_collude_takes_the_place_of_upload() -> None:
    """Who colludes is not asked for an upload, as the base class says."""
    server, attack = RecordedFedAvg(), Deaf()
    federate(server, [attack], rounds=1)
    uploads, _ = server.seen[0]
    assert torch.equal(uploads[5], uploads[0])
    assert attack.diary.lines == []


def test_adversaries_of_several_kinds() -> None:
    """Each of one run does its own, the fifth again what the first does but with its own randomness."""
    server, loud = RecordedFedAvg(), Loud()
    with pytest.warns(UserWarning, match="Simulation: InnerProduct, Loud is shown"):
        module = federate(server, [FreeRider(), LabelFlip(), InnerProduct(), loud], adversaries=5, rounds=1)
    ((uploads, senders),) = server.seen
    assert senders == list(range(10))
    initial = module.initial_weights()
    for participant, flip in [(0, None), (4, None), (6, (1, 7))]:
        expected = plain_update(initial, module.data, participant, flip)
        torch.testing.assert_close(uploads[participant], expected, rtol=1e-3, atol=1e-5)
    for participant in (5, 9):
        noise = torch.rand(len(initial), generator=stream(participant, 0)) * 2 - 1
        torch.testing.assert_close(uploads[participant], noise)
    torch.testing.assert_close(uploads[7], -2 * uploads[:5].mean(0), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(uploads[8], 100 * torch.randn(len(initial), generator=stream(8, 0)))
    assert torch.equal(loud.diary.lines[0], uploads[:5])
    assert not torch.equal(uploads[5], uploads[9])
