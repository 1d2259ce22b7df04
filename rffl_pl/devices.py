"""Which device every rank has, and over which backend they exchange."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Literal

import torch

from rffl_pl.errors import UserError

NCCL = "cpu:gloo,cuda:nccl"
"""With gloo beside NCCL what lies in the CPU's memory does not travel over the GPU."""


def plan_devices(accelerator: str, ranks: int, gpus: int) -> tuple[list[torch.device], Literal["nccl", "gloo"]]:
    """The device of every rank of this node and the process group's backend.

    Args:
        accelerator: ``auto``, ``gpu``, ``cuda`` or ``cpu``.
        ranks: Ranks on this node.
        gpus: GPUs on this node.

    Returns:
        One GPU for each rank with NCCL if there are enough; GPUs shared in turn with gloo if there are not, since NCCL
        refuses two ranks on one, or hangs; else the CPU with gloo.

    Raises:
        UserError: If a GPU is asked for and there is none.
    """
    if accelerator not in ("auto", "gpu", "cuda", "cpu"):
        raise UserError(f"Expected --trainer.accelerator to be auto, gpu, cuda or cpu, but got {accelerator}.")
    if accelerator in ("gpu", "cuda") and gpus == 0:
        raise UserError(
            f"Expected a GPU for --trainer.accelerator {accelerator}, but this machine shows none; give "
            "--trainer.accelerator auto to train on the CPU."
        )
    if accelerator == "cpu" or gpus == 0:
        return [torch.device("cpu")] * ranks, "gloo"
    if ranks <= gpus:
        return [torch.device("cuda", i) for i in range(ranks)], "nccl"
    return [torch.device("cuda", i % gpus) for i in range(ranks)], "gloo"


def card_of(device: torch.device) -> str:
    """By what all machines tell one GPU of CUDA's from another; nothing of what is none."""
    if device.type != "cuda":
        return ""
    properties = torch.cuda.get_device_properties(device)
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")  # for a torch that does not know its number
    return str(getattr(properties, "uuid", f"{socket.gethostname()}/{seen}/{device}"))


def agreed_backend(offered: Sequence[str], cards: Sequence[str]) -> tuple[str, str]:
    """The backend of all ranks.

    Each rank knows no more than what is on its own side: several launchers on one machine may have given their ranks
    the same GPU, and one that hides from each rank all but its own has them look like ranks that share.

    Args:
        offered: What each rank planned to use.
        cards: The GPU of each as `card_of` names it.

    Returns:
        The backend, and why it is not NCCL where somebody could have used that.
    """
    different = len({*cards})
    if all(cards):
        why = f"{len(cards)} ranks share {different} GPU(s), where {different} would have one each"
        return (NCCL, "") if different == len(cards) else ("gloo", why)
    if len({*offered}) > 1:
        return "gloo", "Not every rank has a GPU of its own"
    return offered[0], ""
