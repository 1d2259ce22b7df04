"""Pictures of a study's tables, and what all pictures of results have in common."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rffl_pl.errors import UserError
from rffl_pl.studies.study import place_text
from rffl_pl.studies.tables import Table, caption
from rffl_pl.studies.within import ADVERSARY, PARTICIPANT, ROUND

_ACROSS = 3  # panels beside each other
_MANY = 10  # rows beyond which a line has a band and no markers
_WIDE = 28  # characters that fit below a panel
_LONG = 40  # characters of a label, of which a longer one loses the middle
_PANELS = 60  # more are seconds each, and too small to see
# Neighbours differ in lightness, so that they differ in grey as well.
_COLOURS = ("#332288", "#d17a00", "#0b5d1e", "#c1121f", "#4ba3d9", "#7a1f5c", "#9a8f2a", "#e0529c")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
_AS_WRITTEN: Any = {"text.parse_math": False}  # two dollar signs in labels are no formula
_DASHES = ("-", "--", ":", "-.")


def draw(shown: Sequence[Table], axes: Sequence[str]) -> Figure:
    """Tables as a picture: a panel each, the rows from left to right, and a line or row of points for every column.

    Rows whose labels are numbers stand where these are, joined by lines, on a logarithmic scale if they span powers of
    ten, as rates do; others side by side, not joined.

    Args:
        shown: At least one table.
        axes: Of rows and columns, as the tables have them.

    Raises:
        UserError: If there are too many.
    """
    if len(shown) > _PANELS:
        raise UserError(
            f"Expected --figure to draw at most {_PANELS} panels, one for each place on the axes that it does not "
            f"name, but there are {len(shown)}; narrow them by --only, or give --table."
        )
    with matplotlib.rc_context(_AS_WRITTEN):
        return _drawn(shown, axes)


def _drawn(shown: Sequence[Table], axes: Sequence[str]) -> Figure:
    across = min(len(shown), _ACROSS)
    down = math.ceil(len(shown) / across)
    rows = list(dict.fromkeys(row for table in shown for row in table.rows))
    columns = list(dict.fromkeys(column for table in shown for column in table.columns))
    where = _positions(rows, axes[0])
    powers = axes[0] != ROUND and where is not None and _spans_powers([*where.values()])
    crowd = 0.45 * len(rows) if where else max(0.45 * len(rows), 0.08 * len(rows) * len(columns))
    width = max(5.2, min(10.0, crowd)) if across == 1 else max(3.8, min(5.0, crowd))
    figure = Figure(layout="constrained")
    figure.set_figwidth(width * across)
    named = len(axes) > 1  # of one column too: a picture has no head that says which it is
    short = _shortened(rows) | _shortened(columns)
    entries = [short[column] for column in columns]
    below = math.ceil(len(columns) / _legend_columns(figure, entries)) if named else 0
    figure.set_figheight(2.7 * down + 0.9 + 0.2 * below)
    panels = list(figure.subplots(down, across, squeeze=False, sharey=True).flat)
    for panel, table in zip(panels, shown, strict=False):
        places = where or {row: float(number) for number, row in enumerate(rows)}
        _draw_panel(panel, table, columns, places, short, apart=not where)
        if powers:
            panel.set_xscale("log")
            panel.minorticks_off()
            panel.set_xticks([*places.values()], [short[row] for row in places], fontsize=8)
        panel.set_xlabel(axes[0])
        if panel.get_subplotspec().is_first_col():
            panel.set_ylabel(textwrap.fill(shown[0].title(), 36))
        panel.set_title(textwrap.fill(place_text(table.rest), 44), loc="left", fontsize=9)
    for panel in panels[len(shown) :]:
        panel.set_visible(False)
    told = textwrap.fill(caption(shown, effects=False) + ".", round(15 * figure.get_figwidth()))
    return finished(figure, panels[: len(shown)], told, 9, axes[1] if named else None, legend=named)


def _positions(rows: Sequence[str], axis: str) -> dict[str, float] | None:
    """Where rows stand whose labels are numbers, in their order, as a line goes; None if some are none.

    Participants' numbers have no order.
    """
    try:
        known = {row: float(row) for row in sorted(rows, key=float)}
    except ValueError:
        return None
    return known if axis != PARTICIPANT and all(map(math.isfinite, known.values())) else None


def _spans_powers(places: Sequence[float]) -> bool:
    """Whether a linear scale would have all but the largest in one spot."""
    return len(places) > 2 and min(places) > 0 and max(places) >= 50 * min(places)


def _draw_panel(
    panel: Axes, table: Table, columns: Sequence[str], where: Mapping[str, float], short: Mapping[str, str], apart: bool
) -> None:
    """A table's estimates: points with intervals beside each other if ``apart``, else lines."""
    step = min(0.15, 0.7 / len(columns)) if apart else 0.0
    for number, column in enumerate(columns):
        shift = step * (number - (len(columns) - 1) / 2)
        for row in [row for row in where if (row, column) in table.entries]:
            if (entry := table.entries[row, column]).infinite:
                side, at = ("top", 0.99) if entry.mean > 0 else ("bottom", 0.01)
                look = {"color": _look(number, column, joined=False)["color"], "ha": "center", "va": side}
                panel.text(where[row] + shift, at, "∞", transform=panel.get_xaxis_transform(), **look)
        there = [row for row in where if (row, column) in table.entries and not table.entries[row, column].infinite]
        if not there:
            continue
        entries = [table.entries[row, column] for row in there]
        places = [where[row] + shift for row in there]
        means = [table.scale * entry.mean for entry in entries]
        halves = [table.scale * (entry.half or 0.0) for entry in entries]
        look = _look(number, column, joined=not apart)
        if not apart and len(where) > _MANY:
            low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
            panel.fill_between(places, low, high, color=look["color"], alpha=0.15, linewidth=0)
            panel.plot(places, means, **(look | {"marker": ""}), label=short[column])
        else:
            panel.errorbar(places, means, halves, **look, markersize=4, capsize=2, label=short[column])
    if table.paired:
        panel.axhline(0, color="0.3", linewidth=0.8)
    if apart:
        labels = [short[row] for row in where]
        crowded = sum(map(len, labels)) > _WIDE
        turned: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
        panel.set_xticks(range(len(labels)), labels, fontsize=8, **turned)
        panel.tick_params(axis="x", length=0)
        panel.set_xlim(-0.5, len(labels) - 0.5)
    elif all(place == int(place) for place in where.values()):
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))


