"""Several runs of one process, as in a notebook: what an earlier one left, who shares it, and what was forked."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD

import rffl_pl
from rffl_pl import RunFolder, UserError, servers
from rffl_pl.adversaries import Adversary, FreeRider, Situation
from rffl_pl.callbacks import RoundCallback, RoundCheckpoint, StandaloneReference
from rffl_pl.runs import Round
from rffl_pl.servers import RFFL
from rffl_pl.strategy import leave_process_group
from tests.conftest import ROOT
from tests.interruption import PowerCut
from tests.named import named
from tests.python.test_python import small
from tests.runs import kept_in

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def _a_group_of_its_own() -> Iterator[None]:
    yield
    leave_process_group()


def test_a_folder_that_has_a_run(tmp_path: Path) -> None:
    """Its result, and weights of more participants, would pass for those of the next one."""
    run = RunFolder(tmp_path / "nb")
    for trainer, module, data in (small(run), small(run)):
        before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
        if not before:
            trainer.fit(module, data)
            continue
        told = r"begins to have nothing of another run, but there is .*nb/summary\.json; give RunFolder\.make\("
        with pytest.raises(UserError, match=told):
            trainer.fit(module, data)
        assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
    trainer, module, data = small(run, max_epochs=3)
    trainer.fit(module, data, ckpt_path=run.checkpoints)
    assert run.summary().rounds == 3


def test_a_folder_whose_run_broke_off(tmp_path: Path) -> None:
    """Its rounds and its checkpoints, which somebody may want to go on from, are no next run's to write over."""
    run = RunFolder(tmp_path / "nb")
    trainer, module, data = small(run, max_epochs=4, callbacks=[PowerCut()])
    with pytest.raises(RuntimeError, match="power cut"):
        trainer.fit(module, data)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    trainer, module, data = small(run)
    with pytest.raises(UserError, match=r"nothing of another run, but there is .*nb/checkpoints/last\.ckpt; give"):
        trainer.fit(module, data)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before
    trainer, module, data = small(run, max_epochs=4)
    trainer.fit(module, data, ckpt_path=run.checkpoints)
    assert run.summary().rounds == 4


def test_a_reference_is_of_its_own_run(tmp_path: Path) -> None:
    """Switched off in a later one it has none, and not the earlier one's."""
    reference = StandaloneReference()
    for enabled in (True, False):
        reference.enabled = enabled
        run = RunFolder.make(tmp_path / str(enabled))
        trainer, module, data = small(run, callbacks=[reference])
        trainer.fit(module, data)
        assert (run.summary().gain is not None) == enabled
        assert (run.summary().standalone == [None] * 3) != enabled


