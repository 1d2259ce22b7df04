"""Every command of README runs, shortened where it is long, and its example of own data works as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, TORCHTEXTS
from tests.ranks import forked

README = (ROOT / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", README, re.S) for line in block.splitlines()]
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)
REAL = "predict"
"""The command with this word runs as it is printed, under torchrun."""
SHORT = ["--trainer.max_epochs", "1", "--run.wandb", "false", "--trainer.enable_progress_bar", "false"]
TINY = ["--data.examples_per_participant", "16", "--standalone.enabled", "false"]
TINY += ["--trainer.limit_val_batches", "2", "--trainer.limit_test_batches", "2"]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: configs, the own data module, and a finished run of the demo."""
    folder = tmp_path_factory.mktemp("user")
    for name in ("configs", "results"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "my_data.py").write_text(PYTHON[0])
    (folder / "my_server.py").write_text(PYTHON[1])
    reviews = "".join(f"{'good' if i % 2 else 'bad'} film {i},{i % 2}\n" for i in range(80))
    (folder / "reviews.csv").write_text("review,stars\n" + reviews)
    patients = "".join(
        f"{i},{30 + i % 40},{i % 7 or ''},{'mf'[i % 2]},{'ABC'[i % 3]},{i % 4 // 2}\n" for i in range(80)
    )
    (folder / "patients.csv").write_text("id,age,pressure,sex,clinic,outcome\n" + patients)
    run(
        folder,
        ["python", "-m", "rffl_pl", "fit", "--config", "configs/digits.yaml", *SHORT, "--standalone.enabled", "false"],
    )
    return folder


def run(folder: Path, command: list[str]) -> str:
    """Runs a command of README as a user would, in ``folder``; all but a few on ranks that are forked, for time."""
    if REAL not in command:
        words = command[command.index("rffl_pl") + 1 :]
        ranks = int(command[1].partition("=")[2]) if command[0] == "torchrun" else 1
        forks = forked(ranks, *words, cwd=folder, timeout=240)
        assert forks.code == 0, forks.err
        return forks.out
    translated = {
        "python": [sys.executable],
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone"],
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [*translated[command[0]], *command[1:]],
        cwd=folder, env=environment, timeout=240, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_make_targets_exist() -> None:
    """README's first two commands are targets of the Makefile; the demo is the digits run tested elsewhere."""
    makefile = (ROOT / "Makefile").read_text()
    assert COMMANDS[:2] == ["make demo", "make test"]
    assert "-m rffl_pl fit --config configs/digits.yaml" in makefile
    assert "-m pytest" in makefile


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("command", [line for line in COMMANDS if not line.startswith("make")])
def test_a_command_runs(workplace: Path, command: str) -> None:
    """The command line of README, with one round, few examples and at most two ranks."""
    if (
        any(name in command for name in ("mnist", "cifar10", "mr.yaml", "sst.yaml"))
        and "RFFL_DATA_DIR" not in os.environ
    ):
        pytest.skip("needs real data: RFFL_DATA_DIR is not set")
    finished = sorted((workplace / "runs" / "digits").iterdir())[0]
    short = command.replace("runs/digits/RUN", str(finished)).replace("--nproc_per_node=4", "--nproc_per_node=2")
    words = shlex.split(short)
    if "fit" in words and "--ckpt_path" not in words:
        words += [*SHORT, *(TINY if "--config" in words else ["--standalone.enabled", "false"])]
        if TORCHTEXTS and ("mr.yaml" in command or "sst.yaml" in command):
            words += ["--model.optimizer.fused", "false"]
    elif "fit" in words:
        words += ["--trainer.max_epochs", "2", "--run.wandb", "false", "--run.figures", "false"]
    elif "study" in words and "--table" not in words:
        words += ["--rounds", "1", "--seeds", "1", "--only", "server=RFFL"]
    out = run(workplace, words)
    expected = {
        "predict": "predictions of",
        "study": "RFFL",
        "list": "label_flip_uniform",
        "figure": "_uniform-reduced.png",
    }
    expected |= {"table": "| RFFL, published | 96 (96) |"}
    assert next((text for command, text in expected.items() if command in words), "mean") in out
