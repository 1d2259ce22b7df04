"""Where the seconds of a round go: RFFL on MNIST with ten participants, E = 3, every model measured on 6,000 images.

    RFFL_DATA_DIR=data OMP_NUM_THREADS=1 python -m benchmarks.round [--ranks 1 2] [word ...]

Words are options of `rffl fit`, say ``--trainer.precision bf16-mixed``. Ranks wait for each other after training, so
that what follows is the exchange and the server alone. Seconds of rank 0, medians of the rounds but the first. The
machine has to be idle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch.distributed as dist
from lightning.pytorch import Callback

from benchmarks.job import RANKS, measured
from rffl_pl.round import play as rounds
from rffl_pl.servers import Server

ROUND = [
    "fit", "--config", "mnist.yaml", "--federation.participants", "10", "--trainer.max_epochs", "5",
    "--standalone.enabled", "false", "--run.wandb", "false", "--run.figures", "false",
    "--trainer.callbacks+=benchmarks.round.Steps", "--trainer.limit_test_batches", "1",
]  # fmt: skip
STEPS = {"_train": "train", "_forge": "forge", "_upload": "upload", "_integrate": "download"}
SERVED = ("forge", "upload", "judge", "download")


class Steps(Callback):
    """Seconds of every step of every round, in ``seconds.json`` of a folder."""

    def __init__(self, folder: str) -> None:
        self.folder, self.seconds = Path(folder), defaultdict[str, list[float]](list)
        self._start = 0.0
        for name, step in STEPS.items():
            setattr(rounds, name, self._timed(step, getattr(rounds, name)))
        setattr(Server, "step", self._timed("judge", Server.step))  # noqa: B010  # mypy takes no method

    def _timed(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*given: Any) -> Any:
            start = time.perf_counter()
            result = function(*given)
            if step == "train" and dist.get_world_size() > 1:
                dist.barrier()
            self.seconds[step].append(time.perf_counter() - start)
            return result

        return timed

    def on_validation_start(self, *_: Any) -> None:
        self._start = time.perf_counter()

    def on_validation_end(self, *_: Any) -> None:
        self.seconds["evaluation"].append(time.perf_counter() - self._start)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            (self.folder / "seconds.json").write_text(json.dumps(self.seconds))


def steps(ranks: int, words: list[str]) -> dict[str, float]:
    """Seconds of each step of a round."""
    with TemporaryDirectory() as folder:
        where = ["--trainer.callbacks.folder", folder, "--ranks", f"{ranks}"]
        measured(RANKS, [*ROUND, *where, *words])
        found = json.loads((Path(folder) / "seconds.json").read_text())
    return {step: statistics.median(seconds[1:]) for step, seconds in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    given, words = parser.parse_known_args()
    for ranks in given.ranks:
        found = steps(ranks, words)
        whole, served = sum(found.values()), sum(found[step] for step in SERVED)
        told = "  ".join(f"{step} {1000 * seconds:.0f}" for step, seconds in found.items())
        print(f"{ranks} ranks: {told} ms; {whole:.2f} s, of which exchange and server {served / whole:.1%}", flush=True)


if __name__ == "__main__":
    main()
