"""Peak memory of a whole run in one process, in multiples of all participants' models.

    OMP_NUM_THREADS=1 python benchmarks/memory.py [--server FedAvg] [--participants 20] [--hidden 40000]

Two rounds of RFFL with SGD on the digits with a network of 75 ``hidden`` + 10 parameters, without checkpoints. What the
process holds before the run, the imports for the most part, is left out.
"""

from __future__ import annotations

import argparse
import resource
import tempfile

import lightning.pytorch.cli  # noqa: F401  # these are imported here to be among what is left out
import sklearn.datasets  # noqa: F401
import tokenizers  # noqa: F401
import torchvision.datasets  # noqa: F401

from rffl_pl.cli import main as rffl


def peak() -> int:
    """Bytes, the most that this process has held."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="RFFL")
    parser.add_argument("--participants", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=40_000)
    given = parser.parse_args()
    options = f"""
        fit --config configs/digits.yaml --federation.participants {given.participants} --federation.adversaries 0
        --adversaries [] --data.examples_per_participant {min(50, 1200 // given.participants)}
        --model.network.hidden {given.hidden}
        --trainer.max_epochs 2 --trainer.enable_checkpointing false --trainer.enable_progress_bar false
        --standalone.enabled false --run.wandb false --run.figures false --server {given.server}
    """
    before = peak()
    with tempfile.TemporaryDirectory() as folder:
        rffl([*options.split(), "--run.root", folder])
    models = 4 * given.participants * (75 * given.hidden + 10)
    print(f"{given.server}: {(peak() - before) / models:.2f} x [P, D] = {models / 2**20:.0f} MiB at the peak")


if __name__ == "__main__":
    main()
