"""Ranks that meet: ``python -m tests.distributed.agreeing "BACKEND CARD" BACKEND``, what each has, the card perhaps."""

from __future__ import annotations

import sys
from unittest import mock

import rffl_pl.strategy
from rffl_pl import launch
from rffl_pl.strategy import FederatedStrategy


class Equipped(FederatedStrategy):
    """A rank whose machine has what the backend needs, as far as it tells the others."""

    def __init__(self, backend: str) -> None:
        super().__init__("cpu")
        self._process_group_backend = backend


if __name__ == "__main__":
    backend, _, card = sys.argv[1 + launch.rank()].partition(" ")
    strategy = Equipped(backend)
    with mock.patch.object(rffl_pl.strategy, "card_of", return_value=card):
        store = strategy._meet()
    print(f"{launch.rank()}: {strategy._get_process_group_backend()}")
    store.set(f"{launch.rank()} has read", "")
    if launch.rank() == 0:  # which has the store in its process
        for rank in range(launch.world_size()):
            store.get(f"{rank} has read")
