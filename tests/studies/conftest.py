"""What the tests of packs share: Ctrl-C is heard, and stacks are counted."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from rffl_pl.training.stack import Stack, Turn


@pytest.fixture
def hears_control_c() -> Iterator[None]:
    """Also where the tests run in a shell's background, which has what it starts ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def unions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many participants each stack trains, as they are trained."""
    sizes: list[int] = []
    trained = Stack.trained

    def counted(stack: Stack, turns: Sequence[Turn], rates: Sequence[float]) -> Any:
        sizes.append(len(turns))
        return trained(stack, turns, rates)

    monkeypatch.setattr(Stack, "trained", counted)
    return sizes
