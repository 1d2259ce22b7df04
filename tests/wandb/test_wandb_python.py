"""Runs of one program, each with W&B's logger: when a run of W&B's ends, and who ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import wandb
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger
from wandb.proto.wandb_internal_pb2 import Record

from rffl_pl import RunFolder
from rffl_pl.strategy import leave_process_group
from tests.interruption import PowerCut
from tests.python.test_python import small
from tests.wandb.test_wandb import history, of_kind, records


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    yield
    if wandb.run is not None:
        wandb.run.finish()
    leave_process_group()


def logger(folder: Path) -> WandbLogger:
    """One that writes below a folder."""
    return WandbLogger(save_dir=folder, project="x")


def logged(folder: Path) -> list[list[Record]]:
    """Every part of W&B's below a folder, the earliest first."""
    return [list(records(path)) for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"))]


def rounds(part: list[Record]) -> list[int]:
    """Those that are in a part."""
    return [entry["round"] for entry in history(part)]


class Numbered(PowerCut):
    """Logs one number while models are tested."""

    def __init__(self) -> None:
        super().__init__(after=-1)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        pl_module.log("theirs/tested", 1.0)


def test_each_training_has_a_run_of_its_own(tmp_path: Path) -> None:
    """Which has ended well by the time that the next one begins; whoever tests goes on with it."""
    identities = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        trainer, module, data = small(
            RunFolder.make(tmp_path / "runs" / name), logger=logger(tmp_path / name), callbacks=[Numbered()]
        )
        trainer.fit(module, data)
        assert wandb.run is None
        (part,) = logged(tmp_path / name)
        assert rounds(part) == [1, 2]
        assert of_kind(part, "exit")[0].exit.exit_code == 0
        identities.append(of_kind(part, "run")[0].run.run_id)
    assert len({*identities}) == 2
    trainer.test(module, data, verbose=False)
    assert wandb.run is None
    assert [of_kind(part, "run")[0].run.run_id for part in logged(tmp_path / "two")] == [identities[1]] * 2


def test_a_logger_goes_on_with_its_run(tmp_path: Path) -> None:
    """After a failure, by another trainer, as in a notebook whose cell is run again."""
    own, run = logger(tmp_path), RunFolder(tmp_path / "runs" / "one")
    trainer, module, data = small(run, max_epochs=4, logger=own, callbacks=[PowerCut()])
    with pytest.raises(RuntimeError, match="power cut"):
        trainer.fit(module, data)
    assert wandb.run is None
    trainer, module, data = small(run, max_epochs=4, logger=own)
    trainer.fit(module, data, ckpt_path=run.checkpoints)
    parts = logged(tmp_path)
    assert [rounds(part) for part in parts] == [[1, 2], [3, 4]]
    assert len({of_kind(part, "run")[0].run.run_id for part in parts}) == 1
    assert [of_kind(part, "exit")[0].exit.exit_code for part in parts] == [1, 0]


@pytest.mark.filterwarnings("ignore:There is a wandb run already in progress")
def test_a_run_that_a_user_began_stays_open(tmp_path: Path) -> None:
    """After a training that fails, and after one that does not; all its rounds are there."""
    with wandb.init(dir=tmp_path, project="x") as begun:
        for after in (1, 2):
            run = RunFolder.make(tmp_path / "runs" / "one")
            trainer, module, data = small(run, logger=logger(tmp_path), callbacks=[PowerCut(after)])
            with nullcontext() if after == 2 else pytest.raises(RuntimeError, match="power cut"):
                trainer.fit(module, data)
            assert wandb.run is begun
        begun.log({"theirs": 1.0})
    (part,) = logged(tmp_path)
    assert rounds(part) == [1, 1, 2]
