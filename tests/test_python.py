"""The library path: README's program, what its second steps give, and trainers that lack something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer

import rffl_pl
from rffl_pl import RunFolder, UserError
from rffl_pl.strategy import FederatedStrategy, leave_process_group
from tests.conftest import ROOT

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


def test_all_names_are_there() -> None:
    """Every name that the package promises can be imported, and no other."""
    for name in rffl_pl.__all__:
        assert getattr(rffl_pl, name) is not None
    assert set(rffl_pl.__all__) <= set(dir(rffl_pl))
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        rffl_pl.Nope  # noqa: B018
