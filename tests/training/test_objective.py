"""What participants minimise, where that needs more than logits and classes."""

from __future__ import annotations

import copy
import functools
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.functional.fingerprints import fingerprints
from rffl_pl.models import Perceptron
from rffl_pl.module import FederatedModule
from rffl_pl.rehearsal.first_step import check_objective
from rffl_pl.runs import RunFolder
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.objective import LocalRound, Objective
from rffl_pl.training.parameters import flat_parameters
from rffl_pl.training.schedule import Schedule
from tests.cli.folders import assert_same_bits
from tests.cohorts import CPU, FEDERATION, Shuffled, adam, batchnorm, dropout, examples, mlp, momentum, sgd, train_round
from tests.conftest import QUICK, Ended, only_run
from tests.ranks import forked
from tests.runs import kept_in

HERE = "tests.training.test_objective"
RUN = (
    "fit", "--config", "configs/digits.yaml", "--federation.participants", 3, "--federation.adversaries", 1,
    "--adversaries", "[LabelFlip]", "--data.examples_per_participant", 40, "--data.adversary_examples", 40,
    "--trainer.max_epochs", 4, *QUICK,
)  # fmt: skip


class FedDyn(Objective):
    """Somebody's own: the participant's half of Acar et al. 2021, with a memory of gradients."""

    def __init__(self, *, alpha: float = 0.1) -> None:
        self.alpha = alpha

    def begin(self, network: nn.Module, local: LocalRound) -> None:
        local.memory["start"] = flat_parameters(network)
        local.memory.setdefault("gradient", torch.zeros_like(local.memory["start"]))

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        weights = torch.cat([p.flatten() for p in network.parameters()])
        away = weights - local.memory["start"]
        rest = self.alpha / 2 * away @ away - local.memory["gradient"] @ weights
        return local.criterion(network(x), y) + rest

    def end(self, network: nn.Module, local: LocalRound) -> None:
        local.memory["gradient"] -= self.alpha * (flat_parameters(network) - local.memory["start"])


class Jittered(FedDyn):
    """Likewise, and it draws."""

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        return super().loss(network, x + 0.1 * torch.randn_like(x), y, local)


class Failing(FedDyn):
    """Somebody's own, which is no number in the second round of participant 1, and counts what it is called for."""

    def begin(self, network: nn.Module, local: LocalRound) -> None:
        super().begin(network, local)
        local.memory["begun"] = local.memory.get("begun", torch.zeros(())) + 1

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        failing = local.round == 1 and local.participant == 1
        return super().loss(network, x, y, local) * (float("nan") if failing else 1.0)

    def end(self, network: nn.Module, local: LocalRound) -> None:
        super().end(network, local)
        local.memory["ended"] = local.memory.get("ended", torch.zeros(())) + 1


class Raising(FedDyn):
    """Somebody's own, with a mistake that comes late."""

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        if local.round == 2 and local.participant == 1:
            raise KeyError("teacher")
        return super().loss(network, x, y, local)


class Plain(Objective):
    """The loss by another name."""

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        return local.criterion(network(x), y)


class Counting(Plain):
    """Somebody's own, which keeps to itself what belongs to a participant."""

    seen = 0

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        self.seen += 1
        return super().loss(network, x, y, local)


class Drifting(Plain):
    """Likewise in a tensor."""

    def __init__(self) -> None:
        self.mean = torch.zeros(1)

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        self.mean += 1
        return super().loss(network, x, y, local)


class EachExample(Plain):
    """Somebody's own, which forgets the mean."""

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        return cross_entropy(network(x), y, reduction="none")


class Detached(Plain):
    """Somebody's own, by which nothing can be trained."""

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        return super().loss(network, x, y, local).detach()


class Named(Plain):
    """Somebody's own, which remembers a word."""

    def end(self, network: nn.Module, local: LocalRound) -> None:
        local.memory["phase"] = "trained"  # type: ignore[assignment]


class Projecting(Plain):
    """Somebody's own, with a layer that learns."""

    def __init__(self) -> None:
        self.head = {"layers": [nn.Linear(3, 3)]}

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        (head,) = self.head["layers"]
        with torch.no_grad():
            head.weight += 1
        return local.criterion(head(network(x)), y)


class Shuffling(Plain):
    """Somebody's own, with a stream that goes on from participant to participant."""

    def __init__(self) -> None:
        self.draw = np.random.default_rng(1)

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        return super().loss(network, x, y, local) * self.draw.random()


