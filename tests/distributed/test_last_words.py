"""One rank fails: all end, and every node is told why and whose it is."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from rffl_pl.callbacks.agreement import named_alike
from rffl_pl.errors import UserError
from rffl_pl.launch import meeting, words
from rffl_pl.launch.meeting import fresh_prefix
from rffl_pl.runs import RunFolder
from rffl_pl.runs.disks import Disks
from rffl_pl.runs.keeping import Keeper
from rffl_pl.strategy import FederatedStrategy, leave_word
from tests.conftest import QUICK, ROOT
from tests.ranks import forked

pytestmark = pytest.mark.distributed

DIGITS = ("fit", "--config", "configs/digits.yaml")
HOST = socket.gethostname()
CUT = "Expected b.png to be an image, but it is cut off; mend it."


def errors(said: str) -> list[str]:
    return sorted(line for line in said.splitlines() if line.startswith("Error: "))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "expected"),
    [("tests.own_node", [f"Error: {CUT}", f"Error: Rank 1 on {HOST}: {CUT}"]), ("rffl_pl", [f"Error: {CUT}"])],
)
def test_a_mistake_in_the_middle_of_a_run(tmp_path: Path, module: str, expected: list[str]) -> None:
    """Whoever waits for that rank says that a connection was lost, as if a network were."""
    given = (*DIGITS, *QUICK, "--trainer.max_epochs", 3, "--trainer.callbacks+=tests.failing.Mistaken")
    ended = forked(2, *given, root=tmp_path, module=module, grace=60)
    assert ended.code == 2, ended.err
    assert errors(ended.err) == expected


@pytest.mark.slow
def test_what_nobody_expected(tmp_path: Path) -> None:
    """The traceback is on the machine of the rank that failed; others hear which one that is."""
    given = (*DIGITS, *QUICK, "--trainer.max_epochs", 3, "--trainer.callbacks+=tests.failing.Broken")
    ended = forked(2, *given, root=tmp_path, module="tests.own_node", grace=60)
    assert ended.code == 1, ended.err
    (error,) = errors(ended.err)
    assert error.startswith(f"Error: Rank 1 on {HOST}: Failed with KeyError: 'b.png' (failing.py, line ")
    assert error.endswith("); the traceback is there.")


@pytest.mark.parametrize("typo", [["--run.nmae", "a"], ["--ranks", "two"]])
@pytest.mark.parametrize("whose", [0, 1])
def test_words_that_one_node_alone_cannot_read(tmp_path: Path, whose: int, typo: list[str]) -> None:
    """The others wait half an hour for that rank, and say that not all came."""
    given = (*DIGITS, *QUICK, "--trainer.max_epochs", 1)
    each = [typo if rank == whose else [] for rank in range(2)]
    ended = forked(2, *given, each=each, root=tmp_path, module="tests.own_node", grace=60)
    assert ended.code == 2, ended.err
    here, there = sorted(errors(ended.err), key=len)
    assert f"but got {typo[-1 if typo[0] == '--ranks' else 0]}" in here
    assert there == f"Error: Rank {whose} on {HOST}: {here.removeprefix('Error: ')}"
    assert not [*tmp_path.rglob("*.jsonl")]


def test_who_is_started_again_may_yet_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others give up a rank that torchrun is about to start again."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    given = {
        "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_MAX_RESTARTS": "1",
    }  # fmt: skip
    # A process group that other tests have begun lasts as long as the process.
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    heard = []
    for count in ("0", "1"):
        for name, value in (given | {"TORCHELASTIC_RESTART_COUNT": count}).items():
            monkeypatch.setenv(name, value)
        leave_word("Expected words that can be read.")
        ours: dist.Store = next(dist.rendezvous("env://"))[0]
        heard.append(ours.check([meeting._ABSENT]))
    assert heard == [False, True]
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match=rf"^Rank 1 on {HOST}: Expected words that can be read\.$"):
        fresh_prefix(ours, 0, 2)


def test_weights_that_one_rank_cannot_write(tmp_path: Path) -> None:
    """The others print a result, and a traceback when they find that rank gone."""
    given = (*DIGITS, *QUICK, "--trainer.max_epochs", 2, "--trainer.callbacks+=tests.failing.NoRoom")
    ended = forked(2, *given, root=tmp_path, module="tests.own_node", grace=60)
    assert ended.code == 2, ended.err
    assert "Traceback" not in ended.err
    here, there = errors(ended.err)
    assert here.startswith("Error: Expected to write ")
    assert "participant_1.pt, but Is a directory" in here
    assert there == f"Error: Rank 1 on {HOST}: {here.removeprefix('Error: ')}"
    assert "fairness" not in ended.out


def test_what_others_hear_of_examples_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A patient's name in a file's travels to every other hospital; ranks of one machine hear it all."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    said = []
    for private, local in ((True, "1"), (False, "1"), (True, "2")):
        words.keep_private(private)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
        said.append(words.spoken("Expected jane_doe.png to be an image."))
    words.keep_private(False)
    assert ["jane_doe" in one for one in said] == [False, True, True]
    monkeypatch.setenv("RANK", "0")
    assert words.heard(said[0]) == f"Rank 1 on {HOST}: It cannot go on; its own machine says why."


def test_a_mistake_in_examples_of_ones_own(tmp_path: Path) -> None:
    """It reaches other machines, or nobody is told what is wrong with them."""
    for i in range(2):
        rows = [f"film {i} {k},{'no' if k % 2 else 'yes'}" for k in range(20)]
        (tmp_path / f"train_{i}.csv").write_text("text,label\n" + "\n".join(rows + ["Jane Doe,ill"] * i) + "\n")
    (tmp_path / "test.csv").write_text("text,label\na film,yes\nno film,no\n")
    (tmp_path / "words.txt").write_text("a film\n")
    data = (
        "fit", *QUICK, "--trainer.max_epochs", 1, "--federation.participants", 2, "--data", "TextFile", "--data.split",
        "OWN", "--data.train_file", tmp_path / "train_{participant}.csv", "--data.test_file", tmp_path / "test.csv",
        "--data.vocabulary_file", tmp_path / "words.txt", "--model.network", "TextCNN", "--model.network.vocabulary",
        10, "--model.network.classes", 2, "--data.validation", 0, "--data.watch", "test",
    )  # fmt: skip
    ended = forked(2, *data, root=tmp_path / "runs", module="tests.own_node", grace=60)
    assert ended.code == 2, ended.err
    there, here = sorted(errors(ended.err), key=lambda one: "Rank 1 on" not in one)
    assert there == f"Error: Rank 1 on {HOST}: It cannot go on; its own machine says why."
    assert "train_1.csv" in here
    assert "ill" in here


def test_words_that_are_none() -> None:
    """What another rank says clears the screen, or ends this one with a traceback."""
    forged = json.dumps({"sentence": "Full.\x1b[2J\nError: paste this", "rank": "0\x1b", "host": "h", "node": "n"})
    assert words.heard(forged) == "Rank 0  on h: Full. [2J Error: paste this"
    assert words.heard("{") == words.heard("[1]") == "Rank None on None: None"
    assert len(words.heard(json.dumps({"sentence": "x" * 10**6}))) < 3000


def test_a_folder_elsewhere(tmp_path: Path) -> None:
    """Rank 0 has others write where they did not say."""
    here = RunFolder(tmp_path / "here")
    for name in ("/elsewhere", "../there", "..", "a/b"):
        trainer: Any = SimpleNamespace(strategy=SimpleNamespace(broadcast=lambda _, name=name: name))
        with pytest.raises(UserError, match=r"to name a folder below --run\.root and --run\.name, but it says"):
            named_alike(here, trainer)
    trainer = SimpleNamespace(strategy=SimpleNamespace(broadcast=lambda _: "there"))
    assert named_alike(here, trainer).path == tmp_path / "there"


def test_checkpoints_elsewhere(tmp_path: Path) -> None:
    """Rank 0 has others replace what lies anywhere on their disks."""

    class Two:
        is_global_zero, world_size = False, 2

        def broadcast(self, obj: Any) -> Any:
            return ["/srv/runs/a/1", "/srv/runs/a/1"]

        def first_word(self, word: str | None) -> str | None:
            return word

    ranks: Any = Two()
    disks = Disks(ranks, "mark")
    assert disks.holds("/anywhere")  # a trainer of one's own without a run folder
    disks.runs_in(tmp_path / "1")
    assert disks.here("/srv/runs/a/1/checkpoints/last.ckpt") == tmp_path / "1" / "checkpoints" / "last.ckpt"
    keeper = Keeper(ranks, disks, "mark", all_serve=False)
    for place in ("/elsewhere/last.ckpt", "/srv/runs/a/2/last.ckpt", "/srv/runs/a/1/../../../b/last.ckpt"):
        with pytest.raises(UserError, match=r"to lie in the run's folder, but rank 0 names .*; leave dirpath out\."):
            keeper.write({}, place)
        assert keeper.to_remove(place) is None
    assert disks.holds("/srv/runs/a/1/checkpoints/last.ckpt")
    assert disks.holds(tmp_path / "1" / "checkpoints" / "last.ckpt")


@pytest.mark.slow
def test_a_port_that_is_taken() -> None:
    """It passes for ranks that did not come within half an hour."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        given = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ended = subprocess.run(
            [sys.executable, "-m", "rffl_pl", *map(str, DIGITS)],
            env={**os.environ, **given}, cwd=ROOT, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert f"Error: Expected port {port} of this machine to be free for ranks to meet, but another" in ended.stderr


def test_ranks_that_were_told_of_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for one another for half an hour; behind torchrun's restart it is what is left of the ranks before."""
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    store = dist.HashStore()
    store.set("question of 1", "abc of 3")
    with pytest.raises(UserError, match="the same WORLD_SIZE, but rank 1 has 3 and rank 0 has 2; give it alike"):
        fresh_prefix(store, 0, 2)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "again")
    other = threading.Thread(target=lambda: fresh_prefix(store, 1, 2))
    other.start()
    assert fresh_prefix(store, 0, 2) != "abc"
    other.join(timeout=30)
    assert not other.is_alive()


@pytest.mark.slow
def test_who_waits_for_others_says_so(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is printed for half an hour where a machine was not started."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        free_port = listener.getsockname()[1]
    given = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(meeting, "_LONG", 0.1)
    monkeypatch.setattr(meeting, "ARRIVAL", timedelta(seconds=2))
    with pytest.raises(UserError, match=rf"2 ranks to meet at 127\.0\.0\.1:{free_port} within .* but not all came \("):
        FederatedStrategy("cpu")._meet()
    assert f"Waiting for 2 ranks to meet at 127.0.0.1:{free_port}.\n" in capfd.readouterr().err
