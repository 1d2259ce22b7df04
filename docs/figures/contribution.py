"""Draw what participants are paid beside what they are worth, from the cells of two studies.

rffl study contribution --pack 64 && rffl study docs/figures/rewards.yaml
python docs/figures/contribution.py runs/studies
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from rffl_pl.studies import Study, contributions, results
from rffl_pl.studies.written import markdown

HERE = Path(__file__).parent
PACKAGED = HERE.parent.parent / "configs" / "studies" / "contribution.yaml"
HONEST, ADVERSARY = "#2f6f9f", "#c1121f"
SHOWN = {"RFFL": "RFFL, released", "guarded": "RFFL, guarded", "CGSV": "CGSV", "CFFL": "CFFL"}
Values = dict[tuple[str, ...], dict[str, float]]
"""By split and seed, and what else, a value of every participant."""


def main(root: Path) -> None:
    """The figure and the table beside it."""
    worth, paid = worths(root), payments(root)
    figure, panels = plt.subplots(1, len(SHOWN), figsize=(11, 3.3), sharey=True, layout="constrained")
    for axes, (server, title) in zip(panels, SHOWN.items(), strict=True):
        draw(axes, worth, paid, server)
        axes.set_title(title)
    panels[0].set_ylabel("accuracy that it ends with")
    marks = {"honest": {"color": HONEST, "marker": "o"}, "free-rider": {"color": ADVERSARY, "marker": "x"}}
    for label, look in marks.items():
        panels[0].scatter([], [], s=36, label=label, **look)
    panels[0].legend(frameon=False, loc="lower left")
    figure.savefig(HERE / "contribution.png", dpi=160)
    (HERE / "contribution.md").write_text(table(worth, paid))


def worths(root: Path) -> Values:
    """Shapley values under FedAvg."""
    study = Study.read(PACKAGED)
    rows = results.read(study, root / study.name / "results.csv")
    values: Values = defaultdict(dict)
    for row in contributions.added(study, rows, "shapley", "accuracy_mean").rows:
        values[row["split"], row["seed"]][row["participant"]] = float(row["value"])
    return values


def payments(root: Path) -> Values:
    """What participants end with under every server."""
    study = Study.read(HERE / "rewards.yaml")
    values: Values = defaultdict(dict)
    for row in results.read(study, root / study.name / "results.csv"):
        if row["measure"] == "accuracy":
            values[row["split"], row["seed"], row["server"]][row["participant"]] = float(row["value"])
    return values


def draw(axes: Axes, worth: Values, paid: Values, server: str) -> None:
    """A dot for every participant and seed, split POW."""
    for (split, seed), values in worth.items():
        if split == "POW":
            for participant, value in values.items():
                bad = participant == max(values)
                look = {"color": ADVERSARY, "marker": "x"} if bad else {"color": HONEST, "marker": "o", "alpha": 0.7}
                axes.scatter(value, paid[split, seed, server][participant], s=36, **look)
    axes.axvline(0, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.set(xlabel="Shapley value", ylim=(0, 1))
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.spines[["top", "right"]].set_visible(False)


def table(worth: Values, paid: Values) -> str:
    """Pearson's correlation of pay and worth: a line per server, a pair of columns per split."""
    splits = list(dict.fromkeys(split for split, _ in worth))
    head = ["server", *(f"{split}, {who}" for split in splits for who in ("all six", "the honest"))]
    grid = [head]
    for server, title in SHOWN.items():
        line = [title]
        for split in splits:
            seeds = [seed for there, seed in worth if there == split]
            for whom in (6, 5):
                found = [correlation(worth[split, seed], paid[split, seed, server], whom) for seed in seeds]
                told = [value for value in found if value is not None]
                line.append(
                    f"{fmean(told):.2f} ({min(told):.2f} to {max(told):.2f})" if told == found else "all the same"
                )
        grid.append(line)
    caption = "Pearson's correlation of the accuracy a participant ends with and its Shapley value; mean of three seeds"
    return markdown(f"{caption} (lowest to highest).", grid) + "\n"


def correlation(worth: dict[str, float], paid: dict[str, float], whom: int) -> float | None:
    """Over the first participants, as many as are asked for; None where all are paid the same."""
    pairs = np.array([[worth[str(i)], paid[str(i)]] for i in range(whom)])
    return None if np.ptp(pairs[:, 1]) == 0 else float(np.corrcoef(pairs.T)[0, 1])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
