"""The table of metrics is added to, whoever takes part."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from rffl_pl import Round, RunFolder, UserError
from rffl_pl.callbacks.metrics_file import ExperimentWriter, MetricsFile
from rffl_pl.runs.history import History
from tests.cli.folders import DIGITS, Run
from tests.conftest import only_run


def test_who_takes_part_for_the_first_time(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New columns of theirs had the whole file written anew, round after round until everybody had been asked."""
    rewritten: list[object] = []
    monkeypatch.setattr(ExperimentWriter, "_rewrite_with_new_header", lambda writer, names: rewritten.append(names))
    ended = rffl(*DIGITS, "--trainer.max_epochs", 6, "--federation.participation", 0.4)
    assert ended.code == 0, ended.err
    assert rewritten == []
    rounds = RunFolder.open(only_run(tmp_path / "runs")).rounds()
    asked = [[not math.isnan(loss) for loss in entry.measures["train_loss"]] for entry in rounds]
    assert len(rounds) == 6
    assert asked[0] != asked[1] or asked[1] != asked[2]


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """Of a round's files the sentence names that which does not fit, and how to go on."""
    metrics, history = MetricsFile(tmp_path), History(tmp_path / "rounds.jsonl")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    write: dict[str, Callable[[], object]] = {
        "metrics.csv": lambda: metrics.log_metrics({"round": 1.0}, step=1),
        "rounds.jsonl": lambda: history.append(Round(number=1, honest=1, members=[True])),
    }
    for name in write:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))
        try:
            with pytest.raises(UserError) as caught:
                write[name]()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        go_on = "make room, and go on with --ckpt_path last."
        assert str(caught.value) == f"Expected to write {tmp_path / name}, but File too large; {go_on}"


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """Nobody can make room for it; the file is named once."""
    history = History(tmp_path / "run" / "rounds.jsonl")
    history.append(Round(number=1, honest=1, members=[True]))
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(UserError) as caught:
        history.append(Round(number=2, honest=1, members=[True]))
    why = "No such file or directory; see to that, and go on with --ckpt_path last."
    assert str(caught.value) == f"Expected to write {history.file}, but {why}"