class Sharing(Plain):
    """Somebody's own, whose class keeps what belongs to a participant."""

    losses: ClassVar[list[float]] = []

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        loss = super().loss(network, x, y, local)
        self.losses.append(float(loss))
        return loss


class Locked(Plain):
    """Somebody's own, of which there is no second."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Late(Plain):
    """Somebody's own, with a mistake that no rehearsal sees."""

    def __init__(self, *, what: str) -> None:
        self.what = what

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        loss = super().loss(network, x, y, local)
        if local.round < 2:
            return loss
        if self.what == "word":
            local.memory.update(cast("dict[str, Tensor]", {"phase": "late"}))
        if self.what == "backward":
            loss.backward()
        wrong = {"vector": network(x), "detached": loss.detach(), "number": float(loss)}
        return cast("Tensor", wrong.get(self.what, loss))


class Learning(Plain):
    """Somebody's own, with a temperature that each participant learns, and a teacher that is asked in the beginning."""

    def begin(self, network: nn.Module, local: LocalRound) -> None:
        local.memory.setdefault("heat", torch.ones((), requires_grad=True))
        local.memory["teacher"] = network(torch.ones(4, 1, 8, 8)).mean(0)

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        heat = local.memory["heat"]
        logits = network(x)
        loss: Tensor = local.criterion(logits * heat, y) + 0.1 * (logits - local.memory["teacher"]).square().mean()
        (slope,) = torch.autograd.grad(loss, heat, retain_graph=True)
        local.memory["heat"] = (heat - 0.1 * slope).detach().requires_grad_()
        network.eval()
        return loss


class Dropping(Perceptron):
    """What it gives depends on its mode."""

    def __init__(self) -> None:
        super().__init__()
        self.insert(1, nn.Dropout(0.3))


class Wrong(Plain):
    """Somebody's own, which asks for what is not there in its second round."""

    def begin(self, network: nn.Module, local: LocalRound) -> None:
        if local.round:
            local.memory["teacher"]


def newcomer(make: Callable[[], nn.Module], participant: int, optimizer: Any, rounds: int, alpha: float) -> Tensor:
    """The weights of FedDyn in a plain loop: two epochs a round, which begins where the last has ended."""
    network = make().train()
    stepper = optimizer(network.parameters())
    rate, gradient = stepper.param_groups[0]["lr"], torch.zeros(len(flat_parameters(network)))
    for number in range(rounds):
        torch.manual_seed(FEDERATION.seed_for("training", participant, number))
        start = flat_parameters(network)
        for epoch in range(2):
            stepper.param_groups[0]["lr"] = rate * 0.9 ** (2 * number + epoch)
            for x, y in examples(participant).epoch():
                stepper.zero_grad()
                cross_entropy(network(x), y).backward()
                added = alpha * (flat_parameters(network) - start) - gradient
                sizes = [p.numel() for p in network.parameters()]
                for parameter, part in zip(network.parameters(), added.split(sizes), strict=True):
                    assert parameter.grad is not None
                    parameter.grad += part.view_as(parameter)
                stepper.step()
        gradient -= alpha * (flat_parameters(network) - start)
    return flat_parameters(network)


@pytest.mark.parametrize("make", [mlp, dropout])
@pytest.mark.parametrize("optimizer", [sgd, momentum, adam])
def test_training_is_what_a_newcomer_would_write(make: Callable[[], nn.Module], optimizer: Any) -> None:
    """The weights are a plain loop's, of each of two participants, and not those of the loss alone."""
    cohorts = [Cohort(make(), [1, 4], optimizer, CPU, objective=each) for each in (FedDyn(alpha=0.2), None)]
    for number in range(3):
        for cohort in cohorts:
            train_round(cohort, {i: examples(i) for i in (1, 4)}, Schedule(epochs=2, decay=0.9), FEDERATION, number)
    for index, participant in enumerate([1, 4]):
        expected = newcomer(make, participant, optimizer, 3, 0.2)
        torch.testing.assert_close(cohorts[0].weights[index], expected, atol=1e-5, rtol=1e-4)
        assert not torch.allclose(cohorts[1].weights[index], expected, atol=1e-2)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_loss_by_another_name(precision: str) -> None:
    """Gives the bits of the loss, one's own loss too, proximal terms and batch normalisation beside it."""
    shards = {0: examples(0), 1: Shuffled(examples(1).x[:25], examples(1).y[:25])}  # a last mini-batch of one
    for loss in (None, nn.CrossEntropyLoss(label_smoothing=0.2)):
        cohorts = [Cohort(batchnorm(), [0, 1], sgd, CPU, loss=loss, objective=each) for each in (Plain(), None)]
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed"):
            losses = [train_round(cohort, shards, Schedule(proximal=0.1), FEDERATION, 0) for cohort in cohorts]
        assert losses[0] == losses[1]
        assert torch.equal(cohorts[0].weights, cohorts[1].weights)


