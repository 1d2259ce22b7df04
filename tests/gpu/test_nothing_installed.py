"""`make gpu` on a machine that has torch and Lightning, and where nothing can be installed beside them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
ABSENT = (
    "wandb,jsonargparse,wandb_workspaces,byzfl,datasets,vl_convert,matplotlib,tokenizers,tensorboard,hypothesis,pfl"
)
PROGRAM = """
import sys
from pathlib import Path
import benchmarks.engines, benchmarks.gpu, benchmarks.packed
import tests.gpu.test_gpu, tests.gpu.test_runs, tests.gpu.test_servers
from tests.gpu.program import play

assert play("cpu", "RFFL", Path(sys.argv[1]) / "run", 1, "stacked").joinpath("summary.json").is_file()
sys.argv[1:] = "--examples 4 --rounds 1 --budget 1 --precisions float32 --engines peers".split()
benchmarks.gpu.main()
"""


def test_what_a_card_runs_needs_nothing_else(tmp_path: Path) -> None:
    """Tests and benchmarks are imported, a run is played and a table is printed, without what is not there."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", "tests.absent", ABSENT, str(program), str(tmp_path)],
        cwd=ROOT, env=environment, timeout=240, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "| in the manner of the authors' script | float32 |" in done.stdout
    assert "| pfl-research, FedAvg | float32 | not installed: No module named 'pfl' |" in done.stdout
    assert done.stdout.count("| not measured |") == 6
