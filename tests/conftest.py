"""What several rooms' tests need: the command line in this process, and ranks of their own."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # these are tests of the CPU; `make gpu` has its own

from rffl_pl.cli import main
from rffl_pl.launch.stopping import STOP

ROOT = Path(__file__).parent.parent
QUICK = (
    "--run.wandb", "false", "--run.figures", "false", "--standalone.enabled", "false", "--trainer.enable_progress_bar",
    "false",
)  # fmt: skip
TORCHTEXTS = int(torch.__version__.split(".")[1]) < 4 and torch.__version__.startswith("2.")
"""Whether this is torch 2.3, for who needs torchtext: on a CPU it knows no fused steps and no autocast of its own."""
RANK = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
NOWHERE = "http://127.0.0.1:9"
"""Refuses at once, so that a download fails as it does without a network."""
PROXIES = {"http_proxy": NOWHERE, "https_proxy": NOWHERE, "no_proxy": "127.0.0.1,localhost"}


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests may take longest come first: begun last, one keeps a worker while the others have no work."""
    longest: dict[Path, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        seconds = float(marker.args[0] if marker else item.config.getini("timeout"))
        longest[item.path] = max(longest.get(item.path, 0), seconds)
    items.sort(key=lambda item: -longest[item.path])


@pytest.fixture(autouse=True, scope="session")
def _nobodys_environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whoever runs the tests is not logged in to W&B, is in no job of a cluster, and reaches no other machine."""
    for name in list(os.environ):
        if name.startswith(("WANDB_", "SLURM_", "TORCHELASTIC_", "MASTER_")) or name in RANK:
            del os.environ[name]
    os.environ["NETRC"] = str(tmp_path_factory.getbasetemp() / "no netrc")
    for name, value in PROXIES.items():
        os.environ[name] = os.environ[name.upper()] = value


_TESTS = itertools.count()


@pytest.fixture(autouse=True)
def _undisturbed_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of a test's run leaks: it has caches of its own, and what is set or found for it is taken back.

    Their folder is made by whoever caches: to make and remove one takes as long as many a test.
    """
    before, paths = dict(os.environ), list(sys.path)
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.getbasetemp() / f"cache {next(_TESTS)}")
    yield
    STOP.ignore()  # of a program whose training has failed: it lasts as long as the process
    sys.path[:] = paths  # the command line adds the working directory, where no other test is to find anything
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def rffl(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    """Runs ``python -m rffl_pl`` with the given arguments, in this process, with results below ``tmp_path/runs``."""
    monkeypatch.chdir(ROOT)

    def run(*args: object) -> Ended:
        rootless = ("list", "compare", "dashboard", "paper", "study")
        given = any(str(word).startswith("--run.root") for word in args)
        root = ("--run.root", str(tmp_path / "runs")) if len(args) > 1 and args[0] not in rootless and not given else ()
        monkeypatch.setattr(sys, "argv", ["rffl_pl", *map(str, args), *root])
        code = 0
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            # pytest records warnings; a user sees them.
            warnings.showwarning = lambda message, *_, **__: print(f"Warning: {message}", file=sys.stderr)
            try:
                main()
            except SystemExit as stop:
                code = int(stop.code or 0)
        return Ended(code, *capfd.readouterr())

    return run


def torchrun(ranks: int, *args: object, root: Path, timeout: float = 180, module: str = "rffl_pl") -> Ended:
    """Runs ``torchrun --nproc_per_node=<ranks> -m <module>`` with one thread per rank and results below ``root``."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc_per_node={ranks}",
        "-m",
        module,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.run(
        [*command, *map(str, args), "--run.root", str(root)],
        cwd=ROOT, env=environment, timeout=timeout, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Ended(process.returncode, process.stdout, process.stderr)


def only_run(root: Path, name: str = "*") -> Path:
    """The folder of the one run of that name below ``root``."""
    folders = [path.parent for path in root.glob(f"{name}/*/config.yaml")]
    assert len(folders) == 1, folders
    return folders[0]
