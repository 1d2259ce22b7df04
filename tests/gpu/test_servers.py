"""Every server on a card. The last of `make gpu`, which ends after a time: this takes longest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from rffl_pl.strategy import leave_process_group
from tests.gpu.cohorts import ENGINES, full_precision
from tests.gpu.program import SERVERS, play
from tests.runs import kept_in

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine shows no GPU")]
CUTTING = ("SignSGD", "CGSV")
"""Servers that send an entry or its sign whole or not at all: where rounding moves one over a border, it is another."""


@pytest.fixture(autouse=True)
def _in_full_precision_and_a_group_of_its_own() -> Iterator[None]:
    """The process group of a run on the CPU, over gloo, would serve the next one on the card, which has NCCL."""
    with full_precision():
        yield
    leave_process_group()


@pytest.fixture(scope="module")
def on_the_cpu(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run under a server that both engines are held against."""
    return cache(lambda server: play("cpu", server, tmp_path_factory.mktemp("cpu") / "run", 3, "loop"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("server", SERVERS)
def test_every_server_agrees_with_the_cpu(
    server: str, engine: str, on_the_cpu: Callable[[str], Path], tmp_path: Path
) -> None:
    """Three rounds beside an adversary: models, reputations and who is a member."""
    alone = on_the_cpu(server)
    leave_process_group()
    runs = [alone, play("gpu", server, tmp_path / "gpu", 3, engine)]
    assert "nccl" in dist.get_backend_config()
    cpu, gpu = (kept_in(run / "checkpoints" / "last.ckpt") for run in runs)
    assert cpu["federation"]["members"] == gpu["federation"]["members"]
    for i, mine in cpu["federation"]["participants"].items():
        theirs = gpu["federation"]["participants"][i]["network"]
        agree = torch.cat(
            [
                ((theirs[name] - value).abs() <= 1e-4 + 1e-4 * value.abs()).flatten()
                for name, value in mine["network"].items()
            ]
        )
        assert agree.double().mean() >= (0.99 if server in CUTTING else 1.0), f"{int((~agree).sum())} entries differ"
