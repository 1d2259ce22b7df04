"""Draw the takeover: reputations beside one free-rider under `released` and under `guarded`.

python docs/figures/takeover.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from rffl_pl.cli import main
from rffl_pl.runs import RunFolder

HERE = Path(__file__).parent
WORDS = "--config digits.yaml --data.examples_per_participant 40 --data.adversary_examples 40 --trainer.max_epochs 60"
HONEST, ADVERSARY = "#2f6f9f", "#c1121f"


def run(preset: str, root: str) -> RunFolder:
    """The demo with 40 examples each under a preset."""
    quiet = "--run.wandb false --run.figures false --trainer.enable_progress_bar false"
    main(["fit", *f"{WORDS} --server.preset {preset} --run.root {root} --run.name {preset} {quiet}".split()])
    return RunFolder(next(Path(root, preset).glob("*/summary.json")).parent)


def draw(axes: Axes, folder: RunFolder, preset: str) -> None:
    """Reputations over the rounds; a cross where somebody is removed."""
    rounds, summary = folder.rounds(), folder.summary()
    values = np.array([entry.measures["reputation"] for entry in rounds])
    for i, curve in enumerate(values.T):
        bad, gone = i >= summary.honest, summary.removed_in_round[i]
        end = gone or len(curve)
        label = {0: "five honest participants", summary.honest: "one free-rider"}.get(i)
        look: dict[str, Any] = {"color": HONEST, "linewidth": 1.2}
        if bad:
            look = {"color": ADVERSARY, "linewidth": 2.2, "linestyle": "--"}
        axes.plot(np.arange(1, end + 1), curve[:end], label=label, **look)
        if gone:
            axes.plot(gone, curve[gone - 1], "x", color=look["color"], markersize=9, markeredgewidth=2, clip_on=False)
    final = summary.final[summary.honest] or 0
    axes.set_title(f"{preset}: the free-rider ends with {final:.0%}")
    axes.set(xlabel="round", xlim=(0, 61), ylim=(0, 1.05))
    axes.spines[["top", "right"]].set_visible(False)


def both() -> None:
    """The two beside each other."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    with tempfile.TemporaryDirectory() as root:
        for axes, preset in zip(panels, ("released", "guarded"), strict=True):
            draw(axes, run(preset, root), preset)
    panels[0].set_ylabel("reputation")
    panels[0].legend(frameon=False, loc="upper left", fontsize=9)
    panels[1].annotate("x: removed", (0.98, 0.93), xycoords="axes fraction", ha="right", fontsize=9)
    figure.savefig(HERE / "takeover.png", dpi=130)


if __name__ == "__main__":
    both()
