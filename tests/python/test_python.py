"""The library path: README's program, what its second steps give, and trainers that lack something."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import CSVLogger
from torch.optim import SGD
from torchmetrics.classification import MulticlassAccuracy

import rffl_pl
from rffl_pl import RunFolder, UserError
from rffl_pl.callbacks import ReputationExchange, StandaloneReference
from rffl_pl.strategy import FederatedStrategy, leave_process_group
from tests.conftest import ROOT
from tests.interruption import ControlC, PowerCut

pytestmark = pytest.mark.filterwarnings("ignore:Round")  # a removal is told as a warning
PROGRAM = next(
    block
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    if "federated_trainer" in block
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The names of README's program after it has run, in a folder of its own."""
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("user"))
        patch.setenv("XDG_CACHE_HOME", str(Path.cwd() / "cache"))
        torch.manual_seed(1)
        exec(PROGRAM, names)
        names["run"] = RunFolder(names["run"].path.resolve())
        yield names
    leave_process_group()


def test_fit_then_test_measures_the_trained(ran: dict[str, Any]) -> None:
    """The scores of `test` are the final accuracies that `fit` reported, not those of the initial network."""
    final = ran["run"].summary().final
    assert ran["run"].scores()["scores"]["accuracy"] == pytest.approx(final)
    assert min(final[1:5]) > 0.8


def test_predict_is_of_the_trained(ran: dict[str, Any]) -> None:
    """Every participant's probabilities give its accuracy."""
    probabilities = torch.cat(ran["batches"], dim=1)
    assert probabilities.shape[0] == 6
    assert torch.allclose(probabilities.sum(-1), torch.ones(probabilities.shape[:2]), atol=1e-5)
    y = torch.tensor([int(label) for _, label in ran["data"].sources.test])
    accuracy = (probabilities.argmax(-1) == y).float().mean(1)
    assert accuracy.tolist() == pytest.approx(ran["run"].summary().final)


def test_results_are_read_back(ran: dict[str, Any]) -> None:
    """Rounds, and weights that are the cohort's."""
    rounds = ran["run"].rounds()
    assert [entry.number for entry in rounds] == list(range(1, 13))
    assert rounds[-1].members == [True] * 5 + [False]
    cohort = ran["module"].cohort
    for i in range(6):
        weights = ran["run"].weights(i)
        assert torch.equal(torch.cat([value.flatten() for value in weights.values()]), cohort.weights[i])


@pytest.mark.slow
def test_from_a_checkpoint(ran: dict[str, Any]) -> None:
    """A new module of the same federation is tested from the run's checkpoint; `fit` again begins anew."""
    module = rffl_pl.FederatedModule(
        ran["federation"], rffl_pl.Perceptron(64, 64, 10), optimizer=ran["sgd"], adversaries=[rffl_pl.FreeRider()]
    )
    ran["trainer"].test(module, ran["data"], ckpt_path=ran["run"].checkpoints / "last.ckpt")
    assert torch.equal(module.cohort.weights, ran["module"].cohort.weights)
    trained = ran["module"].cohort.weights.clone()
    again = rffl_pl.federated_trainer(rffl_pl.RFFL(), folder=RunFolder.make(ran["run"].path), max_epochs=12)
    again.fit(ran["module"], ran["data"])
    assert again.default_root_dir != str(ran["run"].path)
    assert torch.equal(ran["module"].cohort.weights, trained)
    assert ran["module"].round == 12


def test_a_trainer_without_the_exchange(ran: dict[str, Any]) -> None:
    """Nobody would play the rounds: one sentence instead of a run in which nothing happens."""
    trainer = Trainer(
        strategy=FederatedStrategy("cpu"), accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    with pytest.raises(UserError, match=r"callback that plays the rounds.*ReputationExchange\(RFFL\(\)\)"):
        trainer.fit(ran["module"], ran["data"])


def test_a_trainer_with_another_strategy(ran: dict[str, Any]) -> None:
    """The message names the one that is needed."""
    trainer = Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False)
    with pytest.raises(UserError, match=r"strategy to be rffl_pl\.strategy\.FederatedStrategy"):
        trainer.fit(ran["module"], ran["data"])