@pytest.mark.slow
def test_in_a_notebook(tmp_path: Path) -> None:
    """Or a shell: Lightning, which starts processes by itself elsewhere, would have none there."""
    program = (
        "import rffl_pl\n"
        "from tests.python.test_python import small\n"
        f"run = rffl_pl.RunFolder.make({str(tmp_path / 'run')!r})\n"
        "trainer, module, data = small(run)\n"
        "trainer.fit(module, data)\n"
        "print('rounds:', run.summary().rounds)\n"
    )
    shell = subprocess.run(
        [sys.executable, "-i"], input=program, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert "rounds: 2" in shell.stdout, shell.stderr


class Meanwhile(RoundCallback):
    """Has another thread begin a run after each of the first rounds."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self.begin = begin

    def on_round_end(self, trainer: Any, this: Round) -> None:
        thread = threading.Thread(target=self.begin)
        thread.start()
        thread.join()


def test_two_threads(tmp_path: Path) -> None:
    """Both would draw from one stream; one after another they may. Who was refused is refused again."""
    met: list[str] = []

    def begin() -> None:
        trainer, module, data = small(RunFolder.make(tmp_path / "other"))
        try:
            trainer.fit(module, data)
        except UserError as error:
            met.append(str(error))

    trainer, module, data = small(RunFolder.make(tmp_path / "one"), callbacks=[Meanwhile(begin)])
    trainer.fit(module, data)
    assert [re.search("one run at a time in a process, but another thread has one", each) is not None for each in met]
    assert len(met) == 2
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert len(met) == 2
    one, other = (RunFolder(path).weights(2) for path in (trainer.default_root_dir, tmp_path / "other_3"))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def forked(folder: Path, told: Any) -> None:
    try:
        trainer, module, data = small(RunFolder.make(folder))
        trainer.fit(module, data)
        told.put("ended")
    except UserError as error:
        told.put(str(error))


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_who_is_forked_after_a_run(tmp_path: Path) -> None:
    """Its connections are there without the threads that serve them: it would wait for ever."""
    trainer, module, data = small(RunFolder.make(tmp_path / "parent"))
    trainer.fit(module, data)
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    child = context.Process(target=forked, args=(tmp_path / "child", told))
    child.start()
    assert "forked from one that had a run before; have it spawned" in told.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0


SHELL = """
from functools import partial
import torch
from torch import nn
from torch.optim import SGD
import rffl_pl

def act(x):
    return torch.tanh(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(64, 16), nn.Linear(16, 10)
    def forward(self, x):
        return self.two(act(self.one(x.flatten(1))))

federation = rffl_pl.Federation(participants=3, seed=1)
torch.manual_seed(1)
module = rffl_pl.FederatedModule(federation, Net(), optimizer=partial(SGD, lr=0.1))
run = rffl_pl.RunFolder.make("nb")
trainer = rffl_pl.federated_trainer(rffl_pl.FedAvg(), folder=run, max_epochs=3, enable_progress_bar=False)
trainer.fit(module, rffl_pl.Digits(federation, examples_per_participant=30))
"""


@pytest.mark.slow
def test_a_class_that_is_written_in_a_shell(tmp_path: Path) -> None:
    """Its reference is another's once it, or what it calls, is written otherwise; and the same one if not."""
    environment = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    for program in (SHELL, SHELL, SHELL.replace("tanh", "relu"), SHELL.replace("x.flatten(1)", "x.flatten(1) * 2")):
        ended = subprocess.run(
            [sys.executable, "-"], input=program, cwd=tmp_path, env=environment, timeout=120, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
    alone = [RunFolder(path).summary().standalone for path in sorted(tmp_path.glob("nb*"))]
    assert (alone[0] == alone[1], len({*map(str, alone)})) == (True, 3)


class Forgetful(Adversary):
    """Returns nothing, or an array."""

    def __init__(self, *, array: bool) -> None:
        self.array = array

    def upload(self, situation: Situation) -> Any:
        return situation.update.numpy() if self.array else None


class Endless(Adversary):
    """Uploads what cannot be computed with."""

    def upload(self, situation: Situation) -> torch.Tensor:
        return torch.full_like(situation.update, torch.inf)


@pytest.mark.parametrize(("array", "got"), [(True, "ndarray"), (False, "NoneType")])
def test_an_attack_that_uploads_no_tensor(tmp_path: Path, array: bool, got: str) -> None:
    """It would be set aside in every round, and the attack pass for harmless."""
    federation = rffl_pl.Federation(participants=2, adversaries=1, seed=1)
    trainer, module, data = small(
        RunFolder.make(tmp_path / "run"),
        module={"federation": federation, "adversaries": [Forgetful(array=array)]},
        data={"federation": federation},
    )
    with pytest.raises(
        UserError, match=rf"Forgetful \(array {array}\) to upload a dense tensor .*, but got {got}; have it"
    ):
        trainer.fit(module, data)


def test_an_optimizer_of_other_parameters(tmp_path: Path) -> None:
    """Nothing would train, and the initial weights be exported."""
    network = rffl_pl.Perceptron(64, 16, 10)
    for optimizer, got in (
        (
            lambda _: SGD(network.parameters(), lr=0.1),
            "SGD to train the parameters that it is given, each participant's",
        ),
        (lambda _: None, "to make an optimizer of the parameters that it is given, but got NoneType"),
    ):
        trainer, module, data = small(
            RunFolder.make(tmp_path / "run"), module={"network": network, "optimizer": optimizer}
        )
        with pytest.raises(UserError, match=got):
            trainer.fit(module, data)


@pytest.mark.filterwarnings("ignore:Round")
def test_who_was_set_aside_is_read_back(tmp_path: Path) -> None:
    """The table has no column for it."""
    federation = rffl_pl.Federation(participants=2, adversaries=1, seed=1)
    run = RunFolder.make(tmp_path / "run")
    trainer, module, data = small(
        run,
        module={"federation": federation, "adversaries": [Endless()]},
        data={"federation": federation},
    )
    trainer.fit(module, data)
    assert [entry.set_aside for entry in run.rounds()] == [[2], [2]]
    run.rounds_file.unlink()
    assert [entry.set_aside for entry in run.rounds()] == [[], []]
    with pytest.raises(UserError, match="a run from Python has its options in its program"):
        run.config()


@pytest.mark.filterwarnings("ignore:.*removed")
def test_who_was_removed_stays_so(tmp_path: Path) -> None:
    """Measured afterwards, a run had everybody back, and what went on from there asked whoever was removed."""
    federation = rffl_pl.Federation(participants=3, adversaries=1, seed=1)
    module = {"federation": federation, "adversaries": [FreeRider()]}
    trainer, trained, data = small(
        RunFolder.make(tmp_path / "run"), module=module, data={"federation": federation}, server=RFFL(removal_from=1)
    )
    trainer.fit(trained, data)
    left = trained.exchange.members
    assert len(left) < 4
    trainer.validate(trained, data, verbose=False)
    assert trained.exchange.members == left
    trainer.save_checkpoint(tmp_path / "measured.ckpt")
    members = kept_in(tmp_path / "measured.ckpt")["federation"]["members"]
    assert [i for i, active in members.items() if active] == left


def test_a_checkpoint_for_every_run(tmp_path: Path) -> None:
    """What Lightning knows of the last run's had a callback leave none in the next, of as many rounds."""
    newest = RoundCheckpoint(tmp_path / "elsewhere", every=10)
    for name in ("one", "two"):
        run = RunFolder.make(tmp_path / name)
        trainer, module, data = small(run, callbacks=[newest])
        trainer.fit(module, data)
        assert run.complete(2), name


def test_a_server_that_moves_from_a_cell_to_a_file(tmp_path: Path) -> None:
    """Nobody can give a class of a notebook from elsewhere; nor the other way round."""
    run = RunFolder(tmp_path / "run")
    for rounds, module_name in ((2, "__main__"), (3, __name__), (4, "__main__")):
        with named(Own, module=module_name):
            trainer, module, data = small(run, max_epochs=rounds, server=Own())
            trainer.fit(module, data, ckpt_path=run.checkpoints if rounds > 2 else None)
    assert [entry.number for entry in run.rounds()] == [1, 2, 3, 4]
    trainer, module, data = small(run, max_epochs=5, server=servers.FedAvg())
    with pytest.raises(UserError, match=r"Expected --server to be the checkpoint's, __main__\.Own, but got FedAvg"):
        trainer.fit(module, data, ckpt_path=run.checkpoints)


class Own(servers.FedAvg):
    """One's own, which a test gives the name of the package's: in a module it would be a second `--server FedAvg`."""


def test_a_server_of_ones_own_with_the_name_of_the_packages(tmp_path: Path) -> None:
    """It went on from the other's state, and nobody was told; what checkpoints have not always said is its path."""
    run = RunFolder(tmp_path / "run")
    trainer, module, data = small(run)
    trainer.fit(module, data)
    trainer, module, data = small(run, max_epochs=3, server=Own())
    told = rf"Expected --server to be the checkpoint's, FedAvg, but got {__name__}\.FedAvg; give --server FedAvg\."
    with named(Own, "FedAvg"), pytest.raises(UserError, match=told):
        trainer.fit(module, data, ckpt_path=run.checkpoints)
