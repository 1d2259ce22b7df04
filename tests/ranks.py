"""Ranks as torchrun starts them, but forked from one process that has imported everything: seconds instead of tens.

Some tests start the real torchrun, which this stands for: the variables that it sets, and the end of all ranks when one
of them fails.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.distributed import TCPStore
from torch.multiprocessing import start_processes

from tests.cli.folders import assert_same_bits
from tests.conftest import ROOT, Ended, only_run

PRELOADED = ["rffl_pl.cli.preloaded", "tests.ranks"]
"""As `rffl study` has it, and what runs there: one server of a process serves both."""


def forked(
    ranks: int,
    *args: object,
    root: Path | None = None,
    each: Sequence[Sequence[object]] | None = None,
    module: str = "rffl_pl",
    cwd: Path = ROOT,
    timeout: float = 180,
    grace: float = 10,
) -> Ended:
    """Runs ``python -m MODULE ARGS`` on so many ranks; results lie below ``root`` if it is given.

    A rank's own words are those of ``each``. The exit code is the highest of the ranks'; once one has failed the others
    have so many seconds of grace to say why.
    """
    multiprocessing.set_forkserver_preload(PRELOADED)
    context = multiprocessing.get_context("forkserver")
    common = [*args, *(() if root is None else ("--run.root", root))]
    words = [[*map(str, common), *map(str, each[rank] if each else ())] for rank in range(ranks)]
    with TemporaryDirectory() as folder:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # lives here, as under torchrun
        said = [Path(folder) / f"{rank}" for rank in range(ranks)]
        environments = [_environment(rank, ranks, store.port, folder) for rank in range(ranks)]
        processes = [
            context.Process(target=_run, args=(module, words[rank], cwd, environments[rank], str(said[rank])))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        code = _ended(processes, time.monotonic() + timeout, grace)
        out, err = ("".join(path.with_suffix(kind).read_text() for path in said) for kind in (".out", ".err"))
    return Ended(code, out, err)


def called(function: Callable[..., None], *args: object, ranks: int) -> None:
    """Runs ``function(rank, *args)`` on so many ranks, which are forked likewise; all end when one fails."""
    multiprocessing.set_forkserver_preload(PRELOADED)
    start_processes(function, args, nprocs=ranks, start_method="forkserver")


def assert_goes_on(rffl: Callable[..., Ended], run: Sequence[object], folder: Path, *more: object) -> Path:
    """A run of three rounds has the same bits whole in one process as when two ranks go on with two rounds of it.

    Args:
        rffl: Runs a command line.
        run: Its words.
        folder: Where the runs lie, below ``whole``, ``begun`` and ``on``.
        more: What the two ranks are told besides.

    Returns:
        The checkpoint that they go on from.
    """
    for name, words in (("whole", ()), ("begun", ("--trainer.max_epochs", 2))):
        ended = rffl(*run, *words, "--run.root", folder / name)
        assert ended.code == 0, ended.err
    checkpoint = only_run(folder / "begun") / "checkpoints" / "last.ckpt"
    ended = forked(2, *run, *more, "--ckpt_path", checkpoint, root=folder / "on")
    assert ended.code == 0, ended.err
    assert_same_bits(only_run(folder / "whole"), only_run(folder / "on"))
    return checkpoint


def _environment(rank: int, ranks: int, port: int, folder: str) -> dict[str, str]:
    """What torchrun sets on one node; alone, nothing."""
    own = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    if ranks == 1:
        return own
    attempt = Path(folder) / "attempt_0" / str(rank)
    attempt.mkdir(parents=True)
    return own | {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_RUN_ID": "tests",
        "TORCHELASTIC_ERROR_FILE": str(attempt / "error.json"),
    }  # fmt: skip


def _run(module: str, words: Sequence[str], cwd: Path, environment: Mapping[str, str], said: str) -> None:
    """A rank's life."""
    for number, kind in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(said + kind, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as a terminal has it: jobs in the background ignore it
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # a study that started the server has it hold Ctrl-C back
    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))  # which the server may not have found when it began
    os.chdir(cwd)
    sys.path.insert(0, str(cwd))
    sys.argv = [module, *words]
    torch.seed()  # as processes of their own have it
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _ended(processes: Sequence[multiprocessing.process.BaseProcess], until: float, grace: float) -> int:
    """The highest exit code; when one fails, the others get the time to say why, and are ended then.

    Raises:
        TimeoutError: If none fails and they do not end: a hang is no failure that a test may take for its own.
    """
    while any(process.is_alive() for process in processes) and time.monotonic() < until:
        if any(process.exitcode for process in processes):
            until = min(until, time.monotonic() + grace)
        time.sleep(0.02)
    failed = any(process.exitcode for process in processes)
    late = [process for process in processes if process.is_alive()]
    for process in late:
        process.kill()
        process.join()
    if late and not failed:
        raise TimeoutError(f"{len(late)} of {len(processes)} ranks did not end")
    return max(abs(process.exitcode or 0) for process in processes)
