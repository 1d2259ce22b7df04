"""How participants are drawn: the honest and every kind of adversary as groups, told apart without colour.

Few participants have a line, a marker and a label at the line's end each; of many there are the median, the middle half
and the range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from rffl_pl.runs.records import Summary

FEW = 12
"""So many honest participants, and so many adversaries, have a line each."""

Entry = tuple[Any, str]
"""A legend's entry: one artist or several upon each other, and its text."""

_LINE_HEIGHT = 11.0  # of a label, in points
# Neighbours differ in lightness, so that they differ in grey as well.
_HONEST_COLOURS = ("#332288", "#4ba3d9", "#0b5d1e", "#9a8f2a", "#0072b2", "#3aa08d")
_HONEST_MARKERS = ("o", "s", "^", "D", "v", "p", "<", "h", ">", "d", "*", "8")
# Colour, dashes, marker and hatch of each kind of adversary.
_KINDS: tuple[tuple[str, Any, str, str], ...] = (
    ("#c1121f", (0, (5, 2)), "X", "///"),
    ("#d17a00", (0, (1, 1.5)), "P", "\\\\\\"),
    ("#7a1f5c", (0, (6, 2, 1, 2)), "x", "..."),
    ("#e0529c", (0, (2, 4)), "+", "xxx"),
    ("#5c2e0a", (0, (8, 2, 1, 2, 1, 2)), "1", "---"),
    ("#e85d3d", (0, (3, 1)), "2", "|||"),
)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Participants that are drawn alike.

    Attributes:
        name: ``honest``, or what the adversaries do.
        participants: Their numbers, ascending.
        colour: The group's.
        dashes: Of its lines, as matplotlib takes them.
        marker: Of an adversary; the honest have one each where there are few.
        hatch: Of its areas.
        few: Whether each has a line of its own.
    """

    name: str
    participants: Sequence[int]
    colour: str
    dashes: Any
    marker: str
    hatch: str | None
    few: bool

    def look(self, participant: int) -> dict[str, Any]:
        """Colour, dashes and marker of one participant's line."""
        colour, marker = self.colour, self.marker
        if self.hatch is None:
            colour = _HONEST_COLOURS[participant % len(_HONEST_COLOURS)]
            marker = _HONEST_MARKERS[participant % len(_HONEST_MARKERS)]
        return {"color": colour, "linestyle": self.dashes, "marker": marker}


def groups(summary: Summary) -> list[Group]:
    """The honest, then every kind of adversary."""
    honest, total = summary.honest, len(summary.examples)
    kinds: dict[str, list[int]] = {}
    for i in range(honest, total):
        kinds.setdefault((summary.attacks[i] if summary.attacks else None) or "adversary", []).append(i)
    adversaries = [
        Group(
            name=name, participants=who, colour=colour, dashes=dashes, marker=marker, hatch=hatch,
            few=total - honest <= FEW,
        )
        for number, (name, who) in enumerate(kinds.items())
        for colour, dashes, marker, hatch in [_KINDS[number % len(_KINDS)]]
    ]  # fmt: skip
    everybody = Group(
        name="honest", participants=range(honest), colour=_HONEST_COLOURS[0], dashes="-", marker="o", hatch=None,
        few=honest <= FEW,
    )  # fmt: skip
    return [everybody, *adversaries]


