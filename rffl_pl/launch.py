"""What the launcher says of this process, in torchrun's environment variables; alone, it is rank 0 of 1."""

from __future__ import annotations

import os
from pathlib import Path


def world_size() -> int:
    """Ranks of the run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """This process's number in the run."""
    return int(os.environ.get("RANK", "0"))


def local_world_size() -> int:
    """Ranks of this node."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def local_rank() -> int:
    """This process's number on its node."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def node_folder() -> Path | None:
    """The folder that torchrun makes for the ranks of this node and removes after the run."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")  # <folder of this attempt>/<local rank>/error.json
    return Path(file).parent.parent if file else None