def small(folder: Any, module: dict[str, Any] | None = None, data: dict[str, Any] | None = None, **more: Any) -> Any:
    """Trainer, module and data of two rounds on the digits."""
    federation = rffl_pl.Federation(participants=3, seed=1)
    torch.manual_seed(1)
    given = {"federation": federation, "network": rffl_pl.Perceptron(64, 16, 10)} | (module or {})
    options = {"max_epochs": 2, "enable_progress_bar": False, "accelerator": "cpu"} | more
    server = options.pop("server", rffl_pl.FedAvg())
    trainer = rffl_pl.federated_trainer(server, folder=folder, **options)
    digits = rffl_pl.Digits(**{"federation": federation, "examples_per_participant": 30} | (data or {}))
    return trainer, rffl_pl.FederatedModule(given.pop("federation"), given.pop("network"), **given), digits


def test_a_trainer_that_has_played_plays_no_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A second fit resets the models and trains nothing; going on, rounds are there twice."""
    run = RunFolder.make(tmp_path / "run")
    trainer, module, data = small(run)
    trainer.fit(module, data)
    capfd.readouterr()
    with pytest.raises(UserError, match="a trainer that has played no rounds yet"):
        trainer.fit(module, data)
    assert "going on" not in capfd.readouterr().err
    assert module.round == 2
    trainer.fit_loop.max_epochs = 4
    trainer.fit(module, data, ckpt_path="last")
    assert [entry.number for entry in run.rounds()] == [1, 2, 3, 4]
    assert run.metrics_file.read_text().count("\n") == 5


def test_a_program_that_goes_on_plays_all_its_steps(tmp_path: Path) -> None:
    """One of Lightning's is a round, and what is played is counted once, whatever stopped it before."""
    run = RunFolder.make(tmp_path / "run")
    for after in (1, 2):
        trainer, module, data = small(run, max_epochs=3, max_steps=3, callbacks=[PowerCut(after)])
        with pytest.raises(RuntimeError, match="power cut"):
            trainer.fit(module, data, ckpt_path=run.newest_checkpoint())
    trainer, module, data = small(run, max_epochs=3, max_steps=3)
    trainer.fit(module, data, ckpt_path=run.newest_checkpoint())
    assert (module.round, trainer.current_epoch) == (3, 3)
    assert [entry.number for entry in run.rounds()] == [1, 2, 3]


@pytest.mark.parametrize("option", ["max_epochs", "max_steps"])
def test_fewer_rounds_than_there_are(tmp_path: Path, option: str) -> None:
    """Nothing was trained and nothing said, and a program took the run for one of two rounds."""
    run = RunFolder.make(tmp_path / "run")
    trainer, module, data = small(run, max_epochs=3)
    trainer.fit(module, data)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    limits: dict[str, Any] = {"max_epochs": 9, option: 2}
    trainer, module, data = small(RunFolder(run.path), **limits)
    told = rf"max_epochs, or max_steps, of at least 3, the rounds that {run.checkpoints}.* has, but got 2; give more"
    with pytest.raises(UserError, match=told):
        trainer.fit(module, data, ckpt_path=run.checkpoints)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_a_refusal_behind_an_older_checkpoint(tmp_path: Path) -> None:
    """The records of the rounds after it were gone, though nobody had gone on from it."""
    run = RunFolder.make(tmp_path / "run")
    trainer, module, data = small(run, max_epochs=3)
    trainer.fit(module, data)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    trainer, module, data = small(RunFolder(run.path), max_epochs=1)
    with pytest.raises(UserError, match=r"of at least 2, the rounds that .*last\.previous\.ckpt has, but got 1"):
        trainer.fit(module, data, ckpt_path=run.checkpoints / "last.previous.ckpt")
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode])
def test_a_block_without_gradients(tmp_path: Path, block: type[torch.no_grad]) -> None:
    """The network's input shape was blamed, or the optimizer; what is only measured may stand in one."""
    trainer, module, data = small(RunFolder.make(tmp_path / "run"), max_epochs=1)
    with block(), pytest.raises(UserError, match=rf"called within torch\.{block.__name__}\(\); call it outside"):
        trainer.fit(module, data)
    trainer.fit(module, data)
    with block():
        trainer.test(module, data)
        assert len(trainer.predict(module, data))


