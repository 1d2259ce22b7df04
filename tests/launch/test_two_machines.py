"""Two machines whose network fails for a while: two network namespaces of this one, with a cable between them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rffl_pl import launch
from tests.cli.folders import DIGITS, assert_same_bits, rows
from tests.conftest import ROOT, Ended
from tests.slurm import wait_until

RESTARTED = (
    "--max-restarts=3", "--rdzv-backend=c10d", "--rdzv-id=7", "--rdzv-endpoint=10.99.0.1:29500",
    "--rdzv-conf=is_host={host}", "--local-addr=10.99.0.{number}",
)  # fmt: skip
"""How ranks meet that are started again."""
ONCE = ("--node-rank={node}", "--master-addr=10.99.0.1", "--master-port=29500")


class Machines:
    """Two namespaces, ``10.99.0.1`` and ``10.99.0.2``, which reach each other through one cable and nobody else."""

    def __init__(self) -> None:
        self.names = [f"rffl{os.getpid()}-{number}" for number in (1, 2)]

    def cable(self, state: str) -> None:
        """``up`` or ``down``."""
        _ip("-n", self.names[0], "link", "set", "cable1", state)

    def connect(self) -> None:
        """Have a cable between them."""
        ends = [("cable1", "netns", self.names[0]), ("cable2", "netns", self.names[1])]
        _ip("link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1])
        for number, name in enumerate(self.names, start=1):
            _ip("-n", name, "addr", "add", f"10.99.0.{number}/24", "dev", f"cable{number}")
            for link in ("lo", f"cable{number}"):
                _ip("-n", name, "link", "set", link, "up")

    def kill_rank(self, number: int) -> None:
        """Have the kernel end the rank on a machine, not its torchrun."""
        for process in _ip("netns", "pids", self.names[number - 1]).split():
            if b"\0-u\0-m\0rffl_pl\0" in Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(int(process), signal.SIGKILL)

    @contextlib.contextmanager
    def torchrun(
        self, number: int, said: Path, *args: object, network: str = "cable{}", meeting: Sequence[str] = RESTARTED
    ) -> Iterator[subprocess.Popen[bytes]]:
        """One rank of two on a machine, which is ended whatever happens."""
        how = [word.format(number=number, node=number - 1, host=number == 1) for word in meeting]
        command = [
            "ip", "netns", "exec", self.names[number - 1], sys.executable, "-m", "torch.distributed.run",
            "--nnodes=2", "--nproc_per_node=1", *how, "-m", "rffl_pl", *map(str, args),
        ]  # fmt: skip
        others = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
        own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        own |= {"GLOO_SOCKET_IFNAME": network.format(number)} if network else {}
        with said.open("a") as file:
            process = subprocess.Popen(command, cwd=ROOT, env={**others, **own}, stdout=file, stderr=file)
            try:
                yield process
            finally:
                process.terminate()  # torchrun ends its ranks, which would end themselves without it
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()


@pytest.fixture
def machines() -> Iterator[Machines]:
    """Two of them; they are gone afterwards."""
    found = Machines()
    try:
        try:
            for name in found.names:
                _ip("netns", "add", name)
            found.connect()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', error)}")
        yield found
    finally:
        for name in found.names:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _ip("netns", "del", name)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30, check=True).stdout


class Disturbed:
    """A run of sixty rounds on both machines, to be disturbed while it lasts; one of them is named ``whole``.

    Args:
        machines: The two.
        root: Where what they say and the run's folder lie.
        options: More words of the command line.
    """

    rounds = 60

    def __init__(self, machines: Machines, root: Path, *options: str) -> None:
        self.machines, self.root, self.options = machines, root, options
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self._ended_after_all = contextlib.ExitStack()
        self.said = [root / "machine1.txt", root / "machine2.txt"]

    def played(self) -> int:
        """How many rounds have been logged."""
        return max((len(rows(file)) for file in self.root.glob("run/*/metrics.csv")), default=0)

    def words(self) -> str:
        """The end of what both machines said."""
        return "".join(file.read_text()[-3000:] for file in self.said)

    def start(self, number: int) -> None:
        """Start torchrun on a machine, for the first time or again."""
        options = ("--trainer.max_epochs", self.rounds, "--run.root", self.root, "--run.name", "run", *self.options)
        self.running[number] = self._ended_after_all.enter_context(
            self.machines.torchrun(number, self.said[number - 1], *DIGITS, *options, "--run.patience", 8)
        )

    def disturb(self, how: Callable[[], None]) -> None:
        """Disturb it after five rounds; it has to end well."""
        with self._ended_after_all:
            self.start(1)
            self.start(2)
            wait_until(lambda: self.played() >= 5, 120, self.words)
            how()
            assert self.played() < self.rounds // 2
            for process in self.running.values():
                assert process.wait(timeout=240) == 0, self.words()

    def went_on_as(self, whole: Path) -> None:
        """In one folder, with every round once and the same bits at the end."""
        (run,) = (self.root / "run").iterdir()
        assert [int(row["round"]) for row in rows(run / "metrics.csv")] == list(range(1, self.rounds + 1))
        assert_same_bits(whole, run)


@pytest.fixture
def whole(rffl: Callable[..., Ended], tmp_path: Path) -> Path:
    """The same run, undisturbed in one process."""
    assert rffl(*DIGITS, "--trainer.max_epochs", Disturbed.rounds, "--run.name", "whole").code == 0
    (folder,) = (tmp_path / "runs" / "whole").iterdir()
    return folder


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(600)
def test_a_cable_that_is_pulled_out(machines: Machines, whole: Path, tmp_path: Path) -> None:
    """Ranks end with a word, start again when it is back, and end in the same folder with an undisturbed run's bits."""
    run = Disturbed(machines, tmp_path)

    def pull() -> None:
        machines.cable("down")
        time.sleep(15)
        machines.cable("up")

    run.disturb(pull)
    assert "has not been heard of for 8 s" in run.words()
    run.went_on_as(whole)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(600)
