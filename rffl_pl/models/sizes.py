"""What the sizes of a network may be."""

from __future__ import annotations

import os

import torch

from rffl_pl.errors import UserError, check_number


def check_sizes(**sizes: int) -> None:
    """See that every size of a network is one.

    Args:
        sizes: By the name of the constructor's argument.

    Raises:
        UserError: If one is below 1.
    """
    for name, size in sizes.items():
        check_number(f"--model.network.{name}", size, 1)


def check_room(network: str, parameters: int) -> None:
    """See that a network fits into memory, before it is made.

    Args:
        network: Its class.
        parameters: How many it will have.

    Raises:
        UserError: If it does not.
    """
    needed, there = 4 * parameters, memory(torch.device("cpu"))
    if needed > there:
        raise UserError(
            f"Expected --model.network {network} to fit into memory, {there / 1e9:.0f} GB, but its sizes make one of "
            f"{needed / 1e9:.0f} GB; lower them."
        )


def memory(device: torch.device) -> int:
    """Bytes of a device, whoever uses them."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