def test_what_a_module_is_not(tmp_path: Path) -> None:
    """One model: whoever loaded it, or gave it inputs, got tracebacks of a folder, of no trainer or of Lightning's."""
    run = RunFolder.make(tmp_path / "run")
    trainer, module, data = small(run)
    initial = module.initial_weights().clone()
    trainer.fit(module, data)
    with pytest.raises(UserError, match=r"several and is none itself; give trainer\.predict\(module, data\)"):
        module(torch.zeros(1, 64))
    for path in (run.checkpoints, run.newest_checkpoint(), "nowhere.ckpt"):
        with pytest.raises(UserError, match=r"give the checkpoint as ckpt_path to trainer\.fit, validate, test or"):
            rffl_pl.FederatedModule.load_from_checkpoint(path, federation=module.federation)
    assert torch.equal(module.initial_weights(), initial)  # as docs/python.md says
    network = rffl_pl.Perceptron(64, 16, 10)  # and this is how it loads one
    network.load_state_dict(run.weights(2))
    assert torch.equal(torch.cat([value.flatten() for value in network.parameters()]), module.cohort.weights[2])


def test_a_logger_of_ones_own_is_beside(tmp_path: Path) -> None:
    """It takes the place of the run's own record."""
    for number, logger in enumerate((CSVLogger(tmp_path / "own"), [CSVLogger(tmp_path / "two")], True, False)):
        run = RunFolder.make(tmp_path / f"run{number}")
        trainer, module, data = small(run, logger=logger, max_epochs=1, callbacks=Timer())
        trainer.fit(module, data)
        assert [entry.number for entry in run.rounds()] == [1]
    assert len(list(tmp_path.glob("*/lightning_logs/version_0/metrics.csv"))) == 2


def test_a_usual_callback_of_ones_own(tmp_path: Path) -> None:
    """It takes the place of the usual one, in its order; both would train the reference twice, or one unasked."""
    run = RunFolder.make(tmp_path / "run")
    reference = StandaloneReference(enabled=False)
    options: dict[str, Any] = {"devices": "auto", "num_nodes": "auto", "strategy": "auto", "accelerator": None}
    trainer, module, data = small(run, callbacks=[reference, Timer()], max_epochs=1, **options)
    kinds = [type(callback).__name__ for callback in trainer.callbacks]
    assert kinds.count("StandaloneReference") == 1
    assert kinds.index("ReputationExchange") < kinds.index("StandaloneReference") < kinds.index("RunReport")
    trainer.fit(module, data)
    assert run.summary().fairness is None
    assert [entry.number for entry in run.rounds()] == [1]


def test_a_network_that_does_not_train_in_lower_precision(tmp_path: Path) -> None:
    """It is told before the first round, when nothing has been left, not by a traceback in it."""
    run = RunFolder.make(tmp_path / "run")
    trainer, module, data = small(run, {"network": Scattered(64, 10)}, precision="bf16-mixed")
    with pytest.raises(UserError, match=r"Expected --model\.optimizer SGD to train --model\.network Scattered, but"):
        trainer.fit(module, data)


