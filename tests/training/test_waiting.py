"""Local training starts operations on a GPU and waits for none, found without a GPU: on a card that is none."""

from __future__ import annotations

import json

import pytest
import torch

from tests.ranks import forked

pytestmark = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14),
    reason="torch has devices written in Python from 2.14 on",
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """How every case of `tests.training.on_card` ended."""
    folder = tmp_path_factory.mktemp("waiting")
    ended = forked(1, folder, module="tests.training.on_card")
    assert ended.code == 0, ended.err
    found: dict[str, str] = json.loads((folder / "told.json").read_text())
    return found


def test_no_step_waits(told: dict[str, str]) -> None:
    """Not of any network of the package, with any optimizer and engine."""
    trained = {case: end for case, end in told.items() if case.endswith((" loop", " stacked"))}
    assert len(trained) == 24
    assert set(trained.values()) == {"passed"}, trained


WAITING = {
    "a number": "aten._local_scalar_dense",
    "a condition": "aten._local_scalar_dense",
    "a comparison": "aten.equal",
    "a mask": "aten.index.Tensor",
    "where": "aten.nonzero",
    "positions in a list": "aten.copy_",
    "bringing there": "aten.copy_",
    "bringing back": "aten._to_copy",
    "copying back": "aten.copy_",
}


def test_what_waits_is_found(told: dict[str, str]) -> None:
    """Numbers that are read, positions that are counted first, copies that are waited for; and nothing else."""
    for case, what in WAITING.items():
        assert told[case].startswith(f"RuntimeError: called a synchronizing operation: {what}"), told[case]
    assert told["nothing"] == "passed"
    assert len(told) == 24 + len(WAITING) + 1
