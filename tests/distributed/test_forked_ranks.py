"""``--ranks``: ranks as forks of one process, which starts and ends them as torchrun does."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rffl_pl.errors import BY_ITSELF, UserError
from rffl_pl.launch.fork import take_ranks
from rffl_pl.runs import RunFolder
from tests.cli.folders import DIGITS, assert_same_bits
from tests.conftest import Ended, only_run
from tests.ranks import forked
from tests.runs import kept_in

SIGNALLED = ("--trainer.callbacks+=tests.interruption.Signalled", "--trainer.callbacks.rank", 1)


@pytest.mark.parametrize(
    ("words", "ranks", "rest"),
    [
        (["fit"], 1, ["fit"]),
        (["fit", "--ranks", "3", "--config", "a.yaml"], 3, ["fit", "--config", "a.yaml"]),
        (["fit", "--ranks=2"], 2, ["fit"]),
        (["fit", "--ranks", "3", "--ranks", "1"], 1, ["fit"]),
    ],
)
def test_words(words: list[str], ranks: int, rest: list[str]) -> None:
    """Another number is read, or words that are not its own are taken away."""
    assert take_ranks(words) == (ranks, rest)


@pytest.mark.parametrize("asked", ["0", "-1", "x", "1.5", "", "5000"])
def test_no_number_of_ranks(asked: str) -> None:
    """It is taken, or what came is not said."""
    with pytest.raises(UserError, match=rf"^Expected --ranks to .*but got {asked}"):
        take_ranks(["fit", "--ranks", asked])
    with pytest.raises(UserError, match="but got nothing"):
        take_ranks(["fit", "--ranks"])


def test_a_launcher_says_the_number_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank of torchrun forks into more."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="--nproc_per_node 3 instead"):
        take_ranks(["fit", "--ranks", "3"])


@pytest.mark.distributed
def test_the_bits_of_one_process(tmp_path: Path, rffl: Callable[..., Ended]) -> None:
    """Weights or rounds are others than one process alone has; output comes twice."""
    words = (*DIGITS, "--trainer.max_epochs", 2)
    ended = forked(1, *words, "--ranks", 3, root=tmp_path / "three")
    assert ended.code == 0, ended.err
    assert ended.out.count("run folder: ") == 1
    assert rffl(*words).code == 0
    three, alone = only_run(tmp_path / "three"), only_run(tmp_path / "runs")
    assert_same_bits(three, alone)
    assert (three / "rounds.jsonl").read_bytes() == (alone / "rounds.jsonl").read_bytes()


@pytest.mark.distributed
def test_ranks_draw_one_seed(tmp_path: Path) -> None:
    """Each would draw its own, and train another network on other shards."""
    words = (*DIGITS, "--trainer.max_epochs", 1, "--seed_everything", "true")
    ended = forked(1, *words, "--ranks", 2, root=tmp_path)
    assert ended.code == 0, ended.err
    assert RunFolder(only_run(tmp_path)).config()["seed_everything"] > 1


@pytest.mark.distributed
def test_a_mistake_is_told_once(tmp_path: Path) -> None:
    """Every rank tells it, the code is another, or something is left behind."""
    words = ("--ranks", 3, "--federation.participants", 2, "--federation.adversaries", 0)
    ended = forked(1, *DIGITS, *words, root=tmp_path)
    assert ended.code == 2
    assert ended.err.count("Error: ") == 1
    assert "or --ranks, at most that many or raise" in ended.err
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("launcher", ["false", "true"])
def test_asked_to_end(tmp_path: Path, launcher: str) -> None:
    """One rank or the process that started them is asked to end, and not all end with the round and its checkpoint."""
    to_whom = ("--trainer.callbacks.launcher", launcher)
    ended = forked(1, *DIGITS, "--trainer.max_epochs", 100, *SIGNALLED, *to_whom, "--ranks", 2, root=tmp_path)
    assert ended.code == 128 + signal.SIGTERM, ended.err
    run = RunFolder.open(only_run(tmp_path))
    assert ended.err.count("Stopped by SIGTERM after round") == 1
    assert f"; go on with: rffl fit --config {run.config_file} --ckpt_path last --ranks 2\n" in ended.err
    assert 3 <= kept_in(run.checkpoints / "last.ckpt")["federation"]["round"] < 100
    assert not run.summary_file.exists()


@pytest.mark.distributed
def test_one_rank_that_ends_at_once(tmp_path: Path) -> None:
    """The other finds it gone before it is asked to end itself, and nobody says a word of how to go on."""
    words = (*SIGNALLED, "--trainer.callbacks.number", int(signal.SIGINT), "--ranks", 2)
    ended = forked(1, *DIGITS, "--trainer.max_epochs", 3, *words, root=tmp_path)
    assert ended.code == 130, ended.err
    config = RunFolder.open(only_run(tmp_path)).config_file
    how = f"go on with: rffl fit --config {config} --ckpt_path last --ranks 2\n"
    assert ended.err.count(f"Stopped by SIGTERM after round 2; {how}") == 1


@pytest.mark.distributed
def test_the_launcher_alone_is_interrupted(tmp_path: Path) -> None:
    """As by `timeout -s INT`, or a supervisor: nothing happens. And what is said once is said by every rank."""
    to_whom = ("--trainer.callbacks.launcher", "true", "--trainer.callbacks.number", int(signal.SIGINT))
    words = (*DIGITS, "--trainer.max_epochs", 500, "--ckpt_path", "last", *SIGNALLED, *to_whom, "--ranks", 2)
    ended = forked(1, *words, root=tmp_path)
    assert ended.code == 130, ended.err
    assert ended.err.count("Interrupted after round") == 1
    assert ended.err.count("No run to go on with has a checkpoint yet") == 1


@pytest.mark.distributed
def test_a_rank_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on or hang, the code is 0, or the folder of the launch is left."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    words = (*SIGNALLED, "--trainer.callbacks.number", int(signal.SIGKILL), "--ranks", 2)
    ended = forked(1, *DIGITS, "--trainer.max_epochs", 9, *words, root=tmp_path / "runs")
    assert ended.code == 128 + signal.SIGKILL, ended.err
    how = f"go on with {BY_ITSELF}, or start again if there is none."
    assert f"was ended by SIGKILL, as where memory is short; {how}" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert kept_in(RunFolder.open(only_run(tmp_path / "runs")).checkpoints / "last.ckpt")["federation"]["round"] == 2


@pytest.mark.slow
@pytest.mark.distributed
def test_the_launcher_is_killed(tmp_path: Path) -> None:
    """Its ranks are left behind."""
    words = (*SIGNALLED, "--trainer.callbacks.number", int(signal.SIGKILL), "--trainer.callbacks.launcher", "true")
    endless = ("--trainer.max_epochs", 100_000)
    ended = forked(1, *DIGITS, *endless, *words, "--ranks", 2, root=tmp_path)
    assert ended.code == signal.SIGKILL
    run = only_run(tmp_path)
    sizes = []
    for _ in range(20):
        sizes.append((run / "rounds.jsonl").stat().st_size)
        if sizes[-3:] == sizes[-1:] * 3:
            return
        os.sched_yield()
        signal.sigtimedwait([], 1)
    pytest.fail(f"its ranks play on: {sizes}")
