"""What everybody reaches alone: of the honest for fairness, of adversaries to tell what they took."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from rffl_pl.callbacks import StandaloneReference
from rffl_pl.callbacks.standalone import _logits
from rffl_pl.datamodules import Augmentation, Digits
from rffl_pl.federation import Federation
from rffl_pl.models import Perceptron
from rffl_pl.module import FederatedModule
from rffl_pl.runs import RunFolder
from rffl_pl.runs.shown import points, table_of
from rffl_pl.servers import FedAvg
from rffl_pl.trainer import federated_trainer
from tests.callbacks.own import Functional
from tests.conftest import QUICK, Ended
from tests.own_data import Augmented
from tests.runs import federate, kept_in

DIGITS = ("fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.max_epochs", 3)


def run_of(rffl: Callable[..., Ended], tmp_path: Path, name: str, *args: object) -> tuple[RunFolder, Ended]:
    """A run of that name."""
    ended = rffl(*DIGITS, "--run.name", name, *args)
    assert ended.code == 0, ended.err
    (folder,) = (tmp_path / "runs" / name).iterdir()
    return RunFolder.open(folder), ended


def test_what_the_adversary_took(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Its reference is what an honest participant with its examples reaches where nobody communicates.

    Read again from the cache, everything is the same; fairness goes by the honest alone.
    """
    flip = ("--config", "configs/adversaries/label_flip.yaml", "--standalone.enabled", "true")
    run, ended = run_of(rffl, tmp_path, "attacked", *flip)
    summary = run.summary()
    pretended = "[{'class_path': 'tests.callbacks.pretended.Honest'}]"
    alone, _ = run_of(rffl, tmp_path, "honest", "--server", "Standalone", "--adversaries", pretended)
    assert summary.standalone == pytest.approx(alone.summary().final)
    assert summary.adversary_standalone == pytest.approx(summary.standalone[5])
    assert summary.adversary_final == pytest.approx(summary.final[5])
    assert summary.adversary_gain == pytest.approx(summary.final[5] - summary.standalone[5], abs=1e-6)  # type: ignore[operator]
    assert f"the initial network has {summary.initial:.1%}" in ended.out
    gains = torch.tensor(summary.final[:5]) - torch.tensor(summary.standalone[:5])
    assert summary.gain == pytest.approx(gains.mean().item(), abs=1e-6)
    again, _ = run_of(rffl, tmp_path, "again", *flip)
    assert again.summary() == summary


