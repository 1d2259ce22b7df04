"""Which device every rank has, and over which backend they exchange."""

from __future__ import annotations

import pytest
import torch

from rffl_pl.devices import NCCL, agreed_backend, card_of, plan_devices
from rffl_pl.errors import UserError
from rffl_pl.strategy import FederatedStrategy

CPU = torch.device("cpu")


@pytest.mark.parametrize(("accelerator", "gpus"), [("cpu", 0), ("cpu", 8), ("auto", 0)])
def test_ranks_on_the_cpu(accelerator: str, gpus: int) -> None:
    """Asked for the CPU, or without a GPU: gloo."""
    assert plan_devices(accelerator, 3, gpus) == ([CPU] * 3, "gloo")


@pytest.mark.parametrize("accelerator", ["auto", "gpu", "cuda"])
@pytest.mark.parametrize(("ranks", "gpus"), [(1, 1), (2, 8), (4, 4)])
def test_every_rank_its_own_gpu(accelerator: str, ranks: int, gpus: int) -> None:
    """Enough GPUs: one each, and NCCL."""
    devices, backend = plan_devices(accelerator, ranks, gpus)
    assert devices == [torch.device("cuda", i) for i in range(ranks)]
    assert backend == "nccl"


@pytest.mark.parametrize("accelerator", ["auto", "gpu", "cuda"])
def test_ranks_share_gpus_in_turn(accelerator: str) -> None:
    """More ranks than GPUs: shared in turn, and gloo, since NCCL refuses to share."""
    devices, backend = plan_devices(accelerator, 5, 2)
    assert [device.index for device in devices] == [0, 1, 0, 1, 0]
    assert backend == "gloo"


@pytest.mark.parametrize("accelerator", ["gpu", "cuda"])
def test_no_gpu_where_one_is_asked_for(accelerator: str) -> None:
    """Training does not fall back to the CPU behind the user's back."""
    with pytest.raises(UserError, match=f"--trainer.accelerator {accelerator}.*none"):
        plan_devices(accelerator, 1, 0)


def test_unknown_accelerator() -> None:
    """The message has the choices."""
    with pytest.raises(UserError, match="auto, gpu, cuda or cpu, but got tpu"):
        plan_devices("tpu", 1, 1)


@pytest.mark.parametrize(
    ("offered", "cards", "backend", "why"),
    [
        ((NCCL, NCCL), ("GPU-1", "GPU-2"), NCCL, ""),
        (
            (NCCL, NCCL),
            ("GPU-1", "GPU-1"),
            "gloo",
            "2 ranks share 1 GPU(s), where 1 would have one each",
        ),  # of a launcher each
        (("gloo", "gloo"), ("GPU-1", "GPU-2"), NCCL, ""),  # each sees its own alone
        (("gloo",) * 3, ("GPU-1", "GPU-2", "GPU-1"), "gloo", "3 ranks share 2 GPU(s), where 2 would have one each"),
        ((NCCL, "gloo"), ("GPU-1", ""), "gloo", "Not every rank has a GPU of its own"),
        (("gloo", "gloo"), ("", ""), "gloo", ""),
        (("card:own", "card:own"), ("", ""), "card:own", ""),  # of a device that is not CUDA's
    ],
)
def test_what_ranks_agree_on(offered: tuple[str, ...], cards: tuple[str, ...], backend: str, why: str) -> None:
    """NCCL where every rank has a GPU of its own, and nowhere else: it refuses two ranks on one, or hangs."""
    assert agreed_backend(offered, cards) == (backend, why)


@pytest.mark.parametrize(("built_in", "backend"), [(True, NCCL), (False, "gloo")])
def test_a_torch_without_nccl(monkeypatch: pytest.MonkeyPatch, built_in: bool, backend: str) -> None:
    """As that of small boards, whose only rank would meet itself over it."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: built_in)
    strategy = FederatedStrategy("gpu")
    assert strategy.root_device.type == "cuda"
    assert strategy.process_group_backend == backend


def test_the_cpu_is_no_card() -> None:
    assert card_of(CPU) == ""
