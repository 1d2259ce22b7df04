"""Which exception is told as what."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rffl_pl.errors import lost_a_rank, reason

BROKEN = RuntimeError("[gloo/transport/tcp/pair.cc:589] Connection closed by peer")


@pytest.mark.parametrize(("ranks", "lost"), [("1", False), ("2", True)])
def test_who_is_alone_loses_no_rank(monkeypatch: pytest.MonkeyPatch, ranks: str, lost: bool) -> None:
    """Else a broken pipe of a callback's own would be told as a rank that is gone, and where it broke would be lost."""
    monkeypatch.setenv("WORLD_SIZE", ranks)
    assert lost_a_rank(BROKEN) == lost
    assert not lost_a_rank(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not lost_a_rank(ValueError(str(BROKEN)))


TOOLS = """
def inner(x):
    return x.reshape(7, 7)
def outer(x):
    return inner(x)
"""
RULE = """
def weigh(x):
    return outer(x)
def rule(x):
    return weigh(x)
"""


@pytest.mark.parametrize(
    ("called", "place"),
    [
        ("inner", "(tools.py, line 3)"),
        ("outer", "(tools.py, line 3, called from line 5)"),
        ("weigh", "(tools.py, line 3, called from line 5, called from rule.py, line 3)"),
        ("rule", "(tools.py, line 3, called from line 5, called from rule.py, line 3)"),
    ],
)
def test_who_called_what_failed(tmp_path: Path, called: str, place: str) -> None:
    """Where a helper fails nobody sees for whom it worked; other people's frames and further ones are left out."""
    module = ModuleType("rule")
    for name, code in {"tools.py": TOOLS, "rule.py": RULE}.items():
        exec(compile(code, tmp_path / name, "exec"), vars(module))
    with pytest.raises(RuntimeError) as caught:
        vars(module)[called](torch.ones(2))
    error = caught.value
    assert error.__traceback__ is not None
    told = reason(error.with_traceback(error.__traceback__.tb_next))  # without this test's own frame
    assert re.fullmatch(r"RuntimeError: shape .* size 2 " + re.escape(place), told), told
