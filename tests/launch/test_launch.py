"""What a process knows of its launch: signals that came, who launched it, and who it is among the ranks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tqdm import tqdm

from rffl_pl import launch, strategy
from rffl_pl.errors import UserError
from rffl_pl.launch.fork import take_ranks
from rffl_pl.launch.stopping import STOP, Stopped
from rffl_pl.launch.watch import orphaned, stopped_late
from rffl_pl.strategy import LaunchEnvironment
from tests.conftest import ROOT


@pytest.fixture
def listening() -> Iterator[None]:
    """SIGTERM is kept in mind."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    STOP.listen()
    STOP.deferred = True
    yield
    STOP.ignore()
    signal.signal(signal.SIGTERM, before)


def test_a_handler_that_was_put_back() -> None:
    """Lightning puts back what it found after a run that failed: it passed the signal on to itself, for ever."""
    before = signal.getsignal(signal.SIGTERM)
    STOP.listen()
    own = signal.getsignal(signal.SIGTERM)
    STOP.ignore()
    signal.signal(signal.SIGTERM, own)
    STOP.listen()
    with pytest.raises(Stopped):
        signal.raise_signal(signal.SIGTERM)
    STOP.ignore()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("deferred", [True, False], ids=["in a round", "after the rounds"])
def test_a_signal_that_the_main_thread_does_not_come_to_hear(deferred: bool) -> None:
    """It waits in a library for another rank, for ever: the grace is over and it is not ended."""
    STOP.deferred = deferred
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # stands for a handler that is never called
    assert stopped_late(0)() is None
    signal.raise_signal(signal.SIGTERM)
    assert STOP.heard is None
    assert stopped_late(1000)() is None
    ending = stopped_late(0)()
    assert ending is not None
    assert ending.code == 143


@pytest.mark.usefixtures("listening")
def test_what_a_child_is_told_is_not_for_its_parent() -> None:
    """A forked child inherits the way by which signals are noticed, and ends what it works for."""
    child = os.fork()
    if child == 0:
        signal.raise_signal(signal.SIGTERM)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert STOP.came() is None
    signal.raise_signal(signal.SIGTERM)
    assert STOP.came() is not None


@pytest.mark.usefixtures("listening")
def test_the_next_run_begins_anew() -> None:
    """What one run was asked ends the next one of the same process."""
    signal.raise_signal(signal.SIGTERM)
    assert STOP.came() is not None
    STOP.ignore()
    signal.raise_signal(signal.SIGTERM)
    STOP.listen()
    assert STOP.came() is None


def test_an_event_loop_keeps_its_signals() -> None:
    """Whoever looked for them before finds them no more, while a run listens or after it."""

    async def loop() -> bool:
        came = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, came.set)
        STOP.listen()
        signal.raise_signal(signal.SIGUSR1)
        await asyncio.wait_for(came.wait(), 20)
        STOP.ignore()
        came.clear()
        signal.raise_signal(signal.SIGUSR1)
        return await asyncio.wait_for(came.wait(), 20)

    assert asyncio.run(loop())


def test_who_loses_its_launcher_before_it_looks(tmp_path: Path) -> None:
    """It takes whoever adopts it for its launcher, and lives on for ever."""
    said = tmp_path / "said"
    middle = os.fork()
    if middle == 0:
        launching = os.getpid()
        if os.fork() == 0:
            while os.getppid() == launching:
                os.sched_yield()
            (tmp_path / "saying").write_text(str(orphaned()()))
            (tmp_path / "saying").rename(said)
        os._exit(0)
    os.waitpid(middle, 0)
    while not said.exists():
        os.sched_yield()
    assert "launcher of this run is gone" in said.read_text()
    assert orphaned()() is None


