"""Corrected steps: SCAFFOLD, by what participants download."""

from __future__ import annotations

import copy
import dataclasses
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rffl_pl.adversaries import LabelFlip
from rffl_pl.callbacks import StandaloneReference
from rffl_pl.datamodules import Digits
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.models import Perceptron
from rffl_pl.models.sizes import memory
from rffl_pl.module import FederatedModule
from rffl_pl.rehearsal.checks import check_memory
from rffl_pl.rehearsal.server import check_corrections
from rffl_pl.runs import RunFolder
from rffl_pl.servers import (
    CFFL,
    FLAME,
    IAFL,
    NNM,
    QFFL,
    RFFL,
    Bucketing,
    FedAvg,
    FedOpt,
    FoolsGold,
    NormBound,
    Server,
    SignSGD,
    Standalone,
    Verdict,
)
from rffl_pl.servers.evidence import Evidence
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import flat_parameters
from rffl_pl.training.scaffold import Corrections
from rffl_pl.training.schedule import Examples, Schedule
from tests.cohorts import CPU, batchnorm, examples, mlp, sgd
from tests.conftest import QUICK, Ended, only_run
from tests.ranks import assert_goes_on
from tests.runs import digits, federate

RUN = (
    "fit", "--config", "configs/digits.yaml", "--federation.participants", 3, "--federation.adversaries", 1,
    "--data.examples_per_participant", 40, "--data.adversary_examples", 40, "--trainer.max_epochs", 3, *QUICK,
    "--model.scaffold", "true",
)  # fmt: skip


def added(module: FederatedModule) -> list[Tensor | None]:
    """What everybody adds to its gradients in its next round."""
    assert module.cohort.corrections is not None
    return [module.cohort.corrections.of(index) for index in range(len(module.cohort.participants))]


def scaffold(data: Digits, network: nn.Module, rounds: int) -> Tensor:
    """Algorithm 1 of the paper with option II, a global step of 1, and everybody sampled in every round."""
    x = flat_parameters(network)
    c = torch.zeros_like(x)
    controls = [torch.zeros_like(x) for _ in data.shard_sizes]
    for number in range(rounds):
        ends, new = [], []
        for i, control in enumerate(controls):
            local = copy.deepcopy(network).train()
            nn.utils.vector_to_parameters(x, local.parameters())
            shard, way = Shard(data._reader_of(i), data.shards[i], data.batch_size), 0.0
            torch.manual_seed(data.federation.seed_for("training", i, number))
            for epoch in range(3):
                rate = 0.1 * 0.977 ** (3 * number + epoch)
                for inputs, y in shard.epoch():
                    gradients = torch.autograd.grad(cross_entropy(local(inputs), y), [*local.parameters()])
                    step = torch.cat([g.flatten() for g in gradients]) - control + c
                    nn.utils.vector_to_parameters(flat_parameters(local) - rate * step, local.parameters())
                    way += rate
            ends.append(flat_parameters(local))
            new.append(control - c + (x - ends[-1]) / way)
        c = c + torch.stack([n - old for n, old in zip(new, controls, strict=True)]).mean(0)
        controls = new
        x = x + (torch.stack(ends) - x).mean(0)
    return x


def test_as_in_the_paper() -> None:
    """Anything else than its algorithm where the mean is downloaded: control variates, their signs, their lengths."""
    torch.manual_seed(1)
    network = Perceptron(64, 64, 10)
    data = digits(Federation(participants=5, seed=1), split="UNI")
    expected = scaffold(data, network, 4)
    module, plain = (federate(FedAvg(), rounds=4, split="UNI", scaffold=asked) for asked in (True, False))
    torch.testing.assert_close(module.cohort.weights[0], expected, rtol=1e-4, atol=1e-5)
    assert (plain.cohort.weights[0] - expected).norm() > 100 * (module.cohort.weights[0] - expected).norm()


