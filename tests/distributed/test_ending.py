"""Training that is to end on one rank ends on all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rffl_pl.runs import RunFolder
from tests.conftest import QUICK, only_run
from tests.ranks import forked
from tests.runs import kept_in

pytestmark = pytest.mark.distributed


@pytest.mark.slow
@pytest.mark.parametrize("at", ["batch", "epoch"])
def test_one_rank_that_stops_ends_all(tmp_path: Path, at: str) -> None:
    """With the result and the checkpoint of that round, whatever their cadence; nobody waits for it in the next."""
    rare = ("--trainer.check_val_every_n_epoch", 4, "--run.checkpoint_every", 50, "--trainer.max_epochs", 5)
    stops = ("--trainer.callbacks+=tests.one_stops.OneStops", "--trainer.callbacks.at", at)
    ended = forked(2, "fit", "--config", "configs/digits.yaml", *QUICK, *rare, *stops, root=tmp_path)
    assert ended.code == 0, ended.err
    run = RunFolder(only_run(tmp_path))
    assert run.summary().rounds == kept_in(run.checkpoints / "last.ckpt")["federation"]["round"] == 2
