"""Mistakes on several ranks: one sentence for all of them, above what the launcher reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bad_input.test_own_classes import DATA, OWN
from tests.cli.folders import DIGITS
from tests.conftest import torchrun
from tests.ranks import forked

pytestmark = pytest.mark.distributed


@pytest.mark.slow
def test_a_mistake_of_another_rank_under_torchrun(tmp_path: Path) -> None:
    """Rank 0, whose data is there, would report a lost connection, and its folder would stay."""
    words = ("--data", f"{OWN}.Elsewhere", "--data.what", "all that is needed")
    ended = torchrun(2, *DATA, *words, root=tmp_path / "runs")
    expected = "Error: Expected load() of Elsewhere to read the data, but OSError: rank 1 has no such file"
    assert ended.code != 0
    assert ended.err.count("Error: Expected") == 1, ended.err
    assert ended.err.index(expected) < ended.err.index("ChildFailedError")
    assert "Traceback" not in ended.err[: ended.err.index(expected)]
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--model.network", "MNISTCNN"), "--model.network MNISTCNN to take inputs"),
        (("--federation.participants", 10**9), "at most 1000000 participants"),
        (("--config", "mnist.yaml", "--data.data_dir", "nowhere"), "the files of MNIST in nowhere/MNIST/raw/"),
        (("--run.name", "../x"), "--run.name to be a folder below --run.root, but got ../x"),
    ],
)
def test_a_mistake_of_all_ranks(tmp_path: Path, words: tuple[object, ...], expected: str) -> None:
    """Every rank would tell it, or the others would report that rank 0 is gone."""
    ended = forked(2, *DIGITS, "--trainer.max_epochs", 1, *words, root=tmp_path / "runs")
    assert ended.code == 2, ended.err
    assert sum(line.startswith("Error: ") for line in ended.err.splitlines()) == 1, ended.err
    assert expected in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "runs").exists()