def test_what_is_taken_home(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """A free-rider's own work is the initial network, a label flipper's is training alone, as is that of who is honest
    for a while; older runs still read.

    All of it agrees with the summary's own lists, and who was removed when with the rounds.
    """
    attacks: list[dict[str, Any]] = [
        {"class_path": f"rffl_pl.adversaries.{name}"} for name in ("FreeRider", "LabelFlip", "OnOff")
    ]
    attacks[2] |= {"init_args": {"honest": 1}}
    who = ("--adversaries", json.dumps(attacks), "--federation.adversaries", 3, "--standalone.enabled", "true")
    small = ("--data.examples_per_participant", 40, "--data.adversary_examples", 8)
    run, ended = run_of(rffl, tmp_path, "taken", *who, *small, "--server.removal_from", 2)
    summary, last = run.summary(), run.rounds()[-1]
    alone, final = ([value or 0.0 for value in side] for side in (summary.standalone, summary.final))
    initial = summary.initial or math.nan
    taken = [final[5] - initial, final[6] - alone[6], final[7] - alone[7]]
    assert summary.taken == pytest.approx(sum(taken) / 3, abs=1e-6)
    assert summary.taken_most == pytest.approx(max(taken), abs=1e-6)
    assert summary.adversary_over_initial == pytest.approx(sum(final[5:]) / 3 - initial, abs=1e-6)
    smallest = min(range(5), key=lambda i: summary.examples[i])
    gain = final[smallest] - alone[smallest]
    assert summary.smallest_gain == pytest.approx(gain, abs=1e-6)
    assert summary.taken_share == pytest.approx(max(taken) / gain, rel=1e-4)
    mean, most = points(sum(taken) / 3), points(max(taken))
    assert f"taken: {mean} over what their own work gives, {most} at most" in ended.out
    removals = [(entry.number, i) for entry in run.rounds() for i in entry.removed]
    rounds = [number for number, i in removals if i >= 5]
    assert rounds
    assert (summary.first_removal, summary.last_removal) == (min(rounds), max(rounds))
    assert summary.honest_removed == 5 - sum(last.members[:5]) == len(removals) - len(rounds)
    assert f" {100 * (summary.taken or 0):+.1f}" in rffl("compare", run.path, "--out", tmp_path / "page.html").out
    content = json.loads(run.summary_file.read_text())
    new = ("taken", "taken_most", "taken_share", "smallest_gain", "adversary_over_initial", "honest_removed")
    old = {name: value for name, value in content.items() if name not in (*new, "first_removal", "last_removal")}
    run.summary_file.write_text(json.dumps(old))
    assert [getattr(run.summary(), name) for name in new] == [None] * len(new)
    assert "taken" not in table_of(run.summary())
    assert rffl("compare", run.path, "--out", tmp_path / "page.html").code == 0


def test_the_initial_network(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Its accuracy is that of the weights that checkpoints have as everybody's start, on the test set."""
    run, _ = run_of(rffl, tmp_path, "start", "--standalone.enabled", "true")
    from sklearn.datasets import load_digits

    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x, test = x.float(), torch.arange(len(y)) % 5 == 4
    x = (x - x[~test].mean()) / x[~test].std()
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
    start = kept_in(run.checkpoints / "last.ckpt")["state_dict"]
    network.load_state_dict({name.removeprefix("network."): value for name, value in start.items()})
    accuracy = (network(x[test]).argmax(1) == y[test]).float().mean().item()
    assert json.loads(run.summary_file.read_text())["initial"] == pytest.approx(accuracy)


def test_inputs_that_are_arrays(rffl: Callable[..., Ended]) -> None:
    """A dataset that gives NumPy's arrays trains like any, and its reference is kept like any."""
    network = ("--model.network", "Perceptron", "--model.network.inputs", 2, "--model.network.classes", 2)
    words = ("--data", "tests.callbacks.own.Arrays", "--federation.participants", 3, *network)
    ended = rffl("fit", *QUICK, *words, "--standalone.enabled", "true", "--trainer.max_epochs", 1)
    assert ended.code == 0, ended.err
    assert "standalone" in ended.out


def test_a_reference_is_of_one_network(tmp_path: Path) -> None:
    """Whatever changes what it computes asks for another one, though it has the same layers and weights."""
    every: list[dict[str, Any]] = [{}, {"act": "sin"}, {"dropout": 0.5}, {"scale": 2.0}, {}]
    counts = []
    for options in every:
        reference = StandaloneReference(cache_dir=str(tmp_path))
        federate(FedAvg(), (), reference, rounds=1, network=partial(Functional, **options))
        counts.append(len(list(tmp_path.glob("*.json"))))
    assert counts == [1, 2, 3, 4, 4]


class Closed(torch.nn.Linear):
    """Computes by a number that nobody but its function knows."""

    def __init__(self, scale: float) -> None:
        super().__init__(64, 10)
        self.scaled: Callable[[torch.Tensor], torch.Tensor] = lambda logits: logits * scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(super().forward(x.flatten(1)))


def test_a_network_that_lies_elsewhere() -> None:
    """Lightning has it on the GPU as long as it trains, and examples lie in memory."""
    assert _logits(torch.nn.Linear(4, 3).to("meta"), torch.ones(1, 4)).device.type == "meta"


def test_a_reference_is_of_what_a_network_computes(tmp_path: Path) -> None:
    """What is neither printed nor kept changes it, and the other one's accuracies would pass for its."""
    counts = []
    for scale in (1.0, 0.01, 1.0):
        federate(FedAvg(), (), StandaloneReference(cache_dir=str(tmp_path)), rounds=1, network=partial(Closed, scale))
        counts.append(len(list(tmp_path.glob("*.json"))))
    assert counts == [1, 2, 2]


OUTSIDE = {"dropout": 0.0, "smoothing": 0.0, "bound": 1e9}
"""What a program was given from outside: no option has it, and no file."""


class Outside(torch.nn.Linear):
    """Draws by it in training alone."""

    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.nn.functional.dropout(x.flatten(1), OUTSIDE["dropout"], self.training))


class Smoothed(torch.nn.Module):
    """A loss that goes by it."""

    def forward(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits, y, label_smoothing=OUTSIDE["smoothing"])


def bounded(parameters: Any) -> torch.optim.Optimizer:
    """Steps whose gradients are no longer than it says."""
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def bound(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], OUTSIDE["bound"])

    optimizer.register_step_pre_hook(bound)
    return optimizer