def test_corrected_steps_beside_it() -> None:
    """They are those of the loss by its own name."""
    cohorts = [Cohort(mlp(), [0, 1], sgd, CPU, scaffold=True, objective=each) for each in (Plain(), None)]
    for number in range(3):
        for cohort in cohorts:
            train_round(cohort, {i: examples(i) for i in (0, 1)}, Schedule(epochs=1), FEDERATION, number)
            step = torch.stack([cohort.take_update(i).clone() for i in (0, 1)]).mean(0)
            for i in (0, 1):
                cohort.download(i, step, whole=True)
        assert torch.equal(cohorts[0].weights, cohorts[1].weights)
    assert cohorts[0].corrections is not None
    assert cohorts[0].corrections.of(0) is not None


def test_a_round_that_fails_is_forgotten() -> None:
    """Model and memory go back to before it, of whom it concerns alone, and the next one goes on from there."""
    cohort, before = Cohort(mlp(), [0, 1], sgd, CPU, objective=Failing()), {}
    for number in range(3):
        train_round(cohort, {i: examples(i) for i in (0, 1)}, Schedule(epochs=1), FEDERATION, number)
        if number == 0:
            before = {name: value.clone() for name, value in cohort.objective_memories[1].items()}
            weights = cohort.weights[1].clone()
        elif number == 1:
            assert cohort.take_update(1).isnan().all()
            assert torch.equal(cohort.weights[1], weights)
            assert {*cohort.objective_memories[1]} == {*before} == {"start", "gradient", "begun", "ended"}
            for name, value in cohort.objective_memories[1].items():
                assert torch.equal(value, before[name]), name
    told = [{name: float(memory[name]) for name in ("begun", "ended")} for memory in cohort.objective_memories]
    assert told == [{"begun": 3, "ended": 3}, {"begun": 2, "ended": 2}]


class Replacing(FedDyn):
    """Somebody's own, which puts a head of its own back in the usual way, and it is nobody's part any more."""

    def begin(self, network: nn.Module, local: LocalRound) -> None:
        super().begin(network, local)
        last = [*network.parameters()][-1]
        last.data = local.memory.setdefault("head", torch.zeros_like(last)).clone()


class Freezing(FedDyn):
    """Somebody's own, which trains the body alone, and no checkpoint has the head."""

    def begin(self, network: nn.Module, local: LocalRound) -> None:
        super().begin(network, local)
        [*network.parameters()][-1].requires_grad_(False)

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        return local.criterion(network(x), y)

    def end(self, network: nn.Module, local: LocalRound) -> None:
        """Nothing."""


class Viewing(FedDyn):
    """Somebody's own, which keeps last round's weights without copying them."""

    def begin(self, network: nn.Module, local: LocalRound) -> None:
        if local.round == 0:
            local.memory.update(self._seen(network))

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, local: LocalRound) -> Tensor:
        away = [(p - local.memory[name]).square().sum() for name, p in network.named_parameters()]
        return local.criterion(network(x), y) + torch.stack(away).sum()

    def end(self, network: nn.Module, local: LocalRound) -> None:
        local.memory.update(self._seen(network))

    def _seen(self, network: nn.Module) -> dict[str, Tensor]:
        return network.state_dict()


class Copying(Viewing):
    """Likewise, of copies."""

    def _seen(self, network: nn.Module) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in network.state_dict().items()}


def test_memory_that_training_would_write_to() -> None:
    """It would be the weights of now, not those that were kept, and after an interruption others again."""
    found = []
    for kind in (Viewing, Copying):
        cohort = Cohort(batchnorm(), [0], sgd, CPU, objective=kind())
        for number in range(3):
            train_round(cohort, {0: examples(0)}, Schedule(epochs=2), FEDERATION, number)
        found.append(cohort.weights[0].clone())
    assert torch.equal(*found)