def test_what_ends_a_process_ends_it_though_it_cannot_say_so() -> None:
    """Standard error and output lie on a full disk, and the watch dies of that instead."""
    program = """
import sys, time
from pathlib import Path
from rffl_pl.launch.watch import Ending, Watch
sys.stdout, sys.stderr = Path("/dev/full").open("w"), Path("/dev/full").open("w")
print("something")
Watch([lambda: Ending("It is over.", 7)]).start()
time.sleep(60)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, timeout=120)
    assert ended.returncode == 7


def test_a_watch_that_fails_ends_the_process() -> None:
    """It dies of what another rank left in the store, and nobody watches any more."""
    program = """
import time
from rffl_pl.launch.watch import Watch
Watch([lambda: b"\\xff".decode()]).start()
time.sleep(60)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 1
    assert "Error: The watch over this run failed (UnicodeDecodeError" in ended.stderr


def test_a_sentence_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Behind a progress bar nobody who looks for lines that begin with it finds it."""
    with tqdm(total=5, file=sys.stderr):
        launch.tell("It is over.")
    assert "\nError: It is over.\n" in capsys.readouterr().err
    launch.tell("It is over now.")
    assert capsys.readouterr().err == "Error: It is over now.\n"


ONE_NODE = {"TORCHELASTIC_ERROR_FILE": "torchelastic_a/none_b/attempt_1/0/error.json"}
TWO_NODES = ONE_NODE | {"WORLD_SIZE": "2", "MASTER_ADDR": "first", "MASTER_PORT": "29500"}
SECOND = TWO_NODES | {"RANK": "1"}
AGENT = {"TORCHELASTIC_USE_AGENT_STORE": "True"}


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"TORCHELASTIC_RUN_ID": "mine"} | ONE_NODE, "mine"),
        ({"TORCHELASTIC_RUN_ID": "none"} | ONE_NODE, "none_b"),
        ({"TORCHELASTIC_RUN_ID": "none"} | TWO_NODES | AGENT, "first:29500"),
        ({"TORCHELASTIC_RUN_ID": "none"} | TWO_NODES, "none"),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "7"} | ONE_NODE, "7"),
        ({}, None),
    ],
)
def test_the_name_of_a_launch(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], name: str | None) -> None:
    """Launches that torchrun was given no name for have one, and a restart goes on in another one's folder."""
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert launch.identity() == name