def draw_curves(axes: Axes, rounds: np.ndarray, values: np.ndarray, drawn: Sequence[Group]) -> list[Entry]:
    """Draw every group; the limits are set afterwards, the ends labelled by `label_ends`.

    Args:
        axes: Where.
        rounds: ``[R]``.
        values: ``[R, P]``, NaN where there is nothing to draw.
        drawn: Who.

    Returns:
        The legend's entries, one for each group.
    """
    entries: list[Entry] = []
    for group in drawn:
        if group.few:
            for place, i in enumerate(group.participants):
                every = max(1, len(rounds) // 8)
                marked = (place % every, every)  # side by side, not upon each other
                axes.plot(rounds, values[:, i], **group.look(i), markevery=marked, markersize=5, linewidth=1.5)
            marker = group.marker if group.hatch else None  # each honest one has another
            look: dict[str, Any] = {"color": group.colour, "linestyle": group.dashes, "marker": marker}
            entries.append((Line2D([], [], **look), group.name))
        else:
            entries += _draw_many(axes, rounds, values[:, list(group.participants)], group)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(rounds) == 1:
        axes.set_xlim(rounds[0] - 1, rounds[0] + 0.05)  # beside its labels
    return entries


def _draw_many(axes: Axes, rounds: np.ndarray, values: np.ndarray, group: Group) -> list[Entry]:
    there = np.isfinite(values).any(1)
    if not there.any():
        return []
    low, lower, median, upper, high = np.nanquantile(values[there], [0, 0.25, 0.5, 0.75, 1], axis=1)
    area: dict[str, Any] = {"facecolor": group.colour, "edgecolor": group.colour, "hatch": group.hatch, "linewidth": 0}
    axes.fill_between(rounds[there], low, high, alpha=0.15, **area)
    axes.fill_between(rounds[there], lower, upper, alpha=0.35, **area)
    for bound in (low, high):
        axes.plot(rounds[there], bound, color=group.colour, linewidth=0.7, linestyle=group.dashes)
    look: dict[str, Any] = {"color": group.colour, "linestyle": group.dashes, "marker": group.marker}
    axes.plot(rounds[there], median, **look, markevery=max(1, len(rounds) // 8), markersize=5, linewidth=2)
    shown = (Patch(alpha=0.15, **area), Line2D([], [], **look, linewidth=2))
    return [(shown, f"{group.name}: median, middle half, all {values.shape[1]}")]


def label_ends(
    axes: Axes, rounds: np.ndarray, values: np.ndarray, texts: dict[int, str], drawn: Sequence[Group]
) -> None:
    """Write at the right who each single line is, none upon another, a thin line from the curve's end to its text.

    Args:
        axes: Where; its limits stay as they are from now on.
        rounds: ``[R]``.
        values: ``[R, P]`` as they were drawn.
        texts: What to write, by participant; its number where nothing is given.
        drawn: Who; groups of many have no ends.
    """
    single = [(i, group) for group in drawn if group.few for i in group.participants if np.isfinite(values[:, i]).any()]
    if not single:
        return
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]  # sets the height that the labels share
    lasts = [int(np.flatnonzero(np.isfinite(values[:, i]))[-1]) for i, _ in single]
    ends = np.array([values[last, i] for last, (i, _) in zip(lasts, single, strict=True)])
    low, high = axes.get_ylim()
    height = axes.bbox.height / axes.figure.dpi * 72
    heights = apart((ends - low) / (high - low), _LINE_HEIGHT / height)
    line: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.6, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 3}
    for (i, group), last, end, at in zip(single, lasts, ends, heights, strict=True):
        axes.annotate(
            texts.get(i, str(i)), (rounds[last], end), xytext=(1.04, at), textcoords="axes fraction", fontsize=8.5,
            verticalalignment="center", annotation_clip=False,
            arrowprops=line | {"color": group.look(i)["color"]},
        )  # fmt: skip


def apart(wished: np.ndarray, gap: float) -> np.ndarray:
    """Heights in [0, 1] near the wished ones, in their order and at least ``gap`` from each other if there is room."""
    order = np.argsort(wished, kind="stable")
    steps = min(gap, 1 / max(len(wished) - 1, 1)) * np.arange(len(wished))
    flat = wished[order] - steps
    upwards, downwards = np.maximum.accumulate(flat), np.minimum.accumulate(flat[::-1])[::-1]
    heights = np.empty(len(wished))
    heights[order] = np.clip((upwards + downwards) / 2, 0, 1 - steps[-1]) + steps
    return heights


def label_dots(axes: Axes, x: np.ndarray, y: np.ndarray, radii: np.ndarray) -> None:
    """Write every dot's number beside it, where it lies neither on a dot nor on another number.

    Args:
        axes: Where; its limits stay as they are from now on.
        x: Of the dots, ``[P]``.
        y: Of the dots, ``[P]``.
        radii: In points.
    """
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    pixels = axes.figure.dpi / 72
    centres = axes.transData.transform(np.column_stack([x, y]))
    reach = (radii * pixels)[:, None]
    taken = [Bbox([low, high]) for low, high in zip(centres - reach, centres + reach, strict=True)]
    for i, radius in enumerate(radii):
        beside: dict[str, Any] = {"xy": (x[i], y[i]), "textcoords": "offset points", "fontsize": 8.5}
        beside |= {"horizontalalignment": "center", "verticalalignment": "center"}
        beside["in_layout"] = False  # it lies inside, and the layout stays what places were found for
        text = axes.annotate(str(i), **beside, xytext=(0, 0))
        for distance, place in _places(radius + 6):
            text.set_position(place)
            box = text.get_window_extent()
            if axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max) and not box.count_overlaps(taken):
                taken.append(box)
                if distance > radius + 6:
                    line = {"arrowstyle": "-", "color": "0.35", "linewidth": 0.6, "shrinkA": 5, "shrinkB": radius}
                    axes.annotate("", **beside, xytext=place, arrowprops=line)
                break
        else:
            text.remove()  # in a heap no number would say whose dot it is


def _places(nearest: float) -> Iterator[tuple[float, tuple[float, float]]]:
    """Distances and places around a dot, in points, from near to far and from the upper right on."""
    for distance in (nearest, nearest + 7, nearest + 14, nearest + 21):
        for eighth in (1, 7, 3, 5, 0, 2, 4, 6):
            angle = eighth * math.pi / 4
            yield distance, (distance * math.cos(angle), distance * math.sin(angle))