def test_a_rank_that_is_killed_on_the_other_machine(machines: Machines, whole: Path, tmp_path: Path) -> None:
    """Its machine's torchrun counts that as a restart, rank 0's does not: the run goes on in its folder anyway."""
    run = Disturbed(machines, tmp_path)
    run.disturb(lambda: machines.kill_rank(2))
    run.went_on_as(whole)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(600)
def test_a_machine_that_is_lost(machines: Machines, whole: Path, tmp_path: Path) -> None:
    """The other one's rank ends with a word; with the same command on both, ``last`` goes on in the same folder."""
    run = Disturbed(machines, tmp_path, "--ckpt_path", "last")

    def lose() -> None:
        run.running[2].kill()
        wait_until(lambda: "Lost the connection" in run.words() or "not been heard" in run.words(), 60, run.words)
        run.running[1].terminate()
        run.running[1].wait(timeout=60)
        for number in (1, 2):
            run.start(number)

    run.disturb(lose)
    run.went_on_as(whole)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(240)
def test_a_cable_that_stays_out(machines: Machines, tmp_path: Path) -> None:
    """Either machine ends with a word, also the one that nothing reaches any more, not even that it is alone."""
    said = [tmp_path / f"machine{number}.txt" for number in (1, 2)]
    words = (*DIGITS, "--trainer.max_epochs", 5_000, "--run.root", tmp_path / "runs", "--run.patience", 8)
    with contextlib.ExitStack() as ended:
        running = [
            ended.enter_context(machines.torchrun(number, said[number - 1], *words, meeting=ONCE)) for number in (1, 2)
        ]
        wait_until(lambda: any(rows(file) for file in tmp_path.glob("runs/*/*/metrics.csv")), 60, lambda: "")
        machines.cable("down")
        assert [process.wait(timeout=60) for process in running] == [1, 1]
    for file in said:
        assert "has not been heard of for 8 s" in file.read_text()


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("networks", "expected"),
    [
        (
            ("lo", "lo"),
            r"Expected rank \d to reach the other ranks, but nobody answers at 127\.0\.0\.1, port \d+; gi",
        ),
        (("cable1", "eth7"), r"Expected GLOO_SOCKET_IFNAME to name a network of this machine, but got eth7, which is"),
    ],
)
def test_a_network_by_which_nobody_is_reached(
    machines: Machines, tmp_path: Path, networks: Sequence[str], expected: str
) -> None:
    """The rank that sees it says so, and the other does not wait for half a day."""
    said = [tmp_path / f"machine{number}.txt" for number in (1, 2)]
    with contextlib.ExitStack() as ended:
        for number, network in enumerate(networks, start=1):
            words = (*DIGITS, "--trainer.max_epochs", 1, "--run.root", tmp_path / "runs")
            one = machines.torchrun(number, said[number - 1], *words, network=network, meeting=ONCE)
            ended.callback(ended.enter_context(one).wait, timeout=90)
    for file in said:
        lines = [line for line in file.read_text().splitlines() if line.startswith("Error: ")]
        assert len(lines) == 1, lines
        assert re.search(expected, lines[0]), lines
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(120)
def test_machines_whose_names_lead_to_themselves(machines: Machines, tmp_path: Path) -> None:
    """As on Debian, rank 0's address too: gloo would have each listen to itself, and nobody be reached."""
    hosts = [Path("/etc/netns", name) for name in machines.names]
    said = [tmp_path / f"machine{number}.txt" for number in (1, 2)]
    with contextlib.ExitStack() as ended:
        for number, (folder, others) in enumerate(
            zip(hosts, ("10.99.0.2 two.example", "10.99.0.1 one.example"), strict=True)
        ):
            ended.callback(shutil.rmtree, folder)
            folder.mkdir(parents=True)  # ip netns exec puts it in the place of /etc/hosts
            own = f"127.0.1.1 {socket.gethostname()} {('one', 'two')[number]}.example"
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{own}\n{others}\n")
        meeting = (ONCE[0], "--master-addr=one.example", ONCE[2])
        words = (*DIGITS, "--trainer.max_epochs", 1, "--run.root", tmp_path / "runs")
        running = [
            ended.enter_context(machines.torchrun(number, said[number - 1], *words, network="", meeting=meeting))
            for number in (1, 2)
        ]
        assert [process.wait(timeout=90) for process in running] == [0, 0], "".join(file.read_text() for file in said)


def test_a_restart_that_is_not_counted_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process of the same torchrun and local rank knows that it is one; the first is none, asked twice."""
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "attempt_0" / "0" / "error.json"))
    assert [launch.restarted(), launch.restarted()] == [False, False]
    ask = "from rffl_pl import launch; print(launch.restarted())"
    said = [
        subprocess.run(
            [sys.executable, "-c", ask],
            cwd=ROOT,
            env={**os.environ, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"},
            stdout=subprocess.PIPE,
            check=True,
        )
        for rank in "01"
    ]
    assert [ended.stdout for ended in said] == [b"True\n", b"False\n"]
