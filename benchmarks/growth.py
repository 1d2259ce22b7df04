"""How seconds and memory of a job grow with participants, ranks and the size of the network; RFFL, without reference.

    RFFL_DATA_DIR=data OMP_NUM_THREADS=1 python -m benchmarks.growth [participants asked ranks size] [--plot growth.png]
    RFFL_DATA_DIR=data OMP_NUM_THREADS=1 python -m benchmarks.growth resnet guarded removed

- ``participants``: 10, 100 and 1,000 that share 54,000 images of MNIST, one epoch, three rounds, two ranks.
- ``asked``: 100 of 100, of 1,000 and of 10,000 with five images each and a network of one small hidden layer.
- ``ranks``: 20 participants on 1, 2 and 4 ranks.
- ``size``: ten participants on the digits with D from 1e5 to 1.1e7, one rank, one epoch.
- ``resnet``: ten participants with 20 images of CIFAR-10 and torchvision's ResNet-18 with GroupNorm, one rank, two
  rounds.
- ``guarded``: 10, 100 and 1,000 that share 5,000 images, the small network, six rounds of preset `guarded`, one rank.
- ``removed``: ten rounds of the same with 100 honest participants of 50 images alone, and beside 900 free-riders whom
  reputations of a short memory remove in the first rounds.

Seconds are those of a round and of an evaluation on rank 0, medians of the later half of a job's rounds, and those of
the whole command; ``CPU`` is a round's processor time, which other work disturbs less; memory is that of
`benchmarks.job`. The machine has to be idle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lightning.pytorch import Callback
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

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

CIFAR = [
    "fit", "--config", "cifar10.yaml", "--model.local_epochs", "1", "--trainer.max_epochs", "2", "--data.split", "UNI",
    "--federation.participants", "10", "--data.examples_per_participant", "20", "--data.measurements", "1000",
    "--standalone.enabled", "false", "--run.wandb", "false", "--run.figures", "false", "--ranks", "1",
]  # fmt: skip
SMALL = [
    "--model.network", "rffl_pl.models.Perceptron", "--model.network.inputs", "1024", "--model.network.hidden", "8",
    "--data.measurements", "10000",
]  # fmt: skip


def people(count: int, examples: int, ranks: int, *words: str) -> list[str]:
    """MNIST with so many participants of so many images."""
    shared = ["--federation.participants", f"{count}", "--data.examples_per_participant", f"{examples}"]
    return [*MNIST, *shared, "--data.split", "UNI", "--ranks", f"{ranks}", *words]


GUARDED = [*SMALL, "--server.preset", "guarded", "--trainer.max_epochs"]
HASTY = [*GUARDED, "10", "--server.removal_confidence", "off", "--server.alpha", "0.2"]
RIDERS = ["--federation.adversaries", "900", "--adversaries", "[FreeRider]"]

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
    "resnet": {11_181_642: [*CIFAR, "--model.network", "benchmarks.growth.ResNet18"]},
    "guarded": {count: people(count, 5_000 // count, 1, *GUARDED, "6") for count in (10, 100, 1_000)},
    "removed": {
        100: people(100, 50, 1, *HASTY),
        1_000: people(100, 50, 1, *HASTY, *RIDERS),
    },
}
TITLES = {
    "participants": "participants that share 54,000 images",
    "asked": "participants of whom 100 are asked",
    "ranks": "ranks on two cores",
    "size": "entries D of the network",
    "resnet": "entries D of ResNet-18",
    "guarded": "participants that share 5,000 images, guarded",
    "removed": "participants of whom 100 are left, guarded",
}


class ResNet18(ResNet):  # type: ignore[misc]  # torchvision has no types
    """With GroupNorm, which has no running statistics that participants would have apart."""

    def __init__(self) -> None:
        super().__init__(BasicBlock, [2, 2, 2, 2], num_classes=10, norm_layer=partial(nn.GroupNorm, 32))


class Clock(Callback):
    """Seconds of every round and of every evaluation, in ``seconds.json`` of a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.found: dict[str, list[float]] = {"round": [], "CPU": [], "evaluation": []}
        self._start = self._worked = 0.0

    def on_train_epoch_start(self, *_: Any) -> None:
        self._start, self._worked = time.perf_counter(), time.process_time()

    def on_validation_start(self, *_: Any) -> None:
        self.found["round"].append(time.perf_counter() - self._start)
        self.found["CPU"].append(time.process_time() - self._worked)
        self._start = time.perf_counter()

    def on_validation_end(self, *_: Any) -> None:
        self.found["evaluation"].append(time.perf_counter() - self._start)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            (self.folder / "seconds.json").write_text(json.dumps(self.found))


def grown(words: list[str]) -> dict[str, float]:
    """Seconds of a round, of an evaluation and of the job, and its peak in MiB."""
    with TemporaryDirectory() as folder:
        clock = ["--trainer.callbacks+=benchmarks.growth.Clock", "--trainer.callbacks.folder", folder]
        job, peak = measured(RANKS, [*words, *clock])
        seconds = json.loads((Path(folder) / "seconds.json").read_text())
    return {name: statistics.median(values[len(values) // 2 :]) for name, values in seconds.items()} | {
        "job": job,
        "MiB": peak,
    }


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
    parser.add_argument("sweeps", nargs="*", choices=[*SWEEPS, []], default=["participants", "asked", "ranks", "size"])
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
