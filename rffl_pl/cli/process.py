"""What a process that trains needs of the machine: its memory kept, its terminal quiet."""

from __future__ import annotations

import ctypes
import logging
import warnings


def keep_freed_memory() -> None:
    """Have glibc keep freed memory instead of returning it to the kernel.

    Activations lie above its mmap threshold, so that every training step would map and unmap them: without the page
    faults training on the CPU is 1.4 times as fast. Elsewhere than on glibc nothing happens.
    """
    mmap_threshold, trim_threshold, top_pad = -3, -1, -2
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for parameter, size in ((mmap_threshold, 1 << 25), (trim_threshold, 1 << 30), (top_pad, 1 << 28)):
        mallopt(parameter, size)


def be_quiet() -> None:
    """Leave the terminal to the run: Lightning's notes on devices and loaders say nothing about a federation."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.formatwarning = lambda message, *_, **__: f"Warning: {message}\n"
    for message in (
        ".*isinstance.treespec, LeafSpec.*",
        ".*does not have many workers.*",
        ".*configure_optimizers. returned .None.*",
        ".*Checkpoint directory .* exists.*",
        ".*Experiment logs directory .* exists.*",
        ".*LightningCLI's args parameter is intended.*",
        ".*srun. command is available on your system but is not used.*",  # Slurm may be there; ranks are torchrun's
    ):
        warnings.filterwarnings("ignore", message=message)