@pytest.mark.parametrize(("name", "other"), [("dropout", 0.8), ("smoothing", 0.5), ("bound", 20.0)])
def test_a_reference_is_of_how_a_step_trains(
    name: str, other: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an argument of the program: that of a run that trained otherwise was read back, and fairness was of both."""
    counts = []
    for value in (OUTSIDE[name], other, OUTSIDE[name]):
        monkeypatch.setitem(OUTSIDE, name, value)
        reference = StandaloneReference(cache_dir=str(tmp_path))
        federate(FedAvg(), (), reference, rounds=1, network=Outside, loss=Smoothed(), optimizer=bounded)
        counts.append(len(list(tmp_path.glob("*.json"))))
    assert counts == [1, 2, 2]


def test_a_reference_is_of_data_as_they_are(tmp_path: Path) -> None:
    """The size of a batch that is changed after the data were made was read as the one that they were made with."""
    counts: list[int] = []
    for size in (32, 4, 32):
        data = Digits(Federation(participants=5), batch_size=32)
        data.batch_size = size
        torch.manual_seed(1)
        module = FederatedModule(data.federation, Outside(), optimizer=bounded)
        reference = StandaloneReference(cache_dir=str(tmp_path / "kept"))
        run = RunFolder(tmp_path / f"run{len(counts)}")
        federated_trainer(FedAvg(), folder=run, callbacks=[reference], max_epochs=1, accelerator="cpu").fit(
            module, data
        )
        counts.append(len(list((tmp_path / "kept").glob("*.json"))))
    assert counts == [1, 2, 2]


class Steep(torch.nn.Linear):
    """Takes no weights but small ones."""

    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight.abs().max() > 10:
            raise ValueError("these weights are too large")
        return super().forward(x.flatten(1))


def test_steps_that_nobody_takes(tmp_path: Path) -> None:
    """Those that a reference is known by are steeper than those of training, and ended a run that was over."""
    reference = StandaloneReference(cache_dir=str(tmp_path))
    federate(FedAvg(), (), reference, rounds=1, network=Steep, optimizer=partial(torch.optim.SGD, lr=0.1))
    assert reference.accuracies is not None


class Settled(torch.nn.Sequential):
    """A bias before BatchNorm, whose gradient is rounding alone; Adam makes whole steps of it."""

    def __init__(self) -> None:
        hidden = torch.nn.Linear(64, 16)
        super().__init__(torch.nn.Flatten(), hidden, torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 10))


def test_a_reference_is_of_no_rounding_and_no_draw(tmp_path: Path) -> None:
    """It was trained again on other threads, for a bias that does nothing, and in every run on data that draw."""
    counts, threads = [], torch.get_num_threads()
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        reference = StandaloneReference(cache_dir=str(tmp_path / "threads"))
        federate(FedAvg(), (), reference, rounds=1, network=Settled, optimizer=torch.optim.Adam)
        counts.append(len(list((tmp_path / "threads").glob("*.json"))))
    torch.set_num_threads(threads)
    for _ in range(2):
        data = Augmented(Federation(participants=2))
        torch.manual_seed(1)
        module = FederatedModule(data.federation, Perceptron(2, 4, 2), optimizer=bounded)
        reference = StandaloneReference(cache_dir=str(tmp_path / "drawn"))
        run = RunFolder(tmp_path / f"run{len(counts)}")
        trainer = federated_trainer(FedAvg(), folder=run, callbacks=[reference], max_epochs=1, accelerator="cpu")
        trainer.fit(module, data)
        counts.append(len(list((tmp_path / "drawn").glob("*.json"))))
    assert counts == [1, 1, 1, 1, 1]


class Shaken(Augmentation):
    """Draws as far as an object says, which is no option in words."""

    def __init__(self, far: torch.nn.Module) -> None:
        self.far = far

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        noise: torch.Tensor = self.far(torch.randn_like(x))
        return x + noise


def test_a_reference_is_of_what_an_augmentation_does(tmp_path: Path) -> None:
    """By an object that it is given, of which its options say nothing: noise was read back for none."""
    counts = []
    for far in (0.0, 1.0, 0.0):
        layer = torch.nn.Linear(8, 8, bias=False)
        torch.nn.init.constant_(layer.weight, far)
        reference = StandaloneReference(cache_dir=str(tmp_path))
        federate(FedAvg(), (), reference, rounds=1, augment=Shaken(layer))
        counts.append(len(list(tmp_path.glob("*.json"))))
    assert counts == [1, 2, 2]


def test_a_reference_is_of_one_schedule() -> None:
    """Rounds, local epochs, rates, batches, precision, engine, releases and what is measured ask for another one."""
    module = federate(FedAvg(), rounds=1)
    trainer = module.trainer

    def key() -> str:
        return StandaloneReference()._key(trainer, module)

    first = key()
    changes: dict[str, tuple[Any, str, Any]] = {
        "rounds": (module, "round", module.round + 1),
        "schedule": (module, "schedule", replace(module.schedule, epochs=module.schedule.epochs + 1)),
        "learning rate": (module, "optimizer", partial(torch.optim.SGD, lr=0.123)),
        "batch size": (module.data, "batch_size", module.data.batch_size + 1),
        "precision": (trainer.precision_plugin, "precision", "bf16-mixed"),
        "code": (sys.modules[StandaloneReference.__module__], "code", lambda *beside: "another's"),
        "torch": (torch, "__version__", "0.0"),
        "test batches": (trainer, "limit_test_batches", 1),
        "measurements": (module.data, "measurements", 6 * 10),
        "engine": (module, "stacked", not module.stacked),
    }
    for name, (owner, attribute, value) in changes.items():
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(owner, attribute, value)
            assert key() != first, name
    assert key() == first
    watching = federate(FedAvg(), rounds=1, watch="test")  # what is watched meanwhile is no part of it
    assert watching.data.settings("--data")["--data.watch"] == "test"
    assert StandaloneReference()._key(watching.trainer, watching) == first
    keys = []
    clipped = partial(Clipped, clip=5.0), partial(Clipped, clip=0.01)
    for optimizer in (*clipped, grouped(0.01), grouped(0.02), grouped(0.02, apart=2)):
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(module, "optimizer", optimizer)
            keys.append(key())
    for limit, size in ((1, 16), (1, 240), (2, 240)):  # of which so many batches are measured
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(trainer, "limit_test_batches", limit)
            changed.setattr(module.data, "eval_batch_size", size)
            keys.append(key())
    assert len({*keys, first}) == 9


def test_nothing_draws_whoever_is_alone(tmp_path: Path) -> None:
    """A proximal term, and with it what the federation is said to have gained by, slows those that train alone."""
    references = [StandaloneReference(cache_dir=str(tmp_path / name)) for name in ("plain", "drawn")]
    drawn = [
        federate(FedAvg(), (), reference, rounds=2, proximal=pull)
        for reference, pull in zip(references, (0.0, 5.0), strict=True)
    ]
    assert not torch.equal(drawn[0].cohort.weights, drawn[1].cohort.weights)
    first, second = (reference.accuracies for reference in references)
    assert first is not None
    assert second is not None
    assert torch.equal(first, second)
    assert [one.name for one in (tmp_path / "plain").iterdir()] == [one.name for one in (tmp_path / "drawn").iterdir()]


class Clipped(torch.optim.SGD):
    """Somebody's own, which keeps what it clips by to itself."""

    def __init__(self, parameters: Any, clip: float) -> None:
        super().__init__(parameters, lr=0.1)
        self.clip = clip


def grouped(rate: float, apart: int = 1) -> Callable[[Any], torch.optim.Optimizer]:
    """Makes what is as the default but for the last parameters."""

    def make(parameters: Any) -> torch.optim.Optimizer:
        every = [*parameters]
        groups: list[dict[str, Any]] = [{"params": every[:-apart]}, {"params": every[-apart:], "lr": rate}]
        return torch.optim.SGD(groups, lr=0.1)

    return make


def test_a_reference_is_of_one_loss(tmp_path: Path) -> None:
    """Who trains by another has another one; weights of classes are no option that is printed."""
    weights = [torch.ones(10), torch.ones(10).cumsum(0), torch.ones(10)]
    counts = []
    for loss in (None, *map(torch.nn.CrossEntropyLoss, weights), torch.nn.CrossEntropyLoss(label_smoothing=0.1)):
        reference = StandaloneReference(cache_dir=str(tmp_path))
        federate(FedAvg(), (), reference, rounds=1, loss=loss)
        counts.append(len([*tmp_path.iterdir()]))
    assert counts == [1, 2, 3, 3, 4]


@pytest.mark.slow
def test_a_reference_is_of_data_as_it_was_asked_for(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Options that change inputs, though neither labels nor shards nor the first example, ask for another one."""
    alone = []
    for number, after in enumerate((10**6, 100, 10**6)):
        words = ("--data", "tests.callbacks.own.Turned", "--data.after", after, "--data.num_workers", number)
        given = (*words, "--standalone.enabled", "true", "--standalone.cache_dir", tmp_path / "kept")
        alone.append(run_of(rffl, tmp_path, f"turned{number}", *given)[0].summary().standalone)
    assert alone[0] == alone[2] != alone[1]
    assert len(list((tmp_path / "kept").iterdir())) == 2  # how data is read changes nothing


@pytest.mark.parametrize("single", ["false", "true"])
def test_a_reference_is_of_its_inputs(rffl: Callable[..., Ended], tmp_path: Path, single: str) -> None:
    """A file with the same labels and other inputs asks for another one; the last run finds the first one's."""
    x = torch.randn(80, 2, generator=torch.Generator().manual_seed(1))
    other = torch.where(torch.arange(80).unsqueeze(1) % 2 == 0, x, torch.randn(80, 2))
    network = ("--model.network", "Perceptron", "--model.network.inputs", 2, "--model.network.classes", 2)
    data = ("--data", "tests.callbacks.own.FromFile", "--data.path", tmp_path / "data.pt", "--data.single", single)
    kept = ("--standalone.enabled", "true", "--standalone.cache_dir", tmp_path / "kept")
    counts = []
    for inputs in (x, other, x):
        torch.save((inputs, (x[:, 0] > 0).long()), tmp_path / "data.pt")
        ended = rffl("fit", *QUICK, *data, "--federation.participants", 3, *network, *kept, "--trainer.max_epochs", 1)
        assert ended.code == 0, ended.err
        counts.append(len([*(tmp_path / "kept").iterdir()]))
    assert counts == [1, 2, 2]


def test_a_reference_is_of_a_network_as_it_was_written(tmp_path: Path) -> None:
    """A file that is edited between two runs makes another network, in the functions that it calls as well."""
    file, code = tmp_path / "my_written.py", Path(sys.modules[Functional.__module__].__file__ or "").read_text()
    counts = []
    for number, written in enumerate((code, code.replace("* self.scale", "* self.scale + 1"), code)):
        file.write_text(written)
        os.utime(file, (number, number))
        specification = importlib.util.spec_from_file_location("my_written", file)
        assert specification is not None
        assert specification.loader is not None
        sys.modules["my_written"] = module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        federate(FedAvg(), (), StandaloneReference(cache_dir=str(tmp_path)), rounds=1, network=module.Functional)
        counts.append(len(list(tmp_path.glob("*.json"))))
    del sys.modules["my_written"]
    assert counts == [1, 2, 2]