REFUSED = {
    Replacing: r"--model.objective Replacing to change parameters in place, but it gives \S+ another tensor, and what",
    Freezing: r"--model.objective Freezing to leave requires_grad of parameters as it is, but that of \S+ changes",
    Counting: "not to change itself during use, since one object serves all participants of a process, but its attrib",
    Drifting: "but its attribute mean changes",
    Projecting: "but its attribute head changes",
    Shuffling: "but its attribute draw changes",
    Sharing: "but its attribute losses changes",
    Locked: "Locked to be copied, but TypeError: cannot pickle '_thread.lock' object",
    EachExample: r"to be one number for a batch, which the network can be trained by, but got shape \[8\]",
    Detached: "but got one that depends on no parameter",
    Named: "to remember tensors, which a checkpoint keeps, but its memory has phase of type str; give torch.tensor",
    Wrong: rf"Expected --model.objective {HERE}.Wrong to train a participant, but KeyError: 'teacher' \(test_objective",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_objective_is_told_before_a_run(kind: type[Objective]) -> None:
    """In one sentence that says what to change; network and objective are left as they were."""
    network, objective = mlp(), kind()
    before, kept = copy.deepcopy(network.state_dict()), fingerprints(objective)
    with pytest.raises(UserError, match=REFUSED[kind]):
        check_objective(objective, sgd, network, torch.randn(8, 6), torch.arange(8) % 3, cross_entropy)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert kept == fingerprints(objective) or kind is Sharing  # what classes share is nobody's copy


def test_what_is_one_is_taken() -> None:
    """Whatever it keeps that stays as it is."""
    objective = FedDyn()
    objective.teacher, objective.table = mlp(), torch.full((3,), float("nan"))  # type: ignore[attr-defined]
    for network in (mlp(), batchnorm(), dropout()):
        check_objective(objective, sgd, network, torch.randn(8, 6), torch.arange(8) % 3, cross_entropy)


@pytest.mark.slow
def test_runs(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Two ranks and going on give the bits of one process; a mistake that comes late is one sentence; memories last."""
    run = (*RUN, "--model.objective", f"{HERE}.Jittered", "--model.objective.alpha", 0.3)
    assert rffl(*run, "--run.root", tmp_path / "whole").code == 0
    whole = only_run(tmp_path / "whole")
    assert rffl(*run, "--trainer.max_epochs", 2, "--run.root", tmp_path / "begun").code == 0
    last = only_run(tmp_path / "begun") / "checkpoints" / "last.ckpt"
    ended = forked(2, *run, "--ckpt_path", last, root=tmp_path / "on")
    assert ended.code == 0, ended.err
    assert_same_bits(whole, only_run(tmp_path / "on"))
    states = [
        kept_in(folder / "checkpoints" / "last.ckpt")["federation"]["participants"]
        for folder in (whole, only_run(tmp_path / "on"))
    ]
    for participant in range(4):  # the label-flipper, which trains, too
        one, other = (state[participant]["objective"] for state in states)
        assert one.keys() == other.keys() == {"start", "gradient"}
        assert all(torch.equal(one[name], other[name]) for name in one)
        assert one["gradient"].any()

    changed = ("--model.objective.alpha", 0.5, "--ckpt_path", last, "--run.root", tmp_path / "changed")
    assert "--model.objective.alpha 0.3 -> 0.5" in " ".join(rffl(*run, *changed).err.split())
    without = rffl(*RUN, "--ckpt_path", last, "--run.root", tmp_path / "without")
    assert "--model.objective Jittered -> None" in " ".join(without.err.split())
    late = rffl(*RUN, "--model.objective", f"{HERE}.Raising", "--run.root", tmp_path / "late")
    assert late.code == 2
    assert "Raising to train participant 1 in round 3, but KeyError: 'teacher' (test_objective.py, line" in late.err
    assert "mend it and go on with --ckpt_path last." in late.err


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("word", "to remember tensors, which a checkpoint keeps, but its memory has phase of type str; give torch."),
        ("vector", "to be one number for a batch, which the network can be trained by, but got shape [8, 3]"),
        ("detached", "but got one that depends on no parameter"),
        ("number", "but got float"),
        ("backward", "Late to train participant 4 in round 3, but RuntimeError: Trying to backward through the graph"),
    ],
)
def test_mistakes_that_come_late(what: str, expected: str) -> None:
    """They are one sentence too."""
    cohort = Cohort(mlp(), [4], sgd, CPU, objective=Late(what=what))
    for number in range(2):
        train_round(cohort, {4: examples(4)}, Schedule(epochs=1), FEDERATION, number)
    with pytest.raises(UserError) as refusal:
        train_round(cohort, {4: examples(4)}, Schedule(epochs=1), FEDERATION, 2)
    assert expected in str(refusal.value)


@pytest.mark.slow
def test_what_it_learns_and_the_mode_of_the_network(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Models are measured in between, not all of them, and a run goes on: its bits are those of one process."""
    run = (
        *RUN, "--server", "FedAvg", "--model.objective", f"{HERE}.Learning", "--model.network", f"{HERE}.Dropping",
    )  # fmt: skip
    assert rffl(*run, "--run.root", tmp_path / "whole").code == 0
    assert rffl(*run, "--trainer.max_epochs", 2, "--run.root", tmp_path / "begun").code == 0
    last = only_run(tmp_path / "begun") / "checkpoints" / "last.ckpt"
    ended = forked(2, *run, "--ckpt_path", last, "--trainer.check_val_every_n_epoch", 2, root=tmp_path / "on")
    assert ended.code == 0, ended.err
    folders = [only_run(tmp_path / name) for name in ("begun", "whole", "on")]
    states = [kept_in(folder / "checkpoints" / "last.ckpt")["federation"]["participants"] for folder in folders]
    for i in range(4):
        early, one, other = (state[i]["objective"] for state in states)
        assert torch.equal(one["heat"], other["heat"])
        assert not torch.equal(early["heat"], one["heat"])
        whole, gone_on = (state[i]["network"] for state in states[1:])
        assert all(torch.equal(value, gone_on[name]) for name, value in whole.items())


def test_another_class_remembers_nothing_of_this_one() -> None:
    """It would find names of another's, or its own with another's meaning."""
    cohort = Cohort(mlp(), [0], sgd, CPU, objective=FedDyn())
    train_round(cohort, {0: examples(0)}, Schedule(epochs=1), FEDERATION, 0)
    state = cohort.state_dict(0)
    for objective, known in ((FedDyn(), {"start", "gradient"}), (Failing(), set())):
        other = Cohort(mlp(), [0], sgd, CPU, objective=objective)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            other.load_state_dict(0, state)
        assert {*other.objective_memories[0]} == known
        told = f"empty memory of --model.objective {__name__}.Failing, since the checkpoint's is of {__name__}.FedDyn;"
        assert [told in str(one.message) for one in caught] == [True] * (not known)


@pytest.mark.slow
def test_what_trains_without(rffl: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standalone references are those of the loss alone, to the bit, and models of one's own remember nothing.

    Runs are told apart by it.
    """
    run = (*RUN, "--standalone.enabled", "true", "--server", "FedAvg", "--model.personal", 0.5)
    found = []
    for name, more in {
        "plain": (),
        "own": ("--model.objective", f"{HERE}.FedDyn", "--model.objective.alpha", 5),
    }.items():
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache of {name}"))  # each trains its own
        ended = rffl(*run, *more, "--run.root", tmp_path / name)
        assert ended.code == 0, ended.err
        found.append(only_run(tmp_path / name))
    plain, own = (RunFolder.open(folder).summary() for folder in found)
    assert plain.standalone == own.standalone
    state = kept_in(found[1] / "checkpoints" / "last.ckpt")["federation"]["participants"][0]
    models = [torch.load(folder / "weights" / "participant_3.pt")["1.weight"] for folder in found]  # a shared one
    assert "objective" in state
    assert "objective" not in state["personal"]
    assert not torch.equal(*models)
    listed = rffl("compare", tmp_path / "plain", tmp_path / "own", "--out", tmp_path / "page.html")
    assert "--model.objective" in listed.out
    assert "FedDyn" in listed.out


def test_a_stack_that_is_asked_for(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Each trains by itself, and the run says why."""
    for more, told in (((), False), (("--model.objective", f"{HERE}.FedDyn"), True)):
        ended = rffl(*RUN, *more, "--trainer.max_epochs", 1, "--model.engine", "stacked")
        assert ended.code == 0, ended.err
        assert ("since --model.objective trains each by itself" in " ".join(ended.err.split())) == told


def test_in_python() -> None:
    """A class in place of an instance is told of."""
    made = functools.partial(FederatedModule, Federation(participants=2), Perceptron(64, 8, 10))
    with pytest.raises(UserError, match=r"an instance of rffl_pl\.Objective, but got <class"):
        made(objective=FedDyn)  # type: ignore[arg-type]
    assert made(objective=FedDyn(alpha=0.2)).objective is not None
