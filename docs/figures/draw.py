"""Draw the figures of the servers' and attacks' pages from the results of `figures.yaml`, which lie in `results/`.

python docs/figures/draw.py results

A server's own figure has the rounds of a run: it is drawn where the server's cells have been run there.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from PIL import Image

from rffl_pl.runs import RunFolder
from rffl_pl.studies import Study, results

HERE = Path(__file__).parent
REWARDING = ("RFFL", "CFFL", "CGSV")
"""Servers whose reputations decide what everybody receives."""
SETTLED = ("IAFL",)
"""Servers under which that is the same in every round: their models are what there is to see."""
HONEST, ADVERSARY, QUIET = "#2f6f9f", "#c1121f", "#8a8a8a"
SUCCESS = {"attack_success": "Ones that are read as sevens", "backdoor_success": "Images with the patch read as zeros"}
"""What attacks with an aim report of the honest, and its title."""
Values = dict[tuple[str, str], list[float]]
"""Values over seeds by server and attack."""


def main(root: Path) -> None:
    """All figures and the table."""
    study = Study.read(HERE / "figures.yaml")
    rows = results.read(study, root / study.name / "results.csv.gz")
    found: dict[str, Values] = defaultdict(lambda: defaultdict(list))
    honest: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["role"] == "all":
            found[row["measure"]][row["server"], row["attack"]].append(float(row["value"]))
        elif row["role"] == "honest" and row["measure"] in SUCCESS:
            honest[row["measure"], row["server"], row["attack"], row["seed"]].append(float(row["value"]))
    for (measure, server, attack, _), values in honest.items():
        found[measure][server, attack].append(float(np.mean(values)))
    cells = {(row["server"], row["attack"]): row["cell"] for row in rows if row["seed"] == "1"}
    servers, attacks = list(study.axes["server"]), list(study.axes["attack"])
    for server in servers:
        for config in (root / "cells" / cells[server, "FreeRider"]).glob("*/config.yaml"):
            save(of_a_server(server, attacks, found["accuracy_mean"], RunFolder(config.parent)), server)
    for attack in attacks[1:]:
        save(of_an_attack(attack, servers, found), attack)
    save(of_all(servers, attacks, found["accuracy_mean"]), "all")
    (HERE / "accuracy.md").write_text(table(servers, attacks, found["accuracy_mean"]))


def of_a_server(server: str, attacks: list[str], accuracy: Values, run: RunFolder) -> Figure:
    """What every upload weighs with two free-riders, and what every attack does to the honest."""
    size = (9, 0.2 * len(attacks) + 0.3)  # a label in each row
    figure, (left, right) = plt.subplots(1, 2, figsize=size, width_ratios=(1.1, 1), layout="constrained")
    rounds = run.rounds()
    shown, name = ("reputation", "reputation") if server in REWARDING else ("weight", "weight of the upload")
    if shown not in rounds[-1].measures or server in SETTLED:
        shown, name = "accuracy", "validation accuracy"
    curves(left, np.array([entry.measures[shown] for entry in rounds]), rounds[-1].honest)
    left.set(xlabel="round", title=f"{name[0].upper()}{name[1:]}, two free-riders")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    names = ["no attack", *attacks[1:]]
    dots(right, names, [accuracy[server, attack] for attack in attacks], HONEST, "o")
    right.set_title("Mean accuracy of the honest")
    return figure


def curves(axes: Axes, values: np.ndarray, honest: int) -> None:
    """Honest participants as thin lines, adversaries as dashed ones."""
    numbers = np.arange(1, len(values) + 1)
    for i, curve in enumerate(values.T):
        bad = i >= honest
        look: dict[str, Any] = {"color": HONEST, "linewidth": 1.2}
        if bad:
            look = {"color": ADVERSARY, "linewidth": 2, "linestyle": "--"}
        label = {0: "honest", honest: "free-riders"}.get(i)
        axes.plot(numbers, curve, label=label, marker="x" if bad else ".", markersize=4, **look)
    axes.set_ylim(bottom=min(0, np.nanmin(values)))
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.14))


def of_an_attack(attack: str, servers: list[str], found: dict[str, Values]) -> Figure:
    """What an attack does under every server; of one with an aim also how often it succeeds."""
    accuracy = found["accuracy_mean"]
    aims = [name for name in SUCCESS if any(found[name].get((server, attack)) for server in servers)]
    size = (9, 0.27 * len(servers) + 0.8)  # two labels in each row
    figure, panels = plt.subplots(1, 1 + len(aims), figsize=size, layout="constrained", sharey=True, squeeze=False)
    axes = panels[0, 0]
    dots(axes, servers, [accuracy[server, "none"] for server in servers], QUIET, "s", "no attack", shift=-0.22)
    dots(axes, servers, [accuracy[server, attack] for server in servers], ADVERSARY, "o", attack, shift=0.22)
    axes.set_title("Mean accuracy of the honest, two adversaries of ten")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, -0.06), ncols=2, fontsize=9)
    for name, panel in zip(aims, panels[0, 1:], strict=True):
        dots(panel, servers, [found[name][server, attack] for server in servers], ADVERSARY, "o")
        panel.set_title(SUCCESS[name])
    return figure


def of_all(servers: list[str], attacks: list[str], accuracy: Values) -> Figure:
    """Every server against every attack: mean accuracies in per cent, darker where they are higher."""
    means = np.array([[100 * np.mean(accuracy[server, attack]) for attack in attacks] for server in servers])
    figure, axes = plt.subplots(figsize=(9, 5.2), layout="constrained")
    axes.imshow(means, cmap="Blues", vmin=0, vmax=110, aspect="auto")
    for (row, column), mean in np.ndenumerate(means):
        axes.text(column, row, f"{mean:.0f}", ha="center", va="center", color="white" if mean > 60 else "black")
    axes.set_yticks(range(len(servers)), servers)
    axes.set_xticks(range(len(attacks)), ["no attack", *attacks[1:]], rotation=40, ha="left", rotation_mode="anchor")
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.spines[:].set_visible(False)
    return figure


def dots(
    axes: Axes, names: list[str], values: list[list[float]], colour: str, marker: str, label: str = "", shift: float = 0
) -> None:
    """A row per name: the mean, the range over seeds, and the mean in figures."""
    where = np.arange(len(names)) + shift
    means = np.array([np.mean(value) for value in values])
    spans = np.array([[mean - min(value), max(value) - mean] for mean, value in zip(means, values, strict=True)]).T
    spans = spans.clip(min=0)  # a mean of like values may lie a last bit below them
    axes.errorbar(means, where, xerr=spans, fmt=marker, color=colour, markersize=5, capsize=3, label=label or None)
    for mean, y, high in zip(means, where, spans[1], strict=True):
        axes.annotate(f"{mean:.0%}", (mean + high, y), (7, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set(yticks=range(len(names)), yticklabels=names, xlim=(0, 1.12), ylim=(len(names) - 0.5, -0.5))
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)


def table(servers: list[str], attacks: list[str], accuracy: Values) -> str:
    """Mean accuracies in Markdown, and over how many seeds."""
    words = [re.sub("(?<=[a-z])(?=[A-Z])", " ", attack) for attack in attacks[1:]]  # wrap in a narrow column
    head = ["server", "no attack", *words]
    rows = [[server, *(f"{np.mean(accuracy[server, attack]):.1%}"[:-1] for attack in attacks)] for server in servers]
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---", *["---:"] * len(attacks)], *rows]]
    seeds = min(len(value) for value in accuracy.values())
    return "\n".join([*lines, "", f"Mean over {seeds} seed{'s' if seeds > 1 else ''}."]) + "\n"


def save(figure: Figure, name: str) -> None:
    """Write a small PNG."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(11)
    file = HERE / f"{name}.png"
    figure.savefig(file, dpi=130)
    plt.close(figure)
    Image.open(file).convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(file, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