def test_a_seed_that_all_ranks_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of one node have the same before they meet, another launch has another; those of several have none."""
    for variable, value in ONE_NODE.items():
        monkeypatch.setenv(variable, value)
    assert launch.random_seed() != launch.random_seed()  # alone, though torchrun's
    for variable in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(variable, "2")
    drawn = launch.random_seed()
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", "torchelastic_a/none_b/attempt_2/1/error.json")
    assert launch.random_seed() == drawn
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", "torchelastic_a/none_c/attempt_1/0/error.json")
    assert launch.random_seed() != drawn
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    with pytest.raises(
        UserError, match="Expected --seed_everything to be a number for ranks that neither torchrun nor --ranks"
    ):
        launch.random_seed()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "1"}, r"Expected RANK below WORLD_SIZE, which is not set, but got 1; unset RANK"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, r"Expected RANK below WORLD_SIZE, which is 2, but got 2"),
        ({"LOCAL_RANK": "1"}, r"Expected LOCAL_RANK below LOCAL_WORLD_SIZE, which is not set, but got 1"),
        ({"WORLD_SIZE": ""}, r"Expected WORLD_SIZE to be a whole number, .* but got ''; unset"),
        ({"RANK": "x"}, r"Expected RANK to be a whole number, .* but got 'x'"),
        ({"WORLD_SIZE": "2"}, r"Expected RANK from the launcher of 2 ranks, but it is not set; unset WORLD_SIZE"),
        ({"WORLD_SIZE": "2", "RANK": "1"}, r"Expected MASTER_ADDR from the launcher of 2 ranks"),
        (SECOND | {"MASTER_ADDR": ""}, r"Expected MASTER_ADDR from the launcher of 2 ranks, but it is empty; unset"),
        (SECOND | {"MASTER_PORT": "0"}, r"Expected MASTER_PORT to be .* at least 1 and at most 65535, but got 0"),
        (SECOND | {"MASTER_PORT": "abc"}, r"Expected MASTER_PORT to be a whole number, .* but got 'abc'"),
        (SECOND | {"MASTER_PORT": "99999"}, r"Expected MASTER_PORT to be .* at most 65535, but got 99999"),
    ],
)
def test_what_another_launcher_left(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    """It is believed, or not named."""
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(UserError, match=f"^{expected}"):
        launch.check()


@pytest.mark.parametrize("variable", ["SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"])
def test_a_count_of_restarts_that_is_none(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """It is named."""
    monkeypatch.setenv(variable, "abc")
    with pytest.raises(UserError, match=f"^Expected {variable} to be a whole number, .* but got 'abc'; unset"):
        launch.restarted()


@pytest.mark.parametrize(("threads", "taken"), [("", True), ("2,1", True), ("0", False), ("many", False)])
def test_threads_of_forked_ranks(monkeypatch: pytest.MonkeyPatch, threads: str, taken: bool) -> None:
    """A number of them, or several as OpenMP has it; an empty one is none."""
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert take_ranks(["fit"]) == (1, ["fit"])
    with (
        contextlib.nullcontext() if taken else pytest.raises(UserError, match=f"threads .*, but got {threads}; give 1")
    ):
        assert take_ranks(["fit", "--ranks", "2"]) == (2, ["fit"])


@pytest.mark.parametrize("variable", ["NODE_RANK", "GROUP_RANK", "SLURM_PROCID"])
def test_lightning_hears_of_one_launch(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """It counts ranks by variables that nobody else reads."""
    monkeypatch.setenv(variable, "1")
    launch.check()
    heard = LaunchEnvironment()
    assert (heard.node_rank(), heard.global_rank(), heard.local_rank(), heard.world_size()) == (0, 0, 0, 1)
    for name, value in {"RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert (heard.node_rank(), heard.global_rank(), heard.local_rank(), heard.world_size()) == (2, 5, 1, 6)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"SLURM_JOB_ID": "7"}, False), ({"TORCHELASTIC_RUN_ID": "none"}, True), ({"WORLD_SIZE": "2"}, True), ({}, False)],
)
def test_who_has_a_launcher(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: bool) -> None:
    """A run in the background of a job's shell ends with the shell, or one of torchrun's outlives it."""
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert launch.launched() == expected


@pytest.mark.parametrize(
    ("environment", "seen_to"),
    [
        ({"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2"}, True),
        ({"SLURM_STEP_NUM_TASKS": "2", "WORLD_SIZE": "2"}, True),
        ({"WORLD_SIZE": "2"}, False),
        ({"SLURM_STEP_NUM_TASKS": "1", "WORLD_SIZE": "2"}, False),  # a job's shell
        ({"SLURM_STEP_NUM_TASKS": "2"}, False),
    ],
)
def test_whose_end_is_a_ranks_own(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], seen_to: bool) -> None:
    """Ranks that somebody has set up by hand, and left in the background, outlive the shell."""
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert len(strategy._company()) == seen_to


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"SLURM_STEP_NUM_TASKS": "4"}, "srun has started 4 processes"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "mpirun has started 2 processes"),
        ({"SLURM_STEP_NUM_TASKS": "1"}, ""),
        ({"SLURM_STEP_NUM_TASKS": "4", "WORLD_SIZE": "4"}, ""),
        ({"SLURM_STEP_NUM_TASKS": "2", "TORCHELASTIC_RUN_ID": "7"}, ""),  # a torchrun on each of two machines
    ],
)
def test_processes_that_know_nothing_of_one_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], environment: dict[str, str], said: str
) -> None:
    """Each would train a whole federation without a word."""
    for name in ("WORLD_SIZE", "TORCHELASTIC_RUN_ID", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    launch.tell_of_tasks()
    told = capsys.readouterr().err
    assert said in told if said else not told
