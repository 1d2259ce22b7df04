"""Attacks in a run: what reaches the server, what it does there, and what is refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rffl_pl.adversaries import (
    Adversary,
    DeltaWeights,
    Imitation,
    LabelFlip,
    OmniscientAdversary,
    OnOff,
    Replay,
    Situation,
    Sybil,
)
from rffl_pl.datamodules import FederatedDataModule
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.models import Perceptron
from rffl_pl.servers import RFFL, Evidence, FedAvg, Standalone, Verdict
from tests.conftest import QUICK, Ended, only_run
from tests.runs import Diary, RecordedFedAvg, digits, federate, training_examples, whole

Run = Callable[..., Ended]
simulates = pytest.mark.filterwarnings("ignore:Simulation")

DIGITS = ("fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.enable_checkpointing", "false")


class Stale(Adversary):
    """Sends its update of the round before, which it keeps as it was given, or a copy."""

    def __init__(self, *, copied: bool) -> None:
        self.copied = copied

    def upload(self, situation: Situation) -> Tensor:
        last = situation.memory.get("last", torch.ones_like(situation.update)).clone()
        situation.memory["last"] = situation.update.clone() if self.copied else situation.update
        return last


class Centring(OmniscientAdversary):
    """Takes the mean away from the honest uploads where they lie, or in a copy."""

    def __init__(self, *, copied: bool) -> None:
        self.copied = copied

    def collude(self, situation: Situation) -> Tensor:
        honest = situation.honest
        assert honest is not None
        mean = honest.mean(0)
        centred = honest - mean if self.copied else honest.sub_(mean)
        return mean + centred[0]


@simulates
@pytest.mark.parametrize("kind", [Stale, Centring])
def test_what_an_attack_is_given_is_its_own(kind: Callable[..., Adversary]) -> None:
    """What it kept would be overwritten, and the second one be shown what the first one made of the honest uploads."""
    ran = [federate(FedAvg(), [kind(copied=copied)] * 2, rounds=4) for copied in (True, False)]
    assert torch.equal(ran[0].cohort.weights, ran[1].cohort.weights)


class Turning(Adversary):
    """Turns its update round where it lies, and its own model goes backwards too."""

    def __init__(self, *, by: str) -> None:
        self.by = by

    def upload(self, situation: Situation) -> Tensor:
        update = situation.update
        if self.by == "torch":
            return update.neg_()
        if self.by == "data":
            update.data.mul_(-1)
        else:
            turned = update.numpy()
            turned *= -1
        return update


@pytest.mark.parametrize("by", ["torch", "data", "NumPy"])
def test_an_update_that_is_changed_in_place(by: str) -> None:
    """What the adversary ends with, and was measured to take, would be another model."""
    with pytest.raises(UserError, match=r"--adversaries Turning .*to leave its update as it is, but it changes them"):
        federate(FedAvg(), [Turning(by=by)])


class Choosy(Adversary):
    """Trains with examples of some classes alone."""

    def __init__(self, *, below: int) -> None:
        self.below = below

    def poison(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x[y < self.below], y[y < self.below]


def test_an_attack_that_leaves_examples_out() -> None:
    """A batch of which nothing is left spoils the round, or ends a stack in a traceback."""
    trained = [federate(FedAvg(), [Choosy(below=1)], engine=engine, batch_size=4) for engine in ("loop", "stacked")]
    losses = [one.losses[max(one.losses)] for one in trained]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert math.isfinite(losses[0])
    with pytest.raises(UserError, match="Expected poison of --adversaries to leave an example to train with, but it"):
        federate(FedAvg(), [Choosy(below=0)])


class Sparse(Adversary):
    """Uploads entries and where they are."""

    def upload(self, situation: Situation) -> Tensor:
        return situation.update.to_sparse()


def test_an_upload_that_is_sparse() -> None:
    """Nothing that is done with uploads can be done with it."""
    with pytest.raises(
        UserError, match=r"to upload a dense tensor .*, but got torch\.float32 .* and torch\.sparse_coo"
    ):
        federate(FedAvg(), [Sparse()])


class Watched(OnOff):
    """Counts the batches of every round that it trains on."""

    def __init__(self, *, honest: int, period: int) -> None:
        super().__init__(honest=honest, period=period)
        self.diary = Diary()

    def labels(self, y: Tensor) -> Tensor:
        self.diary.lines.append("batch")
        return y

    def upload(self, situation: Situation) -> Tensor:
        self.diary.lines.append("round")
        return super().upload(situation)


SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "empty": lambda d: (0,),
    "short": lambda d: (d - 1,),
    "long": lambda d: (d + 1,),
    "scalar": lambda d: (),
    "row": lambda d: (1, d),
}


class Misshapen(Adversary):
    """Uploads ones in a shape of its own."""

    def __init__(self, shape: str) -> None:
        self.shape = shape

    def upload(self, situation: Situation) -> Tensor:
        return torch.ones(SHAPES[self.shape](len(situation.update)))


class OmniscientMisshapen(OmniscientAdversary):
    """The same, from what it knows."""

    def __init__(self, shape: str) -> None:
        self.shape = shape

    def collude(self, situation: Situation) -> Tensor:
        return torch.ones(SHAPES[self.shape](len(situation.update)))


def stream(participant: int, round_index: int) -> torch.Generator:
    """An adversary's random stream of a round."""
    federation = Federation(participants=5, seed=1)
    return torch.Generator().manual_seed(federation.seed_for("attack", participant, round_index))


