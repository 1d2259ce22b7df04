"""Cells that fail in other ways than by a user's mistake or an exception: each is told of and stops no other."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, LightningModule, Trainer

from rffl_pl.studies import play
from rffl_pl.studies.cells import Cell
from rffl_pl.studies.pack import together
from rffl_pl.studies.study import RunWords
from rffl_pl.studies.surroundings import kernels
from tests.cli.folders import Run
from tests.cli.test_disks import files_of_at_most
from tests.interruption import PowerCut
from tests.studies.files import DIGITS, rows, study


class Leaving(PowerCut):
    """Ends the process, or means to, as Lightning does after Ctrl-C."""

    exception = SystemExit(1)


@pytest.mark.slow
@pytest.mark.parametrize("pack", [1, 2])
def test_a_cell_that_calls_exit_stops_no_other(rffl: Run, tmp_path: Path, pack: int) -> None:
    """It has failed, and nobody interrupted the study; alone and in a pack."""
    text = f"""\
base: {DIGITS} --trainer.max_epochs 1 --model.engine stacked
axes:
  what:
    left: --trainer.callbacks+={Leaving.__module__}.Leaving --trainer.callbacks.after 0
    fine: ""
"""
    root = tmp_path / "studies"
    ended = rffl("study", study(tmp_path, text, "two.yaml"), "--root", root, "--pack", pack)
    assert ended.code == 1, ended.err
    failed = [line for line in ended.err.splitlines() if line.startswith("Failed: ")]
    assert len(failed) == 1
    sentence, _, log = failed[0].partition(" (")
    assert sentence == "Failed: what=left seed=1: A callback or a library of its ended it by sys.exit(1)."
    assert "in on_train_batch_start" in Path(log.rstrip(")")).read_text()
    assert {row["what"] for row in rows(root / "two" / "results.csv")} == {"fine"}
    listed = rffl("study", tmp_path / "two.yaml", "--root", root, "--dry-run").out.splitlines()
    said = sentence.removeprefix("Failed: what=left seed=1: ")
    assert listed[0] == f"what=left seed=1: 1 rounds, to run; failed the last time: {said}"


def chatty(words: list[str]) -> None:
    print("x")


def interrupted(words: list[str]) -> None:
    chatty(words)
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize(("run", "state"), [(chatty, "failed"), (interrupted, "interrupted")])
def test_a_full_disk_fails_a_cell_in_a_sentence(tmp_path: Path, run: RunWords, state: str) -> None:
    """What has no room, its log, its record and its name in the lock, ends nobody else; Ctrl-C stays what it is."""
    cell = Cell(place={}, seed=1, rounds=1, words=[], settings="", digest="one")
    with files_of_at_most(1):
        alone = play.play(cell, tmp_path / "alone", run)
        ((_, packed),) = together([partial(play.play, cell, tmp_path / "packed", run, 0)])
    assert (alone.state, packed.state) == (state, state)
    if state == "failed":
        expected = "Expected to write its log, but File too large; make room, and give the same command again."
        assert alone.sentence == packed.sentence == expected
    assert play.play(cell, tmp_path / "alone", run).state == state


def failing(words: list[str]) -> None:
    print("Error: Expected more below --run.root; mend it and go on with --ckpt_path last.")


def test_a_failed_cell_goes_on_with_its_study(tmp_path: Path) -> None:
    """What a run of its own is told to type would be refused in a cell's folder."""
    cell = Cell(place={}, seed=1, rounds=1, words=[], settings="", digest="one")
    assert play.play(cell, tmp_path, failing).sentence == "Expected more below --root; mend it and run the study again."


@pytest.mark.parametrize("several", [1, 2])
def test_a_cell_leaves_no_kernels_to_the_next(tmp_path: Path, several: int) -> None:
    """A trainer's --trainer.deterministic and --trainer.benchmark are the process's; alone and in a pack."""
    options: Iterator[dict[str, Any]] = iter([{"deterministic": "warn"}, {"benchmark": True}, {}])
    before, found = kernels(), []

    def run(words: list[str]) -> None:
        found.append(kernels())
        Trainer(accelerator="cpu", barebones=True, **next(options))

    cells = [Cell(place={}, seed=seed, rounds=1, words=[], settings="", digest=f"{seed}") for seed in range(3)]
    for start in range(0, 3, several):
        list(play.play_all(cells[start : start + several], tmp_path, run, 0))
    assert found == [before] * 3
    assert kernels() == before


