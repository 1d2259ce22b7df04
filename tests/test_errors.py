"""Which exception is told as what."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rffl_pl.errors import UserError, check_not_negative, check_positive, check_share, lost_a_rank, reason

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


def in_no_share(*ends: float, within: str) -> Callable[[str, float, str], None]:
    """`check_share` of an interval, which takes the ends that it has."""
    for end in ends:
        check_share("--x", end, within=within)
    return lambda option, value, remedy: check_share(option, value, remedy, within=within)


@pytest.mark.parametrize(
    ("check", "expected", "values"),
    [
        (check_positive, "be a positive number", (0.0, -1)),
        (check_not_negative, "be a number from 0 on", (-1e-9,)),
        (in_no_share(0, 1, within="[0, 1]"), "lie in [0, 1]", (-0.1, 1.1)),
        (in_no_share(1, within="(0, 1]"), "lie in (0, 1]", (0.0, 1.1)),
        (in_no_share(0, within="[0, 1)"), "lie in [0, 1)", (-0.1, 1)),
    ],
)
def test_a_number_that_lies_elsewhere(
    check: Callable[[str, float, str], None], expected: str, values: tuple[float, ...]
) -> None:
    """Nor is one that is none, or without bounds, ever taken."""
    for value in (*values, math.nan, math.inf):
        with pytest.raises(UserError) as caught:
            check("--x", value, "0.5 is usual")
        assert str(caught.value) == f"Expected --x to {expected}, but got {value}; 0.5 is usual."
    check("--x", 0.5, "")
