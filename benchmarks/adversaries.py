"""Every server against every attack on MNIST: runs what is not there yet and prints the tables of RESULTS.md.

    RFFL_DATA_DIR=... python benchmarks/adversaries.py --jobs 2

The paper's own schedule (B = 16, E = 1, learning rate 0.25 with decay 0.977 per round), reduced to 12 rounds and 200
examples per participant; CFFL validates on 8 batches. A run that is cut short is run again next time; `--root` keeps
what is done.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SERVERS = ("rffl", "fedavg", "q_ffl", "cffl", "krum", "foolsgold", "sign_sgd", "median", "standalone")
ATTACKS = ("label_flip", "sign_random", "rescale", "value_invert", "free_rider")
SETTINGS = (("UNI", 2), ("UNI", 11), ("POW", 2))
SCHEDULE = """
    --federation.participants 10 --data.examples_per_participant 200 --data.adversary_examples 200 --data.batch_size 16
    --model.local_epochs 1 --model.lr_decay_every round --model.optimizer.lr 0.25 --trainer.max_epochs 12
    --trainer.limit_val_batches 8 --trainer.check_val_every_n_epoch 12 --trainer.enable_progress_bar false
    --trainer.enable_checkpointing false --standalone.enabled false --run.wandb false --run.figures false
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("runs/adversaries"))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, of one thread each")
    parser.add_argument("--servers", nargs="*", default=SERVERS, choices=SERVERS)
    parser.add_argument("--attacks", nargs="*", default=ATTACKS, choices=ATTACKS)
    given = parser.parse_args()
    attacked = itertools.product(SETTINGS, given.attacks, given.servers)
    clean = [((split, 0), "none", server) for split in ("UNI", "POW") for server in given.servers]
    runs = clean + list(attacked)
    with ThreadPoolExecutor(given.jobs) as pool:
        results = dict(zip(runs, pool.map(lambda run: result(given.root, *run), runs), strict=True))
    for (split, adversaries), attack in dict.fromkeys((setting, attack) for setting, attack, _ in runs):
        print(f"\n{split}, 10 + {adversaries}, {attack}: mean (maximum), attack success, removed in round")
        for server in given.servers:
            print(f"  {server:<11} {line(results[(split, adversaries), attack, server])}")


def result(root: Path, setting: tuple[str, int], attack: str, server: str) -> dict[str, Any]:
    """The summary of one run, which is run first if it is not there."""
    split, adversaries = setting
    folder = root / f"{split}-{adversaries}-{attack}-{server}"
    done = sorted(folder.glob("*/*/summary.json"))
    if not done:
        files = ["configs/mnist.yaml", f"configs/servers/{server}.yaml"]
        files += [f"configs/adversaries/{attack}.yaml"] if adversaries else []
        command = [sys.executable, "-m", "rffl_pl", "fit", *(x for file in files for x in ("--config", file))]
        command += ["--federation.adversaries", str(adversaries), "--data.split", split, *SCHEDULE.split()]
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log.txt").open("w") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            subprocess.run([*command, "--run.root", str(folder)], env=environment, stdout=log, stderr=log, check=True)
        done = sorted(folder.glob("*/*/summary.json"))
    return json.loads(done[-1].read_text())


def line(summary: dict[str, Any]) -> str:
    """A run in one line."""
    success = summary.get("attack_success")
    removed = {i: number for i, number in enumerate(summary["removed_in_round"]) if number}
    return (
        f"{summary['mean']:6.1%} ({summary['maximum']:.1%})"
        + ("" if success is None else f"  success {success:.1%}, target {summary['target_accuracy']:.1%}")
        + (f"  removed {removed}" if removed else "")
    )


if __name__ == "__main__":
    main()
