"""How seconds and memory of a job grow with participants, ranks and the size of the network; RFFL, without reference.

    RFFL_DATA_DIR=data OMP_NUM_THREADS=1 python -m benchmarks.growth [participants asked ranks size] [--plot growth.png]

- ``participants``: 10, 100 and 1,000 that share 54,000 images of MNIST, one epoch, three rounds, two ranks.
- ``asked``: 100 of 100, of 1,000 and of 10,000 with five images each and a network of one small hidden layer.
- ``ranks``: 20 participants on 1, 2 and 4 ranks.
- ``size``: ten participants on the digits with D from 1e5 to 1.1e7, one rank, one epoch.

Seconds are those of a round and of an evaluation on rank 0, medians of a job's rounds but the first, and those of the
whole command; memory is that of `benchmarks.job`. The machine has to be idle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lightning.pytorch import Callback

from benchmarks.job import RANKS, measured

MNIST = [
    "fit", "--config", "mnist.yaml", "--model.local_epochs", "1", "--trainer.max_epochs", "3",
    "--standalone.enabled", "false", "--run.wandb", "false", "--run.figures", "false",
]  # fmt: skip
DIGITS = [
    "fit", "--config", "digits.yaml", "--model.local_epochs", "1", "--trainer.max_epochs", "4",
    "--federation.participants", "10", "--federation.adversaries", "0", "--adversaries", "[]",
    "--standalone.enabled", "false", "--run.wandb", "false", "--run.figures", "false",
]  # fmt: skip

SMALL = [
    "--model.network", "rffl_pl.models.Perceptron", "--model.network.inputs", "1024", "--model.network.hidden", "8",
    "--data.measurements", "10000",
]  # fmt: skip


def people(count: int, examples: int, ranks: int, *words: str) -> list[str]:
    """MNIST with so many participants of so many images."""
    shared = ["--federation.participants", f"{count}", "--data.examples_per_participant", f"{examples}"]
    return [*MNIST, *shared, "--data.split", "UNI", "--ranks", f"{ranks}", *words]


SWEEPS = {
    "participants": {count: people(count, 54_000 // count, 2) for count in (10, 100, 1_000)},
    "asked": {
        count: people(count, 5, 2, *SMALL, "--federation.participation", f"{100 / count}")
        for count in (100, 1_000, 10_000)
    },
    "ranks": {ranks: people(20, 600, ranks) for ranks in (1, 2, 4)},
    "size": {
        75 * hidden + 10: [*DIGITS, "--model.network.hidden", f"{hidden}", "--ranks", "1"]
        for hidden in (1_333, 13_333, 146_666)
    },
}
TITLES = {
    "participants": "participants that share 54,000 images",
    "asked": "participants of whom 100 are asked",
    "ranks": "ranks on two cores",
    "size": "entries D of the network",
}


class Clock(Callback):
    """Seconds of every round and of every evaluation, in ``seconds.json`` of a folder."""

    def __init__(self, folder: str) -> None:
        self.folder, self.rounds, self.evaluations = Path(folder), list[float](), list[float]()
        self._start = 0.0

    def on_train_epoch_start(self, *_: Any) -> None:
        self._start = time.perf_counter()

    def on_validation_start(self, *_: Any) -> None:
        self.rounds.append(time.perf_counter() - self._start)
        self._start = time.perf_counter()

    def on_validation_end(self, *_: Any) -> None:
        self.evaluations.append(time.perf_counter() - self._start)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            found = {"round": self.rounds, "evaluation": self.evaluations}
            (self.folder / "seconds.json").write_text(json.dumps(found))


def grown(words: list[str]) -> dict[str, float]:
    """Seconds of a round, of an evaluation and of the job, and its peak in MiB."""
    with TemporaryDirectory() as folder:
        clock = ["--trainer.callbacks+=benchmarks.growth.Clock", "--trainer.callbacks.folder", folder]
        job, peak = measured(RANKS, [*words, *clock])
        seconds = json.loads((Path(folder) / "seconds.json").read_text())
    return {name: statistics.median(values[1:]) for name, values in seconds.items()} | {"job": job, "MiB": peak}


def plot(found: dict[str, dict[int, dict[str, float]]], path: str) -> None:
    """Seconds above, memory below, a column per sweep."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(found), figsize=(3.2 * len(found), 5), squeeze=False, sharex="col")
    for (sweep, points), (upper, lower) in zip(found.items(), axes.T, strict=True):
        for name in ("round", "evaluation", "job"):
            upper.plot(list(points), [values[name] for values in points.values()], "o-", label=name)
        lower.plot(list(points), [values["MiB"] for values in points.values()], "o-", color="black")
        lower.set(xscale="log", ylim=(0, None), xlabel=TITLES[sweep], xticks=list(points))
        lower.set_xticks(list(points), [f"{value:,}" for value in points], minor=False)
        lower.minorticks_off()
        upper.set(yscale="log")
    axes[0, 0].set_ylabel("seconds")
    axes[1, 0].set_ylabel("MiB at the peak")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), frameon=False, loc="upper center", ncols=3)
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="*", choices=[*SWEEPS, []], default=list(SWEEPS))
    parser.add_argument("--plot")
    given = parser.parse_args()
    found: dict[str, dict[int, dict[str, float]]] = {}
    for sweep in given.sweeps:
        for value, words in SWEEPS[sweep].items():
            here = grown(words)
            found.setdefault(sweep, {})[value] = here
            print(f"{sweep} {value:>10,}: " + "  ".join(f"{name} {x:,.4g}" for name, x in here.items()), flush=True)
    if given.plot:
        plot(found, given.plot)


if __name__ == "__main__":
    main()
