"""What only a GPU can show. `make gpu` runs these with whatever python3 and torch the machine has, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from rffl_pl.functional.reputation import weighted_sum
from rffl_pl.strategy import leave_process_group
from rffl_pl.training.schedule import Schedule
from tests.gpu.cohorts import ENGINES, NETWORKS, OPTIMIZERS, cohort, full_precision, steps, trained
from tests.gpu.program import play
from tests.runs import kept_in

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine shows no GPU")]
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def _full_precision() -> Iterator[None]:
    """TF32 would be another precision than the CPU's."""
    with full_precision():
        yield


@pytest.fixture(autouse=True)
def _a_group_of_its_own() -> Iterator[None]:
    """The process group of a run on the CPU, over gloo, would serve the next one on the card, which has NCCL."""
    yield
    leave_process_group()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NETWORKS)
def test_training_agrees_with_the_cpu(name: str, engine: str) -> None:
    """To rounding, with either engine; dropout in the stacked one, whose streams are the CPU's."""
    if (name, engine) == ("TextCNN", "loop"):
        pytest.skip("dropout draws on the card")
    torch.testing.assert_close(
        trained(name, "cuda", stacked=engine == "stacked"), trained(name, "cpu", stacked=False), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_bits_twice(engine: str) -> None:
    """On one card, with the kernels that torch calls deterministic."""
    first, second = (trained("MNISTCNN", "cuda", stacked=engine == "stacked") for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_no_step_waits_for_the_card(name: str, optimizer: str, engine: str) -> None:
    """No operation inside local training synchronises; `tests.training.test_waiting` looks where there is no card."""
    made, shards = cohort(name, "cuda", stacked=engine == "stacked", optimizer=optimizer)
    made.train_all(shards, Schedule(epochs=1), 0, {i: i for i in shards})  # a stack's examples are on the card now
    torch.cuda.set_sync_debug_mode("error")
    try:
        steps(made, shards)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_an_upload_comes_back_whatever_products_are_allowed() -> None:
    """A mean of one is that one, also where products in single precision may be TF32."""
    torch.backends.cuda.matmul.allow_tf32 = True
    upload = torch.randn(1, 10_000, generator=torch.Generator().manual_seed(0)).cuda()
    assert torch.equal(weighted_sum(upload, torch.ones(1, dtype=torch.float64)), upload[0])


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_share_a_card(ranks: int, tmp_path: Path) -> None:
    """Over gloo, which says so; as one process to rounding."""
    program = ["tests/gpu/program.py", "gpu", "RFFL", str(tmp_path / "many"), "3", "loop"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", *program]
    full = {"NVIDIA_TF32_OVERRIDE": "0"}  # as here
    environment = {**os.environ, **full, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, timeout=240, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{ranks} ranks share" in done.stderr or torch.cuda.device_count() >= ranks
    alone = play("gpu", "RFFL", tmp_path / "one", 3, "loop")
    one, many = (kept_in(folder / "checkpoints" / "last.ckpt")["federation"] for folder in (alone, tmp_path / "many"))
    for i, mine in one["participants"].items():
        torch.testing.assert_close(many["participants"][i]["network"], mine["network"], rtol=1e-3, atol=1e-3)


def test_nccl_with_one_rank(tmp_path: Path) -> None:
    """The process group of a rank with a GPU of its own: what lies on the card and what does not both travel."""
    play("gpu", "RFFL", tmp_path, 1, "auto")
    assert "nccl" in dist.get_backend_config()
    for device in ("cpu", "cuda"):
        sent = torch.arange(12, dtype=torch.uint8, device=device)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, [12], [12])
        assert torch.equal(received, sent)
        dist.all_reduce(sent)
        dist.broadcast(sent, 0)
