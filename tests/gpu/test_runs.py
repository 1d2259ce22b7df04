"""Whole runs twice, and runs that go on elsewhere: on the CPU, and in `make gpu` on a card and between both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from rffl_pl.strategy import leave_process_group
from tests.gpu.cohorts import ENGINES, full_precision
from tests.gpu.program import play
from tests.runs import kept_in

CARD = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine shows no GPU")
GPU = pytest.param("gpu", marks=[pytest.mark.gpu, CARD])
ELSEWHERE = [("cpu", "cpu")] + [
    pytest.param(*way, marks=[pytest.mark.gpu, CARD]) for way in (("cpu", "gpu"), ("gpu", "cpu"), ("gpu", "gpu"))
]
SERVERS = ("RFFL", "guarded", "FoolsGold", "CFFL")
"""By reputations alone; those with guards that look back; a history of every upload; who validates."""


@pytest.fixture(autouse=True)
def _as_exact_as_can_be() -> Iterator[None]:
    """The kernels that torch calls deterministic, in full precision; and a process group of its own for every run."""
    leave_process_group()
    with full_precision():
        yield
    leave_process_group()


def ended(run: Path) -> dict[str, Any]:
    """All that a run has left for one that goes on."""
    found: dict[str, Any] = kept_in(run / "checkpoints" / "last.ckpt")["federation"]
    return found


def same(one: Any, other: Any) -> bool:
    """To the bit, through containers."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or one != one


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_whole_run_twice(device: str, engine: str, tmp_path: Path) -> None:
    """Training, forging, judging, rewards: every model, optimizer and reputation after three rounds, to the bit."""
    first, second = (ended(play(device, "RFFL", tmp_path / name, 3, engine)) for name in ("first", "second"))
    assert same(first, second)


def test_what_is_not_the_same() -> None:
    """A bit anywhere counts."""
    one = {"a": [torch.tensor([1.0, torch.nan]), 3]}
    assert same(one, {"a": [torch.tensor([1.0, torch.nan]), 3]})
    assert not same(one, {"a": [torch.tensor([1.0 + 2**-23, torch.nan]), 3]})
    assert not same(one, {"a": [torch.tensor([1.0, torch.nan]), 4]})
    assert not same(one, {"a": one["a"][:1]})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What four rounds on the CPU end with, by server."""
    return cache(lambda server: ended(play("cpu", server, tmp_path_factory.mktemp("whole") / "run", 4, "auto")))


@pytest.mark.parametrize(("first", "second"), ELSEWHERE)
@pytest.mark.parametrize("server", SERVERS)
def test_a_run_goes_on_elsewhere(
    server: str, first: str, second: str, whole: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """From the checkpoint of one device on another, to what the CPU alone gives: members and models."""
    begun = play(first, server, tmp_path / "begun", 2, "auto")
    leave_process_group()
    gone_on = ended(play(second, server, tmp_path / "ended", 4, "auto", str(begun / "checkpoints" / "last.ckpt")))
    leave_process_group()
    expected = whole(server)
    assert gone_on["members"] == expected["members"]
    if first == second == "cpu":
        assert same(gone_on, expected)
        return
    for i, mine in expected["participants"].items():
        torch.testing.assert_close(gone_on["participants"][i]["network"], mine["network"], rtol=1e-3, atol=1e-3)