@pytest.mark.parametrize("seed", range(5))
def test_the_formula_on_random_vectors(seed: int) -> None:
    """Signs and lengths of what is added, round by round, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    found, expected = Corrections(), torch.zeros(50, dtype=torch.float64)
    for _ in range(4):
        update, step = torch.randn(2, 50, generator=generator, dtype=torch.float64)
        step[:10] = 0  # which were not downloaded
        way = float(torch.rand((), generator=generator)) + 0.1
        met = -update / way - expected
        expected = -step / way - met
        expected[:10] = 0
        found.trained(3, update, way)
        found.downloaded(3, step, whole=False)
        found.end_round()
        shift = found.of(3)
        assert shift is not None
        torch.testing.assert_close(shift, expected, rtol=1e-12, atol=1e-12)
        assert found.of(0) is None


def test_steps_that_die_out() -> None:
    """Near the optimum steps of exactly 0 pass for entries that were not downloaded, and everybody leaves it again.

    Ten participants minimise squared distances to points of their own, five of them in every round.
    """
    points = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    drawn, corrections, weights = random.Random(0), Corrections(), torch.zeros(3)
    for _ in range(200):
        asked, updates = drawn.sample(range(10), 5), {}
        for i in asked:
            local, shift = weights.clone(), corrections.of(i)
            for _ in range(6):
                local -= 0.1 * (local - points[i] + (0 if shift is None else shift))
            updates[i] = local - weights
            corrections.trained(i, updates[i], 6 * 0.1)
        step = torch.stack([*updates.values()]).mean(0)
        weights += step
        for i in asked:
            corrections.downloaded(i, step, whole=True)
        corrections.end_round()
    torch.testing.assert_close(weights, points.mean(0), rtol=0, atol=1e-6)


class OwnHead(FedAvg):
    """The last bias stays with its owner."""

    gives_all = False

    def kept(self, update: Tensor) -> Tensor:
        return update - self.outgoing(update, {}, update)

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        sent = update.clone()
        sent[-self.layers[-1] :] = 0
        return sent


@pytest.mark.parametrize(
    ("server", "zeros"),
    [(FedAvg(), False), (IAFL(), False), (RFFL(), True), (OwnHead(), True), (Bucketing(rule=OwnHead()), True)],
)
def test_what_a_zero_says(server: Server, zeros: bool) -> None:
    """An entry that a sparse reward left out is taken for one of a step, or the other way."""
    module = federate(server, rounds=2, scaffold=True)
    parts = [shift for shift in added(module) if shift is not None]
    assert any(bool((shift == 0).any()) for shift in parts) == zeros


def test_who_is_not_corrected() -> None:
    """Somebody goes on by what it downloaded before it was shut out, or by what is no number."""
    one = torch.ones(4)
    for update, step in ((one, None), (one * torch.nan, one), (one, one * torch.inf)):
        found = Corrections()
        found.trained(0, one, 1.0)
        found.downloaded(0, -one, whole=True)
        found.end_round()
        assert found.of(0) is not None
        found.end_round()  # a round that it is not asked in
        assert found.of(0) is not None
        found.trained(0, update, 1.0)
        if step is not None:
            found.downloaded(0, step, whole=True)
        found.end_round()
        assert found.of(0) is None
    found.downloaded(0, one, whole=True)  # without training
    assert found.of(0) is None


class Chooser(RFFL):
    """Removes the first two participants in the second round."""

    def rule(self, evidence: Evidence) -> Verdict:
        verdict = super().rule(evidence)
        if self.round != 2:
            return verdict
        self.members = self.members & (torch.arange(len(self.members)) > 1)
        return dataclasses.replace(verdict, members=self.members, removed=(0, 1))


def test_whoever_is_removed_trains_alone() -> None:
    """It is drawn on to where the federation went when it was a member."""
    module = federate(Chooser(removal_from="never"), rounds=3, scaffold=True)
    assert [shift is None for shift in added(module)] == [True, True, False, False, False]


def test_a_label_flipper_is_corrected_and_a_model_of_ones_own_is_not() -> None:
    """Whoever trains is corrected, but for models that never travel."""
    module = federate(FedAvg(), [LabelFlip()], rounds=2, scaffold=True, personal=0.5)
    assert all(shift is not None for shift in added(module))
    assert module.personal is not None
    assert module.personal.corrections is None


def test_training_alone_is_the_same(tmp_path: Path) -> None:
    """What everybody reaches alone is trained again, since it trains with others in another way."""
    for asked in (False, True):
        federate(FedAvg(), [], StandaloneReference(cache_dir=str(tmp_path)), rounds=2, scaffold=asked)
    assert len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize("stacked", [False, True])
def test_a_correction_is_everybodys_own(stacked: bool) -> None:
    """A stack adds somebody's to another, or anything to those without one, or forgets it where batches run out."""
    sizes = {0: 28, 1: 9, 2: 40, 3: 17}
    shards = {i: examples(i, n) for i, n in sizes.items()}
    torch.manual_seed(0)
    cohort = Cohort(mlp(), list(sizes), sgd, CPU, stacked=stacked, scaffold=True)
    assert cohort.corrections is not None
    cohort.train_all(shards, Schedule(epochs=2), 0, {i: i for i in sizes})
    steps = {i: 0.1 * torch.randn(cohort.weights.shape[1], generator=torch.Generator().manual_seed(i)) for i in (0, 2)}
    for i in sizes:
        cohort.take_update(i)
        if i in steps:
            cohort.download(i, steps[i], whole=True)
    cohort.corrections.end_round()
    shifts = [cohort.corrections.of(i) for i in sizes]
    assert [shift is None for shift in shifts] == [False, True, False, True]
    starts = cohort.weights.clone()
    cohort.train_all(shards, Schedule(epochs=2), 1, {i: 10 + i for i in sizes})
    for i in sizes:
        expected = alone(starts[i], shards[i], shifts[i], 10 + i)
        torch.testing.assert_close(cohort.weights[i], expected, rtol=1e-5, atol=1e-5)


