"""The process: what it imports, readers that leave, W&B absent, and seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.folders import DIGITS, Run, rows
from tests.conftest import QUICK, ROOT, only_run
from tests.runs import kept_in

BLOCKED = """\
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "wandb":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
from rffl_pl.cli import main

main()
"""


@pytest.mark.slow
def test_without_wandb_a_run_logs_to_csv(tmp_path: Path) -> None:
    """One sentence, no traceback, and every round in metrics.csv."""
    words = [*DIGITS, "--run.wandb", "true", "--trainer.max_epochs", "1", "--run.root", str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-c", BLOCKED, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=180
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("W&B cannot be imported") == 1
    assert "Traceback" not in ended.stderr
    assert "wandb sync" not in ended.stdout
    assert len(rows(only_run(tmp_path) / "metrics.csv")) == 1


@pytest.mark.slow
def test_heavy_libraries_are_imported_only_where_used() -> None:
    """A run without W&B imports it, or one on the digits scikit-learn, of which they are a file."""
    program = (
        "import sys, rffl_pl.cli.arguments\nfrom rffl_pl.datamodules.digits import shipped\nshipped()\n"
        "print([name for name in ('wandb', 'sklearn') if name in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=180
    )
    assert ended.stdout == "[]\n"


IMPORTED = """\
import gc
from rffl_pl.cli.process import importing

with importing():
    meanwhile = gc.isenabled()
    import torch
frozen = gc.get_freeze_count()
with importing():
    again = gc.isenabled()
print(meanwhile, frozen > 100_000, again, gc.isenabled(), gc.get_freeze_count() == frozen)
"""


def test_what_is_imported_is_no_garbage() -> None:
    """Python looks for some meanwhile, or ever after in what was imported; or the collector is off for good."""
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTED], cwd=ROOT, capture_output=True, text=True, check=True, timeout=180
    )
    assert ended.stdout.split() == ["False", "True", "True", "True", "True"]


SWALLOWED = """\
import os, signal, time
from rffl_pl.cli.process import importing

signal.signal(signal.SIGINT, signal.default_int_handler)  # as a terminal has it: jobs in the background ignore it
with importing():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    except BaseException:
        print("it is lost")
"""


def test_ctrl_c_while_a_library_is_imported() -> None:
    """It makes another error of KeyboardInterrupt and a traceback of that, or goes on as if nothing had been typed."""
    ended = subprocess.run(
        [sys.executable, "-c", SWALLOWED], cwd=ROOT, capture_output=True, text=True, check=False, timeout=180
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "Error: Interrupted.\n")


def unread(*words: object, both: bool = False) -> tuple[int, str]:
    """Run words whose output nobody reads, nor what goes wrong if it is both; the exit code and what went wrong."""
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "rffl_pl", *map(str, words)], cwd=ROOT, stdout=writer, text=True, check=False,
        stderr=writer if both else subprocess.PIPE, timeout=180,
    )  # fmt: skip
    os.close(writer)
    return ended.returncode, ended.stderr or ""


def test_an_answer_that_nobody_reads() -> None:
    """No complaint, neither now nor at the end of the process."""
    assert unread("paper", "list") == (0, "")


@pytest.mark.slow
def test_a_run_ends_though_nobody_reads(tmp_path: Path) -> None:
    """As of ``rffl fit | head -2``: it finishes its work, and its exit code says how that ended."""
    words = (*DIGITS[:-1], "true", "--trainer.max_epochs", 2, "--run.root", tmp_path)
    assert unread(*words, both=True) == (0, "")
    folder = only_run(tmp_path)
    assert json.loads((folder / "summary.json").read_text())["rounds"] == 2


def test_a_mistake_that_nobody_reads() -> None:
    """The exit code still says so."""
    assert unread("compare", "--nonsense", both=True) == (2, "")


def test_a_terminal_that_cannot_show_a_character() -> None:
    """It is shown a question mark."""
    program = "from rffl_pl.cli.process import outlast_readers\noutlast_readers()\nprint('3 · 4')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.stderr) == ("3 ? 4\n", "")


@pytest.mark.slow
def test_files_are_utf_8_whatever_the_locale_says() -> None:
    """On a cluster that has none set, sources and configurations with a Greek letter cannot be read."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for words in (("list", "servers"), ("study", "studies/digits.yaml", "--dry-run")):
        ended = subprocess.run(
            [sys.executable, "-m", "rffl_pl", *words], cwd=ROOT, env=environment, capture_output=True, text=True,
            check=False, timeout=180,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr


def test_the_seed_is_the_federations(rffl: Run, tmp_path: Path) -> None:
    """Shards and streams would be the same with every seed."""
    ended = rffl(*DIGITS, *QUICK, "--trainer.max_epochs", 1, "--seed_everything", 7)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    identity = kept_in(folder / "checkpoints" / "last.ckpt")["federation"]["identity"]
    assert identity["federation"]["seed"] == "7"
    assert yaml.safe_load((folder / "config.yaml").read_text())["seed_everything"] == 7
