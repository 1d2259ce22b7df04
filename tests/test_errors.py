"""Which exception is told as what."""

from __future__ import annotations

import pytest

from rffl_pl.errors import lost_a_rank

BROKEN = RuntimeError("[gloo/transport/tcp/pair.cc:589] Connection closed by peer")


@pytest.mark.parametrize(("ranks", "lost"), [("1", False), ("2", True)])
def test_who_is_alone_loses_no_rank(monkeypatch: pytest.MonkeyPatch, ranks: str, lost: bool) -> None:
    """Else a broken pipe of a callback's own would be told as a rank that is gone, and where it broke would be lost."""
    monkeypatch.setenv("WORLD_SIZE", ranks)
    assert lost_a_rank(BROKEN) == lost
    assert not lost_a_rank(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not lost_a_rank(ValueError(str(BROKEN)))