def alone(start: Tensor, shard: Examples, shift: Tensor | None, seed: int) -> Tensor:
    """The second round of somebody's training in plain steps."""
    network, schedule = mlp().train(), Schedule(epochs=2)
    nn.utils.vector_to_parameters(start.clone(), network.parameters())
    torch.manual_seed(seed)
    for epoch in range(2):
        for x, y in shard.epoch():
            gradients = torch.autograd.grad(cross_entropy(network(x), y), [*network.parameters()])
            step = torch.cat([g.flatten() for g in gradients]) + (0 if shift is None else shift)
            with torch.no_grad():
                moved = flat_parameters(network) - 0.3 * schedule.rate(1, epoch) * step
            nn.utils.vector_to_parameters(moved, network.parameters())
    return flat_parameters(network)


@pytest.mark.slow
def test_two_ranks_and_going_on(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Other bits on two ranks that share the server, or a run that goes on forgets what its participants add."""
    run = (
        *RUN, "--federation.participation", 0.7, "--server.removal_from", 1, "--server.alpha", 0,
        "--server.similarity", "leave_one_out",
    )  # fmt: skip
    checkpoint = assert_goes_on(rffl, run, tmp_path, "--exchange", "sharded")
    without = (*RUN[:-2], *run[len(RUN) :], "--ckpt_path", checkpoint, "--run.root", tmp_path / "without")
    assert rffl(*without).code == 0  # and without them it goes on as others do
    first, last = (RunFolder.open(only_run(tmp_path / name)).summary().final for name in ("whole", "without"))
    assert first != last


def test_a_checkpoint_of_a_run_without(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """It cannot be gone on from with corrections, which begin in the round after."""
    plain = (*RUN[:-2], "--trainer.max_epochs", 1, "--run.root", tmp_path / "begun")
    assert rffl(*plain).code == 0
    checkpoint = only_run(tmp_path / "begun") / "checkpoints" / "last.ckpt"
    ended = rffl(*RUN, "--ckpt_path", checkpoint, "--run.root", tmp_path / "on")
    assert ended.code == 0, ended.err
    assert "model.scaffold" in ended.err  # named among what differs


def two_rates(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """One layer slower than the rest."""
    first, *rest = parameters
    groups: list[dict[str, Any]] = [{"params": [first], "lr": 0.01}, {"params": rest}]
    return torch.optim.SGD(groups, lr=0.1)


@pytest.mark.parametrize(
    ("optimizer", "named"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "SGD with momentum; give --model.optimizer.momentum 0"),
        (lambda p: torch.optim.Adam(p, lr=0.01), "Adam; give torch.optim.SGD"),
        (two_rates, "SGD with several learning rates; give it one"),
        (lambda p: torch.optim.SGD(p, lr=0.1, maximize=True), "SGD that maximises; give --model.optimizer.maximize fa"),
    ],
)
def test_another_optimizer(optimizer: Callable[..., torch.optim.Optimizer], named: str) -> None:
    """Its updates are taken for mean gradients, which they are not."""
    with pytest.raises(UserError, match=rf"without momentum with --model\.scaffold, .* but got {named}"):
        federate(FedAvg(), optimizer=optimizer, scaffold=True)
    federate(FedAvg(), optimizer=optimizer, rounds=1)


@pytest.mark.parametrize(
    ("server", "named"),
    [
        (FedOpt(), "FedOpt"),
        (SignSGD(), "SignSGD"),
        (QFFL(), "QFFL"),
        (NNM(rule=QFFL()), "QFFL"),
        (FoolsGold(scale="sum"), "FoolsGold"),
        (FLAME(), "FLAME"),
        (NNM(rule=NormBound(noise=1)), "NormBound"),
        (CFFL(), "CFFL"),
        (RFFL(preset="paper"), "RFFL"),
        (RFFL(subtract_own=True), "RFFL"),
    ],
)
def test_steps_that_are_no_means_of_updates(server: Server, named: str) -> None:
    """They are fed back through the next updates: models diverge in silence."""
    with pytest.raises(UserError, match=rf"whose steps are means of updates with --model\.scaffold, .* got {named},"):
        federate(server, scaffold=True)


@pytest.mark.parametrize(
    ("server", "mend"),
    [
        (FLAME(), "--server.noise_factor 0"),
        (NNM(rule=NormBound(noise=1)), "--server.rule.noise 0"),
        (FoolsGold(scale="sum"), "--server.scale mean"),
        (RFFL(preset="paper"), "--server.subtract_own false"),
    ],
)
def test_what_makes_them_means_of_updates(server: Server, mend: str) -> None:
    """A rule is to be left that an option of its own would do for."""
    with pytest.raises(UserError, match=f"; give {re.escape(mend)}, or leave one"):
        check_corrections(server)


def test_a_batch_that_is_left_out_is_no_step() -> None:
    """Under batch normalisation one of a single example: mean gradients would be too small by its share."""
    cohort = Cohort(batchnorm(), [0], sgd, CPU, scaffold=True)
    cohort.train(0, examples(0, n=17), Schedule(epochs=2, decay=0.5), 0, seed=1)  # of 8, 8 and 1
    update = cohort.take_update(0).clone()
    assert cohort.corrections is not None
    step = torch.zeros_like(update)
    step[0] = 1.0
    cohort.corrections.downloaded(0, step, whole=True)
    added = cohort.corrections.of(0)
    rate = cohort.optimizers[0].param_groups[0]["lr"] / 0.5
    way = 2 * rate + 2 * 0.5 * rate
    assert added is not None
    torch.testing.assert_close(added[0], (update[0] - step[0]) / way)


def test_nothing_is_shared() -> None:
    """Nobody downloads anything to be corrected by, and the option does nothing."""
    with pytest.raises(UserError, match=r"something to share with --model\.scaffold, but got Standalone"):
        federate(Standalone(), scaffold=True)


def test_models_that_do_not_fit() -> None:
    """The vector that each participant adds is not counted, or the option that asks for it is not named."""
    room = memory(torch.device("cpu"))
    check_memory(room // 25, 2, torch.device("cpu"), {"--model.scaffold": 1})
    with pytest.raises(UserError, match=r"they need .* leave --model\.scaffold out, lower"):
        check_memory(room // 23, 2, torch.device("cpu"), {"--model.personal": 0, "--model.scaffold": 1})
