"""A cluster of Slurm on this machine: munge, a controller and two nodes, all of it in one folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_min_interval=100000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
NodeName=n1 NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[1]} CPUs=2
NodeName=n2 NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[2]} CPUs=2
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=60
PartitionName=high Nodes=ALL PriorityTier=2 PreemptMode=OFF
"""
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")


def cannot_run() -> str | None:
    """Why there can be no cluster here; None if there can."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)} (Debian: munge slurmctld slurmd slurm-client)" if missing else None


class Cluster:
    """Talks to the controller.

    Attributes:
        environment: What programs need to find it.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.environment = {**environment, "SLURM_CONF": str(folder / "slurm.conf")}

    def call(self, *command: object, cwd: Path | None = None) -> str:
        """What a program of Slurm says; it must not fail."""
        ended = subprocess.run(
            list(map(str, command)), env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    def job(self, number: str) -> tuple[str, int]:
        """A job's state, and how often it was put back."""
        found = re.search(r"JobState=(\w+).* Restarts=(\d+)", self.call("scontrol", "-o", "show", "job", number))
        assert found is not None
        return found[1], int(found[2])

    def put_back(self, number: str, times: int) -> None:
        """Wait until a job has been put back so often, and have it started soon, not after two minutes.

        Nodes refuse to start a job in the second in which they ended it ("Job credential revoked"), and it has failed.
        """
        wait_until(lambda: self.job(number) == ("PENDING", times), 90, lambda: f"job is {self.job(number)}")
        time.sleep(2)
        self.call("scontrol", "update", f"JobId={number}", "StartTime=now")


def wait_until(condition: Callable[[], bool], seconds: float, why: Callable[[], str]) -> None:
    """Look five times a second whether something has come.

    Raises:
        AssertionError: If it does not come in time.
    """
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, why()
        time.sleep(0.2)


@contextlib.contextmanager
def cluster(environment: Mapping[str, str]) -> Iterator[Cluster]:
    """A cluster, which ends with all its jobs whatever happens."""
    with TemporaryDirectory(prefix="slurm-") as name, contextlib.ExitStack() as daemons:
        folder = Path(name)
        folder.chmod(0o755)  # munge's socket is for all users
        for part in ("state", "n1", "n2"):
            (folder / part).mkdir()
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        (folder / "slurm.conf").write_text(CONFIGURATION.format(host=host, ports=_free_ports(3), folder=folder))
        munge = [f"--{kind}-file={folder}/munge.{kind}" for kind in ("key", "pid", "log", "seed")]
        commands = [
            ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge],
            ["slurmctld", "-D", "-f", f"{folder}/slurm.conf"],
            *(["slurmd", "-D", "-f", f"{folder}/slurm.conf", "-N", node] for node in ("n1", "n2")),
        ]
        slurm = Cluster(folder, environment)
        daemons.callback(_end_whoever_names, str(folder))
        for command in commands:
            daemons.enter_context(_daemon(command, folder / f"{command[0]}{command[-1][-1]}.log", slurm.environment))
            if command[0] == "munged":
                wait_until((folder / "munge.socket").exists, 30, (folder / "munge.log").read_text)
        wait_until(lambda: _idle(slurm) == 2, 60, lambda: "".join(log.read_text() for log in folder.glob("*.log")))
        try:
            yield slurm
        finally:
            subprocess.run(["scancel", "--user=root"], env=slurm.environment, timeout=30, check=False)


@contextlib.contextmanager
def _daemon(command: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    with log.open("w") as file, subprocess.Popen(command, env=environment, stdout=file, stderr=file) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _idle(slurm: Cluster) -> int:
    """How many nodes wait for jobs; none while nobody answers."""
    ended = subprocess.run(
        ["sinfo", "-h", "-N", "-p", "low", "-o", "%T"],
        env=slurm.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return ended.stdout.split().count("idle")


def _end_whoever_names(folder: str) -> None:
    """Kill what is left of jobs: their processes all have the path of the cluster's configuration."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(process.name) != os.getpid() and folder.encode() in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