def plain_update(initial: Tensor, data: FederatedDataModule, participant: int, flip: tuple[int, int] | None) -> Tensor:
    """The update of a plain training loop in the first round, on the labels that are claimed."""
    network = Perceptron(64, 64, 10)
    nn.utils.vector_to_parameters(initial.clone(), network.parameters())
    x, y = training_examples(data)
    torch.manual_seed(data.federation.seed_for("training", participant, 0))
    for epoch in range(3):
        order = data.shards[participant][torch.randperm(len(data.shards[participant]))]
        torch.empty((), dtype=torch.int64).random_()  # torch's loader draws a seed for its workers
        for batch in order.split(16):
            labels = y[batch].clone()
            if flip is not None:
                labels[labels == flip[0]] = flip[1]
            network.zero_grad()
            cross_entropy(network(x[batch]), labels).backward()
            with torch.no_grad():
                for parameter in network.parameters():
                    assert parameter.grad is not None
                    parameter.sub_(0.1 * 0.977**epoch * parameter.grad)
    return nn.utils.parameters_to_vector(network.parameters()).detach() - initial


def test_label_flip_in_a_run() -> None:
    """The adversary trains on flipped labels and the honest on true ones: each as a plain loop on those labels."""
    module = federate(Standalone(), [LabelFlip()], rounds=1)
    initial = module.initial_weights()
    for participant in range(6):
        update = module.cohort.weights[participant] - initial
        expected = plain_update(initial, module.data, participant, (1, 7) if participant == 5 else None)
        torch.testing.assert_close(update, expected, rtol=1e-3, atol=1e-5)
    unflipped = plain_update(initial, module.data, 5, None)
    assert float((update - unflipped).norm()) > 0.05 * float(update.norm())