def test_a_file_system_without_locks(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some network file systems are: a study runs there as a single run does."""

    def refused(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    text = f"base: {DIGITS} --trainer.max_epochs 1\naxes: {{what: {{fine: ''}}}}\n"
    ended = rffl("study", study(tmp_path, text, "one.yaml"), "--root", tmp_path / "studies")
    assert ended.code == 0, ended.err
    assert {row["what"] for row in rows(tmp_path / "studies" / "one" / "results.csv")} == {"fine"}


class Editing(Callback):
    """Puts another file in the place of one while its run goes on, as who thinks that the study has long been over.

    Args:
        place: The file without its ending, so that the option itself names none.
        ending: Its ending; the other has ``.new`` behind it.
    """

    def __init__(self, place: str, ending: str) -> None:
        self.file = f"{place}{ending}"

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        shutil.copy(f"{self.file}.new", self.file)


TABLE = "a,b,label\n" + "".join(f"{k % 7},{k % 3},{'xy'[k % 2]}\n" for k in range(80))
OF_THE_TABLE = """\
data: {{class_path: TableFile, init_args: {{train_file: {file}, examples_per_participant: 12}}}}
model: {{network: {{class_path: Perceptron, init_args: {{inputs: 2, classes: 2}}}}, engine: stacked}}
"""
MINE = "from rffl_pl.servers import FedAvg\n\n\nclass Mine(FedAvg):\n    pass\n"


@pytest.mark.parametrize(
    ("ending", "pack"),
    [
        pytest.param(".csv", 1, marks=pytest.mark.slow),
        (".csv", 2),
        pytest.param(".yaml", 1, marks=pytest.mark.slow),
        (".py", 1),
    ],
)
def test_what_changes_while_a_study_runs_makes_no_results(
    rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, pack: int
) -> None:
    """Results of the new file were kept under the old one's identity, and came back when the old one did."""
    monkeypatch.syspath_prepend(tmp_path)
    name, root = f"edited_{ending[1:]}_{pack}", tmp_path / "studies"
    mine = {kind: tmp_path / f"{name}{kind}" for kind in (".csv", ".yaml", ".py")}
    old = {".csv": TABLE, ".yaml": OF_THE_TABLE.format(file=mine[".csv"]), ".py": MINE}
    more = {".csv": "1,2,x\n", ".yaml": "federation: {participants: 4}\n", ".py": "# changed\n"}
    for kind, path in mine.items():
        path.write_text(old[kind])
        path.with_name(f"{path.name}.new").write_text(old[kind] + more[kind])
    edit = f"--trainer.callbacks+={__name__}.Editing --trainer.callbacks.place {tmp_path / name}"
    text = f"""\
base: {DIGITS} --config {mine[".yaml"]} --trainer.max_epochs 1 {edit} --trainer.callbacks.ending {ending}
axes: {{server: {{mine: --server {name}.Mine}}}}
seeds: [1, 2]
"""
    words = ("study", study(tmp_path, text, "one.yaml"), "--root", root, "--pack", pack)
    ended = rffl(*words)
    assert ended.code == 1, ended.err
    said = f"{name}.Mine" if ending == ".py" else mine[ending]
    assert [line.partition(" (")[0] for line in ended.err.splitlines() if line.startswith("Failed: ")] == [
        f"Failed: server=mine seed={seed}: Expected {said} to stay as it was until the study has run, but it has "
        "changed since that began; run the study again."
        for seed in (1, 2)
    ]
    assert rows(root / "one" / "results.csv") == []
    assert rffl(*words).code == 0
    assert len({row["cell"] for row in rows(root / "one" / "results.csv")}) == 2
    mine[ending].write_text(old[ending])  # of which there is no result, in no folder either
    assert rffl(*words, "--dry-run").out.count("to run; failed the last time") == 2
