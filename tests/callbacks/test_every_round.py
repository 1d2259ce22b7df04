"""A callback of one's own is told of every round, as soon as it has been measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rffl_pl import Round, RunFolder
from rffl_pl.callbacks.every_round import RoundCallback, numbers_of
from tests.bad_input.refusal import assert_refused
from tests.cli.folders import DIGITS, Run, rows
from tests.conftest import only_run
from tests.ranks import forked
from tests.runs import kept_in

ENDED = "training ended after 3 of 9 rounds: a callback asked for it\n"


def diary(folder: Path) -> tuple[object, ...]:
    """The words of a run that is to end after three of nine rounds."""
    writes = ("--trainer.callbacks+=tests.extensions.Diary", "--trainer.callbacks.file", folder / "diary")
    return (*DIGITS, "--trainer.max_epochs", 9, *writes, "--trainer.callbacks.after", 3)


def written(folder: Path) -> list[list[str]]:
    """What it was told."""
    return [line.split() for line in (folder / "diary").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.distributed
def test_on_two_ranks_it_is_told_once_and_ends_both(tmp_path: Path) -> None:
    """Rank 0 alone knows all the numbers; the other one would wait for it in a round that nobody plays."""
    ended = forked(2, *diary(tmp_path), root=tmp_path / "runs")
    assert ended.code == 0, ended.err
    assert ENDED in ended.out
    measured = [float(row["accuracy/mean"]) for row in rows(only_run(tmp_path / "runs") / "metrics.csv")]
    assert len(measured) == 3
    assert written(tmp_path) == [[str(i), str(i), f"{measured[i - 1]:.6f}"] for i in (1, 2, 3)]
    run = RunFolder.open(only_run(tmp_path / "runs"))
    for row, entry in zip(rows(run.metrics_file), run.rounds(), strict=True):
        honest = torch.tensor(entry.measures["accuracy"][: entry.honest])
        assert float(row["jain"]) == entry.numbers["jain"] == pytest.approx(honest.mean() ** 2 / (honest**2).mean())
        assert "none" not in row


def test_a_run_that_goes_on_tells_the_rounds_that_were_missing(rffl: Run, tmp_path: Path) -> None:
    """Its state is the checkpoint's, of the same round."""
    args = (*diary(tmp_path), "--run.name", "run")
    with pytest.raises(RuntimeError, match="power cut"):
        rffl(*args, "--trainer.callbacks+=tests.interruption.PowerCut")
    ended = rffl(*args, "--ckpt_path", "last")
    assert ended.code == 0, ended.err
    assert ENDED in ended.out
    assert [line[:2] for line in written(tmp_path)] == [["1", "1"], ["2", "2"], ["3", "3"]]


MISTAKES = {
    "state of a callback": (
        ("--trainer.callbacks+=tests.callbacks.own.Best",),
        "Expected the state of --trainer.callbacks Best to hold tensors and Python's own numbers and texts, which a "
        "checkpoint keeps, but it has numpy.float64; give float(...) or torch.as_tensor(...).",
        1,
    ),
    "two states of a kind": (
        ("--trainer.callbacks+=tests.callbacks.own.Best", "--trainer.callbacks+=tests.callbacks.own.Best"),
        "Expected --trainer.callbacks whose states have a key each in checkpoints, but Best is there twice; give one, "
        "or the class a property state_key that tells them apart, as self._generate_state_key(name=self.name).",
        None,
    ),
    "a lock in the state of a callback": (
        ("--trainer.callbacks+=tests.callbacks.own.Locked",),
        "Expected the state of --trainer.callbacks Locked to hold tensors and Python's own numbers and texts, which a "
        "checkpoint keeps, but it has _thread.lock; give float(...) or torch.as_tensor(...).",
        0,
    ),
    "what a callback puts beside its state": (
        ("--trainer.callbacks+=tests.callbacks.own.Adding",),
        "Expected what is put into a checkpoint as best to hold tensors and Python's own numbers and texts, which a "
        "checkpoint keeps, but it has numpy.float64; give float(...) or torch.as_tensor(...).",
        0,
    ),
    "state of data": (
        ("--data", "tests.callbacks.own.Counted"),
        "Expected what is put into a checkpoint as Counted to hold tensors and Python's own numbers and texts, which a "
        "checkpoint keeps, but it has numpy.int64; give float(...) or torch.as_tensor(...).",
        0,
    ),
    "state of an optimizer": (
        ("--model.optimizer", "tests.callbacks.own.Stepping", "--model.optimizer.lr", 0.1),
        "Expected the state of --model.optimizer to hold tensors and Python's own numbers and texts, which a "
        "checkpoint keeps, but it has numpy.float32; give float(...) or torch.as_tensor(...).",
        0,
    ),
    "a round": (
        ("--trainer.callbacks+=tests.callbacks.own.Failing",),
        "Expected --trainer.callbacks tests.callbacks.own.Failing to hear of round 1, but KeyError: 'accuracies' "
        "(own.py, line",
        0,
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_ones_own(rffl: Run, tmp_path: Path, mistake: str) -> None:
    """Checkpoints are written that nobody can read, or a mistake is a traceback; what was written before stays."""
    words, sentence, rounds = MISTAKES[mistake]
    ended = rffl(*DIGITS, "--trainer.max_epochs", 3, *words)
    assert_refused(ended, sentence)
    if rounds is None:
        assert not (tmp_path / "runs").exists()
        return
    kept = [*only_run(tmp_path / "runs").glob("checkpoints/last.ckpt")]
    assert [kept_in(path)["federation"]["round"] for path in kept] == [rounds] * bool(rounds)


def test_a_number_that_has_a_name(rffl: Run) -> None:
    """It would stand in the place of another one, or that in its; quantiles are W&B's, of many participants alone."""
    words = (*DIGITS, "--trainer.max_epochs", 1, "--trainer.callbacks+=tests.callbacks.own.Renaming")
    # In the column of `step` Lightning puts the round, and W&B's summary has the result's fairness in the end.
    for name in ("accuracy/mean", "loss/honest_median", "step", "fairness", "result"):
        ended = rffl(*words, "--trainer.callbacks.name", name)
        assert_refused(ended, f"Expected numbers of Renaming to have names of their own, but got {name}; rename it")


def test_a_number_that_has_a_name_of_later_rounds(rffl: Run, tmp_path: Path) -> None:
    """It was refused where models are measured for the first time, and the rounds until then had been for nothing."""
    later = ("--trainer.max_epochs", 2, "--trainer.check_val_every_n_epoch", 2)
    own = ("--model.measures+=torchmetrics.classification.MulticlassAUROC", "--model.measures.num_classes", 10)
    words = (*DIGITS, *later, *own, "--trainer.callbacks+=tests.callbacks.own.Renaming", "--trainer.callbacks.name")
    for name in ("accuracy/max", "multiclass_auroc/mean"):
        ended = rffl(*words, name)
        assert_refused(ended, f"Expected numbers of Renaming to have names of their own, but got {name}; rename it")
    assert not [*(tmp_path / "runs").rglob("last.ckpt")]


class Dividing(RoundCallback):
    """Gives what is not defined in every round."""

    def numbers(self, played: Round) -> dict[str, float]:
        return {"jain": 0.5, "ratio": float("nan"), "gap": float("inf")}


def test_a_number_that_is_not_finite_is_left_out() -> None:
    """No JSON has it, and the result of the run could not be written."""
    assert numbers_of(Dividing(), Round(number=1, honest=1, members=[True])) == {"jain": 0.5}
