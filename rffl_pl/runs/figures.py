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
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rffl_pl.runs.curves import Entry, draw_curves, groups, label_dots, label_ends
from rffl_pl.runs.records import Round, Summary

_PDF: Any = {"pdf.fonttype": 42}  # journals refuse matplotlib's default, Type 3


def draw(folder: Path, history: Sequence[Round], summary: Summary) -> list[Path]:
    """Draw what can be drawn of a run into ``folder``: every picture as PNG, and as PDF for papers.

    Args:
        folder: The run folder.
        history: The rounds.
        summary: The result.

    Returns:
        The pictures, those that have data of ``reputation.png``, ``accuracy.png``, ``fairness.png``; beside each lies
        its PDF.
    """
    pictures: dict[str, Figure] = {}
    if "reputation" in history[-1].measures:
        pictures["reputation"] = reputations(history, summary)
    if any(_measured(entry) for entry in history):
        pictures["accuracy"] = accuracies(history, summary)
    if summary.gain is not None:
        pictures["fairness"] = fairness(summary)
    return [_save(figure, folder / f"{name}.png") for name, figure in pictures.items()]


def reputations(history: Sequence[Round], summary: Summary) -> Figure:
    """Everybody's reputation in every round; a curve ends with a cross where its participant is removed."""
    measures = (entry.measures for entry in history)  # of servers without reputations: the same in every round
    weight = all(np.array_equal(one["reputation"], one["weight"], equal_nan=True) for one in measures)
    what = (
        ("Weight of every participant's upload", "weight")
        if weight
        else ("Reputation of every participant", "reputation")
    )
    figure, axes = _canvas(*what)
    rounds = np.array([entry.number for entry in history])
    values = np.array([entry.measures["reputation"] for entry in history])
    values[np.isinf(values)] = np.nan  # a server of one's own may give such; no axis has a place for them
    drawn = groups(summary)
    texts = {}
    for i, removed in enumerate(summary.removed_in_round):
        if removed is not None:
            values[rounds > removed, i] = np.nan
            texts[i] = f"{i}, removed in {removed}"
    entries = draw_curves(axes, rounds, values, drawn)
    entries += _crosses(axes, summary)
    low, high = np.nanmin(values, initial=0), np.nanmax(values, initial=0.01)
    axes.set_ylim(low - 0.02 * high, high + 0.03 * (high - low))  # markers at the top are whole
    label_ends(axes, rounds, values, texts, drawn)
    _legend(figure, entries)
    return figure


def _crosses(axes: Axes, summary: Summary) -> list[Entry]:
    """Where somebody's reputation drops to 0; the legend's entry says how many it happened to."""
    removed = [number for number in summary.removed_in_round if number is not None]
    if not removed:
        return []
    look: dict[str, Any] = {"color": "black", "marker": "x", "markersize": 9, "markeredgewidth": 1.8, "linestyle": ""}
    axes.plot(removed, [0] * len(removed), **look, zorder=5)
    honest = sum(number is not None for number in summary.removed_in_round[: summary.honest])
    of_whom = f", {honest} of them honest" if honest else ""
    return [(Line2D([], [], **look), f"removed: {len(removed)}{of_whom}")]


def accuracies(history: Sequence[Round], summary: Summary) -> Figure:
    """Accuracy of every honest participant's model in every round, and their mean."""
    on = f" on {summary.watched} examples" if summary.watched else ""
    figure, axes = _canvas("Accuracy of every honest participant's model", f"accuracy{on}")
    measured = [entry for entry in history if _measured(entry)]
    rounds = np.array([entry.number for entry in measured])
    values = np.array([entry.measures["accuracy"] for entry in measured])[:, : summary.honest]
    honest = groups(summary)[:1]
    entries = draw_curves(axes, rounds, values, honest)
    dash = "_" if len(rounds) == 1 else None  # a line of one round cannot be seen
    (mean,) = axes.plot(
        rounds, np.nanmean(values, 1), color="black", linewidth=2.8, zorder=4, marker=dash, markersize=14
    )
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylim(axes.get_ylim())
    label_ends(axes, rounds, values, {}, honest)
    _legend(figure, [(mean, "mean"), *entries])
    return figure


def fairness(summary: Summary) -> Figure:
    """Final against standalone test accuracy of everybody."""
    figure, axes = _canvas("", "final test accuracy")
    alone, final = (np.array(side, dtype=float) for side in (summary.standalone, summary.final))
    low, high = min(alone.min(), final.min()), max(alone.max(), final.max())
    margin = 0.08 * max(high - low, 0.01)
    line = (low - margin, high + margin)
    axes.plot(line, line, color="0.45", linewidth=1, linestyle="--", zorder=1)
    axes.set(xlim=line, ylim=line, xlabel="standalone test accuracy")
    areas = 30 + 170 * np.array(summary.examples) / max(summary.examples)
    drawn = groups(summary)
    for group in drawn:
        who = list(group.participants)
        lined = group.marker in ("x", "+", "1", "2")  # these are all edge
        edge: dict[str, Any] = {"linewidths": 1.8} if lined else {"linewidths": 0.8, "edgecolors": "white"}
        axes.scatter(alone[who], final[who], s=areas[who], c=group.colour, marker=group.marker, **edge, zorder=3)
    why = "one participant" if summary.honest == 1 else "constant accuracies"
    # z: no -0.000.
    title = f"Fairness undefined: {why}" if summary.fairness is None else f"Fairness {summary.fairness:z.3f}"
    axes.set_title(f"{title}   (area: examples held)", loc="left", fontsize=12)
    ticks = [tick for tick in MaxNLocator(6).tick_values(*line) if line[0] <= tick <= min(1, line[1])]
    decimals = 0 if np.allclose(100 * np.array(ticks), np.round(100 * np.array(ticks))) else 1
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks)
        axis.set_major_formatter(PercentFormatter(1.0, decimals=decimals))
    dots = [Line2D([], [], color=group.colour, marker=group.marker, linestyle="") for group in drawn]
    entries = [(dot, group.name) for dot, group in zip(dots, drawn, strict=True)]
    _legend(figure, [*entries, (Line2D([], [], color="0.45", linewidth=1, linestyle="--"), "no gain")])
    if all(group.few for group in drawn):
        label_dots(axes, alone, final, np.sqrt(areas / np.pi))
    return figure


def _measured(entry: Round) -> bool:
    return not math.isnan(entry.mean_accuracy)


def _canvas(title: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=12)
    axes.set_xlabel("round")
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _legend(figure: Figure, entries: Sequence[Entry]) -> None:
    """Below the picture, where it hides nothing; none where nothing is drawn."""
    if not entries:
        return
    handles, labels = zip(*entries, strict=True)
    columns = 4 if max(map(len, labels)) < 24 else 2
    look: dict[str, Any] = {"frameon": False, "fontsize": 9, "handlelength": 3}
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, **look)


def _save(figure: Figure, path: Path) -> Path:
    with matplotlib.rc_context(_PDF):
        figure.savefig(path, dpi=150)
        figure.set_layout_engine("none")  # what it has found stays: looking for it takes longer than drawing
        figure.savefig(path.with_suffix(".pdf"))
    return path