def test_results_of_a_label_flip(rffl: Run, tmp_path: Path) -> None:
    """`summary.json`, table and CSV have what scikit-learn's confusion matrices of the exported models have."""
    attack = ("--adversaries", "[]", "--adversaries+=LabelFlip", "--adversaries.source", 2, "--adversaries.target", 5)
    ended = rffl(*DIGITS, "--server", "Standalone", *attack, "--trainer.max_epochs", 4)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    summary = json.loads((folder / "summary.json").read_text())
    data, network, kept, success = digits(Federation(participants=5)), Perceptron(64, 64, 10), [], []
    x, y = whole(data.test_dataloader())
    for participant in range(6):
        network.load_state_dict(torch.load(folder / "weights" / f"participant_{participant}.pt", weights_only=True))
        row = confusion_matrix(y, network(x).argmax(1), labels=range(10), normalize="true")[2]
        kept.append(row[2])
        success.append(row[5])
    assert summary["target_accuracy"] == pytest.approx(np.mean(kept[:5]), abs=1e-6)
    assert summary["attack_success"] == pytest.approx(np.mean(success[:5]), abs=1e-6)
    assert success[5] > 0.5 > np.median(success[:5])
    assert f"label flips: success {summary['attack_success']:.1%}  target accuracy" in ended.out
    header, *_, last = (folder / "metrics.csv").read_text().splitlines()
    values = dict(zip(header.split(","), last.split(","), strict=True))
    assert {name for name in values if name.startswith("attack_success/")} == {
        "attack_success/mean", *(f"attack_success/participant_{i}" for i in range(6)),
    }  # fmt: skip
    assert float(values["attack_success/participant_5"]) > float(values["attack_success/mean"])


def test_no_label_flip_no_results_of_one(rffl: Run, tmp_path: Path) -> None:
    """A flip that nobody carries out is neither measured nor held against the data set's classes."""
    flip = {"class_path": "LabelFlip", "init_args": {"source": 1, "target": 10}}
    attacks = ("--adversaries", json.dumps([flip]), "--federation.adversaries", 0)
    ended = rffl(*DIGITS, "--server", "FedAvg", *attacks, "--trainer.max_epochs", 1)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["attack_success"] is summary["target_accuracy"] is None
    assert "label flip" not in ended.out
    assert "attack_success" not in (folder / "metrics.csv").read_text()
    assert "Simulation" not in ended.err


@pytest.mark.parametrize(
    ("init_args", "problem"),
    [({"source": 3, "target": 3}, "but got 3 for both"), ({"source": 1, "target": 10}, "0 .. 9, but got 1 and 10")],
)
def test_label_flip_that_does_not_fit(rffl: Run, init_args: dict[str, int], problem: str) -> None:
    """One sentence with source and target, before anything is trained."""
    ended = rffl(*DIGITS, "--adversaries", json.dumps([{"class_path": "LabelFlip", "init_args": init_args}]))
    assert ended.code == 2
    (error,) = (line for line in ended.err.splitlines() if line.startswith("Error: "))
    assert "Expected --adversaries.source and --adversaries.target of LabelFlip to " in error
    assert problem in error
    assert "Traceback" not in ended.err


class Paid(Adversary):
    """Sends its update or the opposite; a test sees what it downloads."""

    keeps_download = True

    def __init__(self, *, factor: float) -> None:
        self.factor = factor
        self.diary = Diary()

    def upload(self, situation: Situation) -> Tensor:
        download = None if situation.download is None else situation.download.clone()
        self.diary.lines.append((download, self.factor * situation.update))
        return self.factor * situation.update


class Quotas(RFFL):
    """A test sees what everybody is to get."""

    def __init__(self, **options: Any) -> None:
        super().__init__(removal_from="never", **options)
        self.diary = Diary()

    def rule(self, evidence: Evidence) -> Verdict:
        verdict = super().rule(evidence)
        self.diary.lines[evidence.round :] = [verdict]  # a copy of it may judge a round once more
        return verdict


@pytest.mark.parametrize("preset", ["released", "paper"])
def test_a_reward_is_read_off_a_download(preset: Any) -> None:
    """An attack that goes by the share of entries, as the documentation has it, goes by something else."""
    server, attacks = Quotas(preset=preset), (Paid(factor=1.0), Paid(factor=-1.0))
    layers = federate(server, attacks, rounds=5).task().layers
    for participant, attack in enumerate(attacks, 5):
        assert attack.diary.lines[0][0] is None
        for verdict, (_, sent), (download, _) in zip(
            server.diary.lines, attack.diary.lines, attack.diary.lines[1:], strict=False
        ):
            quota, weight = (float(values[participant]) for values in (verdict.quotas, verdict.weights))
            if preset == "released":
                assert int((download != 0).sum()) == sum(math.ceil(quota * size) for size in layers)
            else:
                assert float((download != 0).double().mean()) > 0.99
                assert quota or torch.allclose(download, -weight * sent, rtol=1e-5, atol=1e-8)
    assert [float(verdict.quotas[6]) for verdict in server.diary.lines][-1] == 0


