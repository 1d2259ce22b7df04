"""What only a GPU can show. `make gpu` runs these with whatever python3 and torch the machine has, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.functional.reputation import weighted_sum
from rffl_pl.models import CIFAR10CNN, MNISTCNN, TextCNN
from rffl_pl.strategy import leave_process_group
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Schedule
from tests.gpu.program import SERVERS, play
from tests.runs import kept_in

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine shows no GPU")]
ROOT = Path(__file__).parent.parent.parent
ENGINES = ("loop", "stacked")
CUTTING = ("SignSGD", "CGSV")
"""Servers that send an entry or its sign whole or not at all: where rounding moves one over a border, it is another."""


@pytest.fixture(autouse=True)
def _full_precision() -> Iterator[None]:
    """TF32 would be another precision than the CPU's."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.fixture(autouse=True)
def _a_group_of_its_own() -> Iterator[None]:
    """The process group of a run on the CPU, over gloo, would serve the next one on the card, which has NCCL."""
    yield
    leave_process_group()


def networks() -> dict[str, tuple[Callable[[], nn.Module], Tensor]]:
    """The package's, and inputs for them."""
    generator = torch.Generator().manual_seed(1)
    return {
        "MNISTCNN": (MNISTCNN, torch.randn(200, 1, 32, 32, generator=generator)),
        "CIFAR10CNN": (CIFAR10CNN, torch.randn(200, 3, 32, 32, generator=generator)),
        "TextCNN": (
            lambda: TextCNN(vocabulary=100, classes=10, width=16, kernels=8),
            torch.randint(1, 100, (200, 20), generator=generator),
        ),
    }


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.03),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3),
}


def cohort(name: str, device: str, *, stacked: bool, optimizer: str = "SGD") -> tuple[Cohort, dict[int, Shard]]:
    """Four participants with 20 to 80 examples."""
    make, x = networks()[name]
    torch.manual_seed(0)
    made = Cohort(make(), range(4), OPTIMIZERS[optimizer], torch.device(device), stacked=stacked)
    dataset = TensorDataset(x, torch.arange(200) * 7 // 3 % 10)
    return made, {i: Shard(Reader(dataset), own, 16) for i, own in enumerate(torch.arange(200).split([20, 80, 33, 67]))}


def trained(name: str, device: str, *, stacked: bool) -> Tensor:
    made, shards = cohort(name, device, stacked=stacked)
    made.train_all(shards, Schedule(epochs=1), 0, {i: i for i in shards})
    return made.weights.cpu()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", networks())
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
    torch.backends.cudnn.deterministic = True
    try:
        first, second = (trained("MNISTCNN", "cuda", stacked=engine == "stacked") for _ in range(2))
    finally:
        torch.backends.cudnn.deterministic = False
    assert torch.equal(first, second)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", networks())
def test_a_stack_never_waits_for_the_card(name: str, optimizer: str) -> None:
    """No operation inside local training synchronises."""
    made, shards = cohort(name, "cuda", stacked=True, optimizer=optimizer)
    made.train_all(shards, Schedule(epochs=1), 0, {i: i for i in shards})  # examples are on the card now
    assert made._stack is not None
    from rffl_pl.training.stack import Turn

    turns = [Turn(made.weights[i], made.optimizers[i], shard, i) for i, shard in shards.items()]
    train = made._stack.trained if optimizer == "Adam" else made._stack.train  # whose steps are counted on the CPU
    torch.cuda.set_sync_debug_mode("error")
    try:
        train(turns, [0.03])
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("server", SERVERS)
def test_every_server_agrees_with_the_cpu(server: str, engine: str, tmp_path: Path) -> None:
    """Three rounds beside an adversary: models, reputations and who is a member."""
    runs = []
    for kind, how in (("cpu", "loop"), ("gpu", engine)):
        leave_process_group()
        runs.append(play(kind, server, tmp_path / kind, 3, how))
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


def test_an_upload_comes_back_whatever_products_are_allowed() -> None:
    """A mean of one is that one, also where products in single precision may be TF32."""
    torch.backends.cuda.matmul.allow_tf32 = True
    upload = torch.randn(1, 10_000, generator=torch.Generator().manual_seed(0)).cuda()
    assert torch.equal(weighted_sum(upload, torch.ones(1, dtype=torch.float64)), upload[0])


@pytest.mark.parametrize(("first", "second"), [("cpu", "gpu"), ("gpu", "cpu")])
def test_a_run_goes_on_elsewhere(first: str, second: str, tmp_path: Path) -> None:
    """From a checkpoint of the other kind of device, to what one device alone gives."""
    begun = play(first, "RFFL", tmp_path / "begun", 2, "auto")
    leave_process_group()
    ended = play(second, "RFFL", tmp_path / "ended", 4, "auto", str(begun / "checkpoints" / "last.ckpt"))
    whole = play("cpu", "RFFL", tmp_path / "whole", 4, "auto")
    one, other = (kept_in(run / "checkpoints" / "last.ckpt")["federation"] for run in (whole, ended))
    for i, mine in one["participants"].items():
        torch.testing.assert_close(other["participants"][i]["network"], mine["network"], rtol=1e-3, atol=1e-3)


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
