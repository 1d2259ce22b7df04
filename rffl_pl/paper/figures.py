"""The paper's figures, drawn from the results that are kept: lines are means over seeds, bars 95 % intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rffl_pl.paper.contents import FIGURES, SERVERS, final_place, places_of
from rffl_pl.paper.measured import Kept
from rffl_pl.studies.estimate import interval
from rffl_pl.studies.figures import finished
from rffl_pl.studies.results import Row
from rffl_pl.studies.study import Place

_LOOKS = (("#332288", "o"), ("#d17a00", "s"), ("#0b5d1e", "^"), ("#c1121f", "D"), ("#7a1f5c", "v"))
_LABEL_FLIPS = {
    "target_accuracy": "accuracy on the flipped class",
    "attack_success": "attack success",
    "reputation": "reputation",
}


def draw(name: str, kept: Kept) -> Figure:
    """A figure of the paper.

    Args:
        name: One of `FIGURES`.
        kept: The results; what they lack is left empty and says so.
    """
    if name == "final_accuracies":
        return _final_accuracies(kept)
    places = [place for _, place in places_of(name)]
    study = places_of(name)[0][0]
    measures = _LABEL_FLIPS if study == "label_flip" else {"reputation": "reputation"}
    across = len(measures) > 1
    rows, columns = (len(places), len(measures)) if across else (1, len(places))
    figure = Figure(figsize=(3.6 * columns, 2.9 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for number, place in enumerate(places):
        curves = kept.curves(study, place)
        for column, (measure, label) in enumerate(measures.items()):
            axes = panels[number][column] if across else panels[0][number]
            _curves(axes, [row for row in curves if row["measure"] == measure], measure == "reputation")
            axes.set_ylabel(label)
            axes.set_title(f"{_title(place)}{_seeds(curves)}", loc="left", fontsize=10)
            axes.set_xlabel("round")
            if measure == "reputation" and curves:
                axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))  # a last digit is no separation
    return finished(figure, panels.flat, f"{FIGURES[name]}\n{_measured(kept)}: means over seeds")


def _measured(kept: Kept) -> str:
    reduced = any(study.name.endswith("-reduced") for study in kept.studies.values())
    return f"measured here, {'reduced' if reduced else 'full'} schedule"


def _seeds(rows: Iterable[Row]) -> str:
    """How many seeds rows are of, as a title says it behind what they show."""
    count = len({row["seed"] for row in rows})
    return f" ({count} seed{'s' * (count > 1)})" if count else ""


def _title(place: Place) -> str:
    if "adversaries" in place:
        return f"5 honest, {place['adversaries']} adversaries"
    return f"{place['split']}, {place['attack'].replace('_', '-')}"


def _curves(axes: Axes, rows: Sequence[Row], adversaries_too: bool) -> None:
    """A line per participant, means over seeds: adversaries dashed and with crosses."""
    participants = sorted({int(row["participant"]) for row in rows})
    for participant in participants:
        mine = [row for row in rows if int(row["participant"]) == participant]
        bad = mine[0]["role"] == "adversary"
        if bad and not adversaries_too:
            continue
        rounds = sorted({int(row["round"]) for row in mine})
        means = [fmean(float(row["value"]) for row in mine if int(row["round"]) == number) for number in rounds]
        look: dict[str, Any] = {"color": "#332288", "linewidth": 1.3, "alpha": 0.8}
        if bad:
            look = {"color": "#c1121f", "linestyle": "--", "marker": "x", "markersize": 4, "linewidth": 1.1}
        axes.plot(rounds, means, **look, label="adversary" if bad else "honest")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not rows:
        _empty(axes)


def _final_accuracies(kept: Kept) -> Figure:
    figure = Figure(figsize=(12, 7), layout="constrained")
    panels = figure.subplots(2, 3, squeeze=False)
    for row, (study, label) in enumerate((("mnist", "MNIST"), ("cifar10", "CIFAR-10"))):
        for column, split in enumerate(("UNI", "POW", "CLA")):
            axes = panels[row][column]
            rows = {server: kept.at(study, final_place(split, server)) for server in SERVERS}
            axes.set_title(f"{label}, {split}{_seeds(rows['RFFL'])}", loc="left", fontsize=10)
            axes.set_xlabel("participant")
            axes.set_ylabel("test accuracy in %")
            _participants(axes, rows)
    how = "means over seeds, with 95 % intervals where there are several"
    return finished(figure, panels.flat, f"{FIGURES['final_accuracies']}\n{_measured(kept)}: {how}")


def _participants(axes: Axes, rows: Mapping[str, list[Row]]) -> None:
    """A line per server and one of who trains alone, over the participants."""
    found = False
    for server, (colour, marker) in zip(SERVERS, _LOOKS, strict=True):
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.2, "capsize": 2}
        found |= _bars(axes, rows[server], "accuracy", server, look)
    look = {"color": "black", "linestyle": ":", "linewidth": 1.6}
    found |= _bars(axes, rows["RFFL"], "standalone", "Standalone", look)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not found:
        _empty(axes)


def _bars(axes: Axes, rows: Sequence[Row], measure: str, label: str, look: dict[str, Any]) -> bool:
    values: dict[int, list[float]] = {}
    for row in rows:
        if row["measure"] == measure and row["role"] == "honest":
            values.setdefault(int(row["participant"]), []).append(100 * float(row["value"]))
    who = sorted(values)
    if who:
        halves = [interval(values[i]) or 0.0 for i in who]
        axes.errorbar([i + 1 for i in who], [fmean(values[i]) for i in who], halves, **look, label=label)
    return bool(who)


def _empty(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, "not measured yet", transform=axes.transAxes, ha="center", va="center", color="0.4")