def test_on_off_in_a_run() -> None:
    """It trains in its off rounds, or is in the others not as honest as a plain training loop."""
    server, attack = RecordedFedAvg(), Watched(honest=1, period=2)
    module = federate(server, [attack], rounds=4)
    epochs = 3 * -(-len(module.data.shards[5]) // 16)
    assert attack.diary.lines == [*["batch"] * epochs, "round", "round"] * 2
    expected = plain_update(module.initial_weights(), module.data, 5, None)
    torch.testing.assert_close(server.seen[0][0][5], expected, rtol=1e-3, atol=1e-5)
    for number, (uploads, _) in enumerate(server.seen):
        noise = torch.rand(uploads.shape[1], generator=stream(5, number)) * 2 - 1
        assert torch.equal(uploads[5], noise) == (number in (1, 3))


def test_on_off_that_is_silent_or_sends_back_in_a_run() -> None:
    """Its silence is a vote to a server, or it replays another download than that of its honest round."""
    server = RecordedFedAvg()
    federate(server, [OnOff(honest=1, scale=0.0), OnOff(honest=1, then="replay"), Replay()], rounds=3)
    first, second, third = (uploads for uploads, _ in server.seen)
    assert first[5].any()
    assert not second[5].any()
    assert not third[5].any()
    torch.testing.assert_close(second[6], second[7], rtol=1e-3, atol=1e-5)
    assert torch.equal(second[6], third[6])


def test_what_was_sent_comes_back() -> None:
    """Sybils differ, or what is replayed, imitated or changed in a model is not what was downloaded."""
    server = RecordedFedAvg()
    federate(server, [Sybil(), Sybil(), Replay(), DeltaWeights(), Imitation(share=1.0)], rounds=3)
    first, then, last = (uploads for uploads, _ in server.seen)
    for uploads in (first, then, last):
        assert torch.equal(uploads[5], uploads[6])
    assert not torch.equal(first[5], then[5])
    for idle in (7, 8):
        assert torch.equal(first[idle], torch.rand(first.shape[1], generator=stream(idle, 0)) * 2 - 1)
    assert torch.equal(last[7], then[7])
    torch.testing.assert_close(then[8], then[7], rtol=1e-3, atol=1e-5)  # of the same download
    similar = torch.nn.functional.cosine_similarity
    assert float(similar(then[9], then[7], dim=0)) > 0.999
    assert float(similar(last[9], last[8], dim=0)) > 0.999  # the second download
    assert float(similar(last[8], last[7], dim=0)) < 0.99


@simulates
@pytest.mark.parametrize("kind", [Misshapen, OmniscientMisshapen])
@pytest.mark.parametrize("shape", SHAPES)
def test_uploads_of_another_shape(kind: Any, shape: str) -> None:
    """Whoever slips would see an attack that is set aside in every round, and take it for harmless."""
    expected = f"in the update's shape [4810], but got torch.float32 of shape {list(SHAPES[shape](4810))}; have it"
    with pytest.raises(UserError, match=rf"Misshapen \(shape {shape}\) to upload .*{re.escape(expected)}"):
        federate(FedAvg(), [kind(shape)])


class Spectral(Adversary):
    """Uploads the update's spectrum."""

    def upload(self, situation: Situation) -> Tensor:
        spectrum: Tensor = torch.fft.fft(situation.update)
        return spectrum


def test_uploads_that_are_complex() -> None:
    """Half of every entry would be dropped with a warning of torch's."""
    with pytest.raises(UserError, match=r"Spectral to upload a dense tensor of real .*, but got torch\.complex64 of"):
        federate(FedAvg(), [Spectral()])