def _shortened(labels: Sequence[str]) -> dict[str, str]:
    """Labels as there is room for them: long ones lose their middle, where none becomes another by it."""
    ends = [one if len(one) <= _LONG else f"{one[: _LONG // 2]}…{one[-_LONG // 2 + 1 :]}" for one in labels]
    return dict(zip(labels, ends if len({*ends}) == len(labels) else labels, strict=True))


def _look(number: int, column: str, joined: bool) -> dict[str, Any]:
    """Colour, marker and dashes of a column; those of adversaries are always dashed."""
    again = number // len(_COLOURS)
    dashes = "--" if column.endswith(ADVERSARY) else _DASHES[again % len(_DASHES)]
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "marker": _MARKERS[(number + again) % len(_MARKERS)],
        "linestyle": dashes if joined else "none",
        "linewidth": 1.2,
    }


def finished(
    figure: Figure,
    panels: Iterable[Axes],
    title: str,
    size: int = 12,
    of_entries: str | None = None,
    legend: bool = True,
) -> Figure:
    """A figure with grid, title and one legend for all panels.

    Args:
        figure: The figure.
        panels: What is drawn on it.
        title: Stands above all.
        size: Of the title, in points.
        of_entries: Stands above the legend.
        legend: Whether there is one.
    """
    entries: dict[str, Any] = {}
    for axes in panels:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries and legend:
        figure.legend(
            entries.values(),
            entries.keys(),
            loc="outside lower center",
            ncols=_legend_columns(figure, entries),
            frameon=False,
            fontsize=9,
            title=of_entries,
        )
    figure.suptitle(title, fontsize=size)
    return figure


def _legend_columns(figure: Figure, entries: Iterable[str]) -> int:
    """How many entries of a legend fit beside each other, some sixteen characters to an inch."""
    return max(1, min(6, int(16 * figure.get_figwidth() / (max(map(len, entries)) + 6))))


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and, for papers, as PDF."""
    paths = [folder / f"{name}.{ending}" for ending in ("png", "pdf")]
    # Journals refuse the default, Type 3.
    with _signs_told(), matplotlib.rc_context({**_AS_WRITTEN, "pdf.fonttype": 42}):
        for path in paths:
            figure.savefig(path, dpi=150)
    return paths


@contextmanager
def _signs_told() -> Iterator[None]:
    """One sentence in place of matplotlib's on each sign that its font lacks."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
    others = [one for one in told if not str(one.message).startswith("Glyph")]
    for one in others:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if len(others) < len(told):
        warnings.warn(
            "Some labels have signs that matplotlib's font lacks, and boxes in their place; name one that has them, as "
            "font.family: Noto Sans CJK JP in a file matplotlibrc.",
            stacklevel=4,
        )
