"""A share of the members takes part in each round; whoever is not asked is neither punished nor rewarded."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from rffl_pl.adversaries import FreeRider, OmniscientAdversary, Situation
from rffl_pl.callbacks import ReputationExchange
from rffl_pl.callbacks.find import find
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.runs import RunFolder
from rffl_pl.servers import RFFL, Bucketing, Consensus, Evidence, FedAvg, Server, SignSGD, Verdict
from tests.cli.folders import assert_same_bits, weights
from tests.conftest import QUICK, Ended, only_run
from tests.ranks import forked
from tests.runs import Diary, Recorded, RecordedFedAvg, federate, kept_in
from tests.training.test_scaffold import OwnHead


class RecordedRFFL(Recorded, RFFL):
    """Removes."""


class RecordedSignSGD(Recorded, SignSGD):
    """Votes."""


class Expelling(Consensus):
    """Removes participant 2 in every round, asked or not."""

    def rule(self, evidence: Evidence) -> Verdict:
        members = self.members.clone()
        members[2] = False
        return replace(super().rule(evidence), members=members)


class Recalling(OmniscientAdversary):
    """Writes down the step that it received last."""

    keeps_download = True

    def __init__(self) -> None:
        self.diary = Diary()

    def collude(self, situation: Situation) -> Tensor:
        assert situation.honest is not None
        self.diary.lines.append(situation.download)
        return situation.honest.mean(0)


class Watch(Callback):
    """Keeps all models and reputations before and after every round."""

    def __init__(self) -> None:
        self.models: list[Tensor] = []
        self.reputations: list[Tensor] = []

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._keep(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._keep(trainer, pl_module)

    def _keep(self, trainer: Trainer, module: Any) -> None:
        exchange = find(trainer, ReputationExchange)
        assert exchange is not None
        self.models.append(module.cohort.weights.clone())
        if (reputations := getattr(exchange.server, "reputations", None)) is not None:
            self.reputations.append(reputations.clone())


@pytest.mark.parametrize(("share", "count"), [(0.5, 5), (0.25, 2), (0.01, 1), (0.99, 10), (1.0, 10)])
def test_who_is_asked(share: float, count: int) -> None:
    """As many members as the share says, at least one, ascending; other ones in other rounds, all of them in time."""
    federation = Federation(participants=12, participation=share, seed=3)
    members = [i for i in range(12) if i not in (4, 7)]
    drawn = [federation.asked(members, round_index) for round_index in range(300)]
    assert drawn == [federation.asked(members, round_index) for round_index in range(300)]
    assert {len(asked) for asked in drawn} == {count}
    assert all(asked == sorted(asked) for asked in drawn)
    often = Counter(i for asked in drawn for i in asked)
    assert often.keys() == set(members)
    assert min(often.values()) > 0.4 * max(often.values())
    assert federation.asked([], 0) == []
    if count < len(members):
        other = Federation(participants=12, participation=share, seed=4)
        assert drawn != [other.asked(members, round_index) for round_index in range(300)]


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_a_share_that_is_none(share: float) -> None:
    """The message names the option."""
    with pytest.raises(UserError, match=r"--federation\.participation to lie in \(0, 1\]"):
        Federation(participants=3, participation=share)


@pytest.mark.parametrize("kind", [RecordedFedAvg, RecordedRFFL, RecordedSignSGD])
def test_who_is_not_asked_does_nothing(kind: type[Recorded]) -> None:
    """It sends nothing, its model stays as it is or is the one that all share, and its reputation stays."""
    server, watch = kind(), Watch()
    federate(server, [FreeRider()], watch, rounds=6, participation=0.5)
    federation = Federation(participants=5, adversaries=1, participation=0.5, seed=1)
    asked = [senders for _, senders in server.seen]
    assert asked == [federation.asked(range(6), round_index) for round_index in range(6)]
    for senders, before, after in zip(asked, watch.models[:-1], watch.models[1:], strict=True):
        moved = (before != after).any(1).nonzero().flatten().tolist()
        assert moved == (senders if isinstance(server, RFFL) else [*range(6)])
        assert isinstance(server, RFFL) or all(torch.equal(row, after[0]) for row in after)
    if isinstance(server, RFFL):
        for senders, old, new in zip(asked[1:], watch.reputations[1:-1], watch.reputations[2:], strict=True):
            others = [i for i in range(6) if i not in senders]
            assert torch.equal(old[others], new[others])
            assert float(new.sum()) == pytest.approx(1)


def test_who_is_not_asked_is_not_removed() -> None:
    """Its rank is told nothing in that round: it would count on a member that is none, and read what nobody sent."""
    expected = "Expelling to remove those that it asks in a round, but it removes participant 2, who was"
    with pytest.raises(UserError, match=expected):
        federate(Expelling(), rounds=6, participation=0.2)
    server = Expelling()
    federate(server, rounds=1)
    assert server.members.tolist() == [True, True, False, True, True]


def test_who_has_been_removed_is_not_brought_up_to_date() -> None:
    """It would be measured and exported with the model of those who removed it."""
    federation = Federation(participants=5, participation=0.6, seed=2)
    assert 2 in federation.asked(range(5), 0)
    server = Expelling()
    module = federate(server, rounds=4, participation=0.6, seed=2)
    assert server.model is not None
    shared = [torch.equal(row, server.model) for row in module.cohort.weights]
    assert shared == [True, True, False, True, True]


def test_who_has_been_removed_trains_on_alone() -> None:
    """Under a rule that has everybody keep nothing of its update: then it trains in every round and never moves."""
    watch = Watch()
    federate(Expelling(), [], watch, rounds=3)
    models = [models[2] for models in watch.models]
    assert len(models) == 4
    assert not any(torch.equal(before, after) for before, after in itertools.pairwise(models[1:]))


@pytest.mark.parametrize("kind", [RecordedFedAvg, RecordedSignSGD])
def test_one_model_stays_one(kind: type[Recorded]) -> None:
    """Under a consensus whoever missed rounds starts from everybody's model and ends with it."""
    server, watch = kind(), Watch()
    federate(server, [], watch, rounds=8, participation=0.4)
    for (_, senders), models in zip(server.seen, watch.models[1:], strict=True):
        assert len(senders) == 2
        assert torch.equal(*models[senders])
    assert isinstance(server, FedAvg | SignSGD)
    assert server.model is not None
    assert torch.equal(server.model, watch.models[-1][server.seen[-1][1][0]])


