"""Ranks that meet with a backend each: ``python -m tests.distributed.agreeing BACKEND BACKEND``, one per rank."""

from __future__ import annotations

import sys

from rffl_pl import launch
from rffl_pl.strategy import FederatedStrategy


class Equipped(FederatedStrategy):
    """A rank whose machine has what the backend needs, as far as it tells the others."""

    def __init__(self, backend: str) -> None:
        super().__init__("cpu")
        self._process_group_backend = backend


if __name__ == "__main__":
    strategy = Equipped(sys.argv[1 + launch.rank()])
    store = strategy._meet()
    print(f"{launch.rank()}: {strategy._get_process_group_backend()}")
    store.set(f"{launch.rank()} has read", "")
    if launch.rank() == 0:  # which has the store in its process
        for rank in range(launch.world_size()):
            store.get(f"{rank} has read")