class Scattered(torch.nn.Linear):
    """Adds what autocast made to what it did not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(x), 10).index_add(1, torch.arange(10), super().forward(x.flatten(1)))


def test_how_to_go_on_is_a_call(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever interrupts a program is told of a configuration that is not there."""
    run = RunFolder.make(tmp_path / "run")
    trainer, module, data = small(run, callbacks=[ControlC(after=1)])
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            trainer.fit(module, data)
    finally:
        signal.signal(signal.SIGINT, before)
    expected = f"Interrupted after round 1; go on with: trainer.fit(module, data, ckpt_path='{run.checkpoints}')"
    assert expected in capfd.readouterr().err


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"server": rffl_pl.RFFL}, "the server to be an instance, such as"),
        ({"server": "RFFL"}, "the server to be an instance, such as RFFL\\(\\), but got RFFL"),
        ({"folder": "runs/x"}, "the folder to be a RunFolder, as RunFolder.make\\('runs/x'\\), but got 'runs/x'"),
        ({"exchange": "shard"}, "the exchange to be central or sharded, but got shard"),
        ({"devices": 2}, "devices to be left out, but got 2: ranks come from torchrun"),
        ({"callbacks": [ReputationExchange(rffl_pl.RFFL())]}, "without ReputationExchange, which comes"),
        ({"module": {"loss": torch.nn.CrossEntropyLoss}}, "the loss to be an instance of torch.nn.Module"),
        ({"module": {"loss": torch.nn.functional.cross_entropy}}, "the loss to be an instance of torch.nn.Module"),
        ({"module": {"optimizer": "SGD"}}, "the optimizer to be what makes one of parameters, .* but got SGD"),
        ({"module": {"optimizer": SGD([torch.ones(1)], 0.1)}}, "such as SGD or partial\\(SGD, lr=0.1\\), but got SGD"),
        ({"module": {"network": rffl_pl.Perceptron}}, "the network to be an instance of torch.nn.Module"),
        ({"module": {"federation": 3}}, "the federation to be an instance, Federation\\(\\), but got 3"),
        ({"data": {"federation": 3}}, "the federation to be an instance, Federation\\(\\), but got 3"),
        ({"module": {"measures": MulticlassAccuracy(10)}}, "measures to be a list of instances of metrics, but got"),
        ({"module": {"measures": [MulticlassAccuracy]}}, "measures to be a list of instances of metrics, but got"),
        ({"callbacks": [StandaloneReference]}, "callbacks to be instances, such as EarlyStopping"),
        ({"logger": "csv"}, "logger to be an instance, such as CSVLogger\\(...\\), but got csv"),
        ({"data": {"split": rffl_pl.datamodules.POW}}, "in Python an instance, MySplit\\(\\)\\), but got"),
        ({"module": {"adversaries": [rffl_pl.FreeRider]}}, "adversaries to be a list of attacks, as"),
        ({"module": {"adversaries": rffl_pl.FreeRider()}}, "adversaries to be a list of attacks, as"),
    ],
)
def test_kinds_of_things(tmp_path: Path, more: dict[str, Any], expected: str) -> None:
    """A class where an object is due ends in a traceback of what it was never asked for."""
    folder = more.pop("folder", None) or RunFolder.make(tmp_path / "run")
    with pytest.raises(UserError, match=expected):
        small(folder, **more)


def test_a_module_of_lightnings(tmp_path: Path) -> None:
    """The first thing that somebody tries who knows Lightning; and a server's class, where its instance is due."""
    trainer, _, data = small(RunFolder.make(tmp_path / "run"))
    with pytest.raises(UserError, match=r"but got BoringModel; give FederatedModule\(federation, BoringModel\(\)\)"):
        trainer.fit(BoringModel(), data)
    with pytest.raises(UserError, match=r"the server to be an instance, such as RFFL\(\), but got <class"):
        ReputationExchange(rffl_pl.RFFL)


def test_of_one_federation(tmp_path: Path) -> None:
    """Shards of another federation are trained on, or an index is out of range after a round."""
    for other, expected in (
        (rffl_pl.Federation(participants=3, seed=2), "seed is 1 there and 2 here"),
        (rffl_pl.Federation(participants=4, seed=1), "honest is 3 there and 4 here"),
        (rffl_pl.Federation(participants=3, adversaries=1, seed=1), "adversaries is 0 there and 1 here"),
        (rffl_pl.Federation(participants=3, participation=0.5, seed=1), "participation is 1.0 there and 0.5 here"),
        (rffl_pl.Federation(participants=3, coalition=[0], seed=1), "coalition is None there and"),
    ):
        trainer, module, data = small(RunFolder.make(tmp_path / "run"), data={"federation": other})
        with pytest.raises(UserError, match=f"of one Federation, but {expected}"):
            trainer.fit(module, data)
    trainer, module, _ = small(RunFolder.make(tmp_path / "run"))
    with pytest.raises(UserError, match="a FederatedDataModule as datamodule, but got none; write a subclass"):
        trainer.fit(module)


def test_all_names_are_there() -> None:
    """Every name that the package promises can be imported, and no other."""
    for name in rffl_pl.__all__:
        assert getattr(rffl_pl, name) is not None
    assert set(rffl_pl.__all__) <= set(dir(rffl_pl))
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        rffl_pl.Nope  # noqa: B018