def test_fedavg_is_that_of_whoever_was_asked() -> None:
    """Against a plain loop: the model moves by the mean, by shard sizes, of what the asked sent."""
    server, watch = RecordedFedAvg(), Watch()
    module = federate(server, [], watch, rounds=6, participation=0.4)
    model = watch.models[0][0].double()
    for uploads, senders in server.seen:
        sizes = torch.tensor([module.data.shard_sizes[i] for i in senders], dtype=torch.float64)
        model = model + (sizes / sizes.sum()) @ uploads.double()
    assert server.model is not None
    torch.testing.assert_close(server.model.double(), model, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Simulation")
def test_who_colludes_recalls_no_step_that_it_missed() -> None:
    """Of a round in which it was not asked it knows nothing: its last download is that of when it was."""
    server, attack = RecordedFedAvg(), Recalling()
    module = federate(server, [attack], rounds=8, participation=0.5)
    steps = []
    for uploads, senders in server.seen:
        sizes = torch.tensor([float(module.data.shard_sizes[i]) for i in senders])
        steps += [sizes @ uploads / sizes.sum()] if 5 in senders else []
    missed = [5 not in senders for _, senders in server.seen]
    assert any(not one and other for one, other in itertools.pairwise(missed))
    first, *later = attack.diary.lines
    assert first is None
    torch.testing.assert_close(torch.stack(later), torch.stack(steps[:-1]))


def test_everybody_is_nothing_else_than_today() -> None:
    """A share of 1 gives the bits of a run without it; so does, of RFFL, what was measured."""
    whole, plain = Watch(), Watch()
    federate(RecordedRFFL(), [FreeRider()], whole, rounds=3, participation=1.0)
    federate(RecordedRFFL(), [FreeRider()], plain, rounds=3)
    assert torch.equal(whole.models[-1], plain.models[-1])
    assert torch.equal(whole.reputations[-1], plain.reputations[-1])


def test_the_model_that_is_brought_is_counted() -> None:
    """Whoever missed a round downloads the model, 4 D bytes, and then the step; who did not, the step alone."""
    server, watch = RecordedFedAvg(), Watch()
    module = federate(server, [], watch, rounds=2, participation=0.4)
    (_, first), (_, second) = server.seen
    dimension = module.cohort.weights.shape[1]
    exchange = find(module.trainer, ReputationExchange)
    assert exchange is not None
    assert exchange.traffic is not None
    down = exchange.traffic.down
    assert [size > 0 for size in down] == [i in second for i in range(5)]
    assert set(second) != set(first)
    for i in second:  # a step is dense: 4 D bytes as well
        assert down[i] == (1 if i in first else 2) * 4 * dimension
    assert 0 < len(set(second) & set(first)) < len(second)


REFUSED = {
    "Krum's f": (("MultiKrum", "--server.byzantine", 1), "--server.byzantine"),
    "CFFL": (("CFFL",), "--federation.participation"),
    "Standalone": (("Standalone",), "--federation.participation"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_rules_that_lose_their_meaning_are_refused(rffl: Callable[..., Ended], name: str) -> None:
    """One sentence, before anything is trained."""
    server, named = REFUSED[name]
    share = ("--federation.participation", 0.5)
    ended = rffl(
        "fit", "--config", "configs/digits.yaml", *QUICK, "--server", *server, *share, "--trainer.max_epochs", 1
    )
    assert ended.code == 2
    (error,) = (line for line in ended.err.splitlines() if line.startswith("Error: "))
    assert named in error


@pytest.mark.slow
def test_a_run_by_halves(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """The command line takes the share; history goes by participant, and a resumed run has the bits of a whole one."""
    args = ("fit", "--config", "configs/digits.yaml", *QUICK, "--federation.participation", 0.5)
    assert rffl(*args, "--trainer.max_epochs", 14, "--run.name", "whole").code == 0
    assert rffl(*args, "--trainer.max_epochs", 6, "--run.name", "half").code == 0
    half = only_run(tmp_path / "runs", "half") / "checkpoints" / "last.ckpt"
    again = rffl(*args, "--trainer.max_epochs", 14, "--run.name", "resumed", "--ckpt_path", half)
    assert again.code == 0, again.err
    whole, resumed = (
        kept_in(only_run(tmp_path / "runs", name) / "checkpoints" / "last.ckpt") for name in ("whole", "resumed")
    )
    assert repr(whole["server"]["history"]) == repr(resumed["server"]["history"])
    for entry in whole["server"]["history"]:
        up = entry["measures"]["bytes_up"]
        similar = entry["measures"]["similarity"]
        assert [size > 0 for size in up] == [value == value for value in similar]
        assert sum(size > 0 for size in up) == max(1, round(0.5 * (sum(entry["members"]) + len(entry["removed"]))))
    summary = json.loads((only_run(tmp_path / "runs", "whole") / "summary.json").read_text())
    assert summary["removed_in_round"][:5] == [None] * 5


class Private(FedAvg):
    """Whoever missed rounds starts from its own model."""

    def model_for(self, participant: int) -> Tensor | None:
        return None


@pytest.mark.parametrize("server", [lambda: FedAvg(variant="released"), Private], ids=["released", "private"])
def test_who_starts_from_its_own_model_keeps_it(server: Callable[[], FedAvg]) -> None:
    """A model is put in its place, the server's or, where the server keeps none, whatever is in memory."""
    watch = Watch()
    federate(server(), [], watch, rounds=4, participation=0.4)
    federation = Federation(participants=5, participation=0.4, seed=1)
    for number, (before, after) in enumerate(itertools.pairwise(watch.models)):
        moved = (before != after).any(1).nonzero().flatten().tolist()
        assert moved == list(federation.asked(range(5), number))


class OwnBias(Recorded, OwnHead):
    """Keeps what it is told."""


@pytest.mark.parametrize("around", [False, True])
def test_a_layer_that_stays_with_its_owner(around: bool) -> None:
    """Whoever missed a round was handed the server's, which nobody had ever trained, and lost its own."""
    rule, watch = OwnBias(), Watch()
    federate(Bucketing(rule=rule, bucket=1) if around else rule, [], watch, rounds=6, participation=0.4)
    federation = Federation(participants=5, participation=0.4, seed=1)
    for number, (before, after) in enumerate(itertools.pairwise(watch.models)):
        moved = (before[:, -10:] != after[:, -10:]).any(1).nonzero().flatten().tolist()
        assert moved == list(federation.asked(range(5), number))
        assert all(torch.equal(row[:-10], after[0, :-10]) for row in after)
    assert len({tuple(row.tolist()) for row in watch.models[-1][:, -10:]}) == 5


class Tenth(RecordedFedAvg):
    """Everybody keeps a tenth of its update, all of which it sends."""

    def kept(self, update: Tensor) -> Tensor:
        return update * 0.1


class OwnLater(OwnBias):
    """The last bias stays with its owner from the fourth round on."""

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        return super().outgoing(update, memory, model) if self.round >= 3 else update.clone()


@pytest.mark.parametrize("kind", [Tenth, OwnLater])
def test_what_is_kept_and_sent_is_the_servers_to_hand(kind: type[Recorded]) -> None:
    """Taken for their own, whoever missed a round would stay where it was, and the download be thrown away."""
    server, watch = kind(), Watch()
    federate(server, [], watch, rounds=6, participation=0.4)
    assert isinstance(server, FedAvg)
    assert server.model is not None
    behind = [i for i in range(5) if i not in server.seen[-1][1]]
    assert len(behind) == 3
    assert all(torch.equal(watch.models[-1][i], server.model) for i in behind)


@pytest.mark.slow
def test_a_layer_that_stays_with_its_owner_on_several_ranks(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """And in a run that goes on: the bits of one process."""
    run = (
        "fit", "--config", "configs/digits.yaml", *QUICK, "--server", "tests.round.test_participation.OwnBias",
        "--federation.participation", 0.4, "--run.root",
    )  # fmt: skip
    assert rffl(*run, tmp_path / "one", "--trainer.max_epochs", 5).code == 0
    ended = forked(3, *run[:-1], "--trainer.max_epochs", 3, root=tmp_path / "two")
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "two")
    assert (
        rffl(*run, tmp_path / "on", "--trainer.max_epochs", 5, "--ckpt_path", folder / "checkpoints/last.ckpt").code
        == 0
    )
    assert_same_bits(only_run(tmp_path / "one"), only_run(tmp_path / "on"))


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["central", "sharded"])
def test_the_model_that_all_share_is_measured(rffl: Callable[..., Ended], tmp_path: Path, exchange: str) -> None:
    """Who was never asked counts with the initial network; ranks, checkpoints or exported weights differ in it."""
    run = (
        "fit", "--config", "configs/digits.yaml", *QUICK, "--server", "FedAvg", "--federation.participation", 0.3,
        "--trainer.max_epochs", 4, "--trainer.check_val_every_n_epoch", 3,
    )  # fmt: skip
    assert rffl(*run, "--run.root", tmp_path / "one").code == 0
    ended = forked(2, *run, "--exchange", exchange, root=tmp_path / "two")
    assert ended.code == 0, ended.err
    one, two = RunFolder.open(only_run(tmp_path / "one")), RunFolder.open(only_run(tmp_path / "two"))
    summary = one.summary()
    assert len({*summary.final}) == 1
    assert summary.final == two.summary().final
    assert len({*one.rounds()[2].measures["accuracy"]}) == 1
    assert_same_bits(one.path, two.path)
    first, *others = weights(one.path).values()
    assert all(torch.equal(state[name], first[name]) for state in others for name in first)
    kept = kept_in(one.path / "checkpoints" / "last.ckpt")["federation"]["participants"]
    assert all(torch.equal(kept[i]["network"][name], first[name]) for i in kept for name in first)


def test_models_are_each_ones_own() -> None:
    """RFFL's participants start from their own models, whatever they missed."""
    server: Server = RFFL()
    federate(server, [], rounds=2, participation=0.4)
    assert [server.model_for(i) for i in range(5)] == [None] * 5
