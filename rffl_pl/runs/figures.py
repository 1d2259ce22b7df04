"""The pictures of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rffl_pl.runs.records import Round, Summary

_ADVERSARY = "#c1121f"
_REMOVED = "#1b1b1e"


def draw(folder: Path, history: Sequence[Round], summary: Summary) -> list[Path]:
    """Draw what can be drawn of a run into ``folder``.

    Args:
        folder: The run folder.
        history: The rounds.
        summary: The result.

    Returns:
        The files written: ``reputation.png``, ``accuracy.png``, ``fairness.png``, those that have data.
    """
    drawn = []
    if "reputation" in history[-1].measures:
        drawn.append(_save(_reputations(history, summary), folder / "reputation.png"))
    if any(_measured(entry) for entry in history):
        drawn.append(_save(_accuracies(history, summary), folder / "accuracy.png"))
    if summary.gain is not None:
        drawn.append(_save(_fairness(summary), folder / "fairness.png"))
    return drawn


def _reputations(history: Sequence[Round], summary: Summary) -> Figure:
    last = history[-1].measures
    weight = np.array_equal(last["reputation"], last["weight"], equal_nan=True)  # servers without reputations
    figure, axes = _canvas(*(("Weight of the uploads", "weight") if weight else ("Reputation", "reputation")))
    rounds = np.array([entry.number for entry in history])
    values = np.array([entry.measures["reputation"] for entry in history])
    _curves(axes, rounds, values, summary)
    removals: dict[int, list[int]] = {}
    for i, removed in enumerate(summary.removed_in_round):
        if removed is not None:
            removals.setdefault(removed, []).append(i)
            # The reputation drops to 0 with the removal: mark the curve there.
            axes.plot([removed], [0], marker="x", markersize=9, markeredgewidth=2, color=_colour(i, summary), zorder=5)
    for height, (removed, who) in enumerate(sorted(removals.items())):
        above = (5, 7 + 10 * (height % 3))  # removals in consecutive rounds would write over each other
        text = f"{_numbers(who)} removed"
        axes.annotate(text, (removed, 0), xytext=above, textcoords="offset points", fontsize=8, color=_REMOVED)
    axes.set_ylim(bottom=min(0, np.nanmin(values)) - 0.004)
    return figure


def _accuracies(history: Sequence[Round], summary: Summary) -> Figure:
    figure, axes = _canvas("Accuracy of every participant's own model", "accuracy")
    measured = [entry for entry in history if _measured(entry)]
    rounds = np.array([entry.number for entry in measured])
    values = np.array([entry.measures["accuracy"] for entry in measured])[:, : summary.honest]
    axes.plot(rounds, values.mean(1), color="black", linewidth=2.5, label="mean", zorder=4)
    _curves(axes, rounds, values, summary)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure


def _fairness(summary: Summary) -> Figure:
    figure, axes = _canvas("", "final test accuracy")
    honest = summary.honest
    alone, final = (np.array(side, dtype=float) for side in (summary.standalone, summary.final))
    low, high = min(alone.min(), final.min()), max(alone.max(), final.max())
    margin = 0.06 * max(high - low, 0.01)
    line = (low - margin, high + margin)
    axes.plot(line, line, color="0.6", linewidth=1, linestyle="--", zorder=1)
    axes.annotate("no gain", (line[0], line[0]), xytext=(14, 3), textcoords="offset points", fontsize=9, color="0.4")
    areas = 30 + 170 * np.array(summary.examples) / max(summary.examples)
    colours = [_colour(i, summary) for i in range(len(alone))]
    edges: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.8, "zorder": 3}
    axes.scatter(alone[:honest], final[:honest], s=areas[:honest], c=colours[:honest], **edges)
    if honest < len(alone):
        axes.scatter(
            alone[honest:], final[honest:], s=areas[honest:], c=_ADVERSARY, marker="X", label="adversary", **edges
        )
        axes.legend(loc="lower right", frameon=False, fontsize=9)
    for i in range(len(alone)):
        axes.annotate(str(i), (alone[i], final[i]), xytext=(6, 5), textcoords="offset points", fontsize=9)
    value = summary.fairness
    title = f"Fairness {value:.3f}" if value is not None else "Fairness undefined: constant accuracies"
    axes.set_title(f"{title}   (area: examples held)", loc="left", fontsize=12)
    axes.set_xlabel("standalone test accuracy")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure


def _measured(entry: Round) -> bool:
    return not math.isnan(entry.mean_accuracy)


def _curves(axes: Axes, rounds: np.ndarray, values: np.ndarray, summary: Summary) -> None:
    few = len(rounds) <= 1
    honest, total = summary.honest, values.shape[1]
    for i, curve in enumerate(values.T):
        adversary = i >= honest
        together = f"{_numbers(list(range(honest, total)))} (adversar{'y' if total == honest + 1 else 'ies'})"
        axes.plot(
            rounds,
            curve,
            color=_colour(i, summary),
            linestyle="--" if adversary else "-",
            marker="o" if few else None,
            linewidth=1.6,
            label=f"{i}" if not adversary else together if i == honest else "_",
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(title="participant", loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)


def _numbers(participants: list[int]) -> str:
    """``3`` or ``3, 5`` or, without a gap between more than two, ``3-9``."""
    if len(participants) > 2 and participants[-1] - participants[0] == len(participants) - 1:
        return f"{participants[0]}-{participants[-1]}"
    return ", ".join(map(str, participants))


def _colour(participant: int, summary: Summary) -> Any:
    """Honest participants from dark to light by number, adversaries red."""
    if participant >= summary.honest:
        return _ADVERSARY
    return matplotlib.colormaps["viridis"](0.92 * participant / max(summary.honest - 1, 1))


def _canvas(title: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=12)
    axes.set_xlabel("round")
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    return path
