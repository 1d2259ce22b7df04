"""The pictures of a run: nothing runs off or lies upon something else, and all can be told without colour."""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from rffl_pl.runs import Round, Summary, figures
from rffl_pl.runs.curves import FEW, apart

KINDS = ("FreeRider", "LabelFlip", "SignRandom")
SIZES = [(1, 0), (5, 1), (10, 3), (FEW, FEW), (50, 3), (50, 20)]


def history(honest: int, adversaries: int, rounds: int = 12, gap: bool = False) -> tuple[list[Round], Summary]:
    """A run in which adversaries of three kinds are removed in rounds 4, 5, 6, one honest participant in the last."""
    draw = np.random.default_rng(honest + adversaries)
    total = honest + adversaries
    removed: list[int | None] = [None] * honest + [4 + i % 3 for i in range(adversaries)]
    if honest > 1:
        removed[1] = rounds
    accuracy, reputation = draw.uniform(0.6, 0.9, total), draw.uniform(0.1, 0.3, total)
    entries = []
    for number in range(1, rounds + 1):
        member = np.array([gone is None or number < gone for gone in removed])
        measures = {
            "accuracy": accuracy + 0.01 * number,
            "reputation": np.where(member, reputation + draw.normal(0, 0.01, total), 0),
            "weight": np.full(total, 1 / total),
        }
        if gap and number == 1:
            measures["reputation"] = np.full(total, math.nan)
        entries.append(
            Round(
                number=number, honest=honest, members=member.tolist(),
                measures={name: values.tolist() for name, values in measures.items()},
            )
        )  # fmt: skip
    standalone = (accuracy - 0.05).tolist()
    summary = Summary(
        rounds=rounds, honest=honest, examples=draw.integers(10, 200, total).tolist(), standalone=standalone,
        final=(accuracy + 0.1).tolist(), reputation=[None] * total, quota=[None] * total, removed_in_round=removed,
        mean=0.8, maximum=0.9, fairness=0.9, gain=0.1,
        attacks=[None] * honest + [KINDS[i % 3] for i in range(adversaries)],
    )  # fmt: skip
    return entries, summary


@functools.cache  # laying out takes longer than all that is asked of it
def pictures(honest: int, adversaries: int, **options: Any) -> dict[str, Figure]:
    """All three, laid out."""
    rounds, summary = history(honest, adversaries, **options)
    drawn = {
        "reputation": figures.reputations(rounds, summary),
        "accuracy": figures.accuracies(rounds, summary),
        "fairness": figures.fairness(summary),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layout that does not work out is told in a warning
        for figure in drawn.values():
            figure.draw_without_rendering()
    return drawn


def texts(figure: Figure) -> dict[Text, Bbox]:
    """Every text that shows, and where."""
    (axes,) = figure.axes
    hidden = [
        tick
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    ]
    unseen = {text for tick in hidden for text in (tick.label1, tick.label2)}
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text() and text not in unseen]
    return {text: Text.get_window_extent(text) for text in shown}


def labels(axes: Axes) -> list[Text]:
    """Whatever names a participant."""
    return [text for text in axes.texts if text.get_text()]


def legend(figure: Figure) -> Legend:
    """The only one."""
    (found,) = figure.legends
    return found


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_nothing_runs_off_or_lies_upon_something(size: tuple[int, int]) -> None:
    """Every text is inside the figure, and no two of them overlap."""
    for name, figure in pictures(*size).items():
        boxes = texts(figure)
        assert len(boxes) > 6
        page = figure.bbox.padded(1)
        outside = [
            text.get_text() for text, box in boxes.items() if not (page.contains(*box.min) and page.contains(*box.max))
        ]
        assert not outside, name
        ticks = {text for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis) for text in axis.get_ticklabels()}
        written = [(text, box) for text, box in boxes.items() if text not in ticks]
        upon = [(a.get_text(), b.get_text()) for (a, x), (b, y) in itertools.combinations(written, 2) if _overlap(x, y)]
        assert not upon, name


def _overlap(one: Bbox, other: Bbox) -> bool:
    """More than by a pixel: a line's height has some room above the digits."""
    common = Bbox.intersection(one, other)
    return common is not None and min(common.width, common.height) > 1


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_legend_stays_small(size: tuple[int, int]) -> None:
    """However many take part, it has one entry for each group and one more."""
    for figure in pictures(*size).values():
        assert len(legend(figure).get_texts()) <= 1 + min(size[1], 3) + 1


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_lines_are_told_apart_without_colour(size: tuple[int, int]) -> None:
    """No two honest lines have one marker, no two kinds of adversary one kind of line, and each line has a label."""
    figure = pictures(*size)["reputation"]
    (axes,) = figure.axes
    honest, adversaries = size
    lines = [line for line in axes.lines if line.get_linewidth() == 1.5 and line.get_linestyle() != "None"]
    assert len(lines) == (honest if honest <= FEW else 0) + (adversaries if adversaries <= FEW else 0)
    solid = [line.get_marker() for line in lines if line.get_linestyle() == "-"]
    assert len(set(solid)) == len(solid) == (honest if honest <= FEW else 0)
    assert {text.get_text().split(",")[0] for text in labels(axes)} == {
        *(str(i) for i in range(honest) if honest <= FEW),
        *(str(i) for i in range(honest, honest + adversaries) if adversaries <= FEW),
    }
    looks = [(line._dash_pattern, line.get_marker()) for line in legend(figure).get_lines()]  # type: ignore[attr-defined]
    assert len({str(look) for look in looks}) == len(looks)


def test_kinds_of_adversary_are_named() -> None:
    """In every picture that shows adversaries, and dots of two kinds have two shapes."""
    drawn = pictures(10, 3)
    for name in ("reputation", "fairness"):
        assert set(KINDS) <= {text.get_text() for text in legend(drawn[name]).get_texts()}
    clouds = [dots for dots in drawn["fairness"].axes[0].collections if isinstance(dots, PathCollection)]
    assert len({np.asarray(dots.get_paths()[0].vertices).tobytes() for dots in clouds}) == len(clouds) == 4


@pytest.mark.parametrize("size", [(5, 1), (10, 3), (FEW, FEW)], ids=str)
def test_no_number_lies_upon_a_dot(size: tuple[int, int]) -> None:
    """A number that is far from its dot has a line to it, and in a heap alone may one be missing."""
    (axes,) = pictures(*size)["fairness"].axes
    pixels = axes.figure.dpi / 72
    clouds = [cloud for cloud in axes.collections if isinstance(cloud, PathCollection)]
    centres = np.concatenate([axes.transData.transform(cloud.get_offsets()) for cloud in clouds])
    radii = np.concatenate([np.sqrt(cloud.get_sizes() / math.pi) * pixels for cloud in clouds])
    boxes = [text.get_window_extent() for text in labels(axes)]
    assert len(boxes) > 0.8 * sum(size)
    for box in boxes:
        beside = np.maximum(np.maximum(box.min - centres, centres - box.max), 0)
        assert (np.hypot(*beside.T) > radii - 1).all()
    lines = [text for text in axes.texts if not text.get_text()]
    near = [np.hypot(*text.get_position()) for text in labels(axes)]
    assert sum(distance > max(radii) / pixels + 6.01 for distance in near) <= len(lines)


def test_unknown_attacks_are_adversaries() -> None:
    """A summary from before attacks were kept is drawn all the same."""
    rounds, summary = history(5, 2)
    summary.attacks = []
    entries = [text.get_text() for text in legend(figures.reputations(rounds, summary)).get_texts()]
    assert entries == ["honest", "adversary", "removed: 3, 1 of them honest"]


def test_a_curve_ends_where_its_participant_is_removed() -> None:
    """With a cross there and the round in its label."""
    (axes,) = pictures(5, 2)["reputation"].axes
    ends = {text.get_text(): text.xy for text in labels(axes)}  # type: ignore[attr-defined]
    assert ends["5, removed in 4"] == (4, 0)
    assert ends["1, removed in 12"] == (12, 0)
    assert ends["0"][0] == 12
    (crosses,) = (line for line in axes.lines if line.get_marker() == "x" and line.get_linestyle() == "None")
    assert sorted(np.asarray(crosses.get_xdata()).tolist()) == [4, 5, 12]


def test_of_many_there_are_quantiles() -> None:
    """The median line is that of those who are still there."""
    rounds, summary = history(50, 0)
    (axes,) = figures.reputations(rounds, summary).axes
    (median,) = (line for line in axes.lines if line.get_linewidth() == 2)
    values = np.array([entry.measures["reputation"] for entry in rounds])
    assert median.get_ydata() == pytest.approx(np.median(values, axis=1))
    assert not labels(axes)


@pytest.mark.parametrize("size", [(1, 0), (5, 1), (50, 20)], ids=str)
def test_one_round_and_gaps(size: tuple[int, int]) -> None:
    """A run of one round is drawn, and one whose first round has no reputations, without a warning."""
    assert pictures(*size, rounds=1).keys() == {"reputation", "accuracy", "fairness"}
    assert pictures(*size, rounds=3, gap=True).keys() == {"reputation", "accuracy", "fairness"}


@pytest.mark.parametrize("size", [(5, 1), (50, 0)], ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_reputations_that_are_not_finite(size: tuple[int, int], value: float) -> None:
    """Of one participant or of all: at the very end a run of a server of one's own was a traceback."""
    for who in (slice(1), slice(None)):
        rounds, summary = history(*size)
        summary.removed_in_round = [None] * sum(size)
        for entry in rounds:
            entry.measures["reputation"][who] = [value] * len(entry.measures["reputation"][who])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figures.reputations(rounds, summary).draw_without_rendering()


@pytest.mark.parametrize("watched", ["validation", "test", None])
def test_accuracies_say_of_which_examples(watched: str | None) -> None:
    """Those that are watched, which a run of an earlier release did not keep."""
    rounds, summary = history(5, 1)
    summary.watched = watched
    (axes,) = figures.accuracies(rounds, summary).axes
    assert axes.get_ylabel() == ("accuracy" if watched is None else f"accuracy on {watched} examples")


def test_every_picture_is_there_for_screen_and_paper(tmp_path: Path) -> None:
    """A PNG that opens and, beside it, a PDF of one page whose fonts a journal takes."""
    drawn = figures.draw(tmp_path, *history(5, 1))
    assert [path.name for path in drawn] == ["reputation.png", "accuracy.png", "fairness.png"]
    for path in drawn:
        assert matplotlib.image.imread(path).shape[:2] == (750, 1200)
        pdf = path.with_suffix(".pdf").read_bytes()
        assert pdf.startswith(b"%PDF")
        assert b"/Type3" not in pdf.replace(b" ", b"")
        assert b"/TrueType" in pdf or b"/CIDFontType2" in pdf


def test_labels_are_pushed_apart_no_further_than_they_must() -> None:
    """In their order, inside, a gap between each two; what has room stays where it is."""
    draw = np.random.default_rng(0)
    for _ in range(100):
        wished = draw.beta(0.5, 0.5, draw.integers(1, 20))
        heights = apart(wished, 0.05)
        order = np.argsort(wished)
        assert (np.diff(heights[order]) > 0.05 - 1e-9).all()
        assert heights.min() >= -1e-9
        assert heights.max() <= 1 + 1e-9
    assert apart(np.array([0.9, 0.1, 0.5]), 0.1) == pytest.approx([0.9, 0.1, 0.5])
    assert apart(np.array([0.5, 0.5]), 0.1) == pytest.approx([0.45, 0.55])
    assert apart(np.zeros(3), 0.5) == pytest.approx([0, 0.5, 1])


def test_reputations_are_called_weights_of_servers_without_them() -> None:
    """Of one participant that is left both are 1 in the end, under RFFL too."""
    entries, summary = history(5, 1)
    for entry in entries[-2:]:
        entry.measures["weight"] = list(entry.measures["reputation"])
    assert figures.reputations(entries, summary).axes[0].get_ylabel() == "reputation"
    for entry in entries:
        entry.measures["weight"] = list(entry.measures["reputation"])
    assert figures.reputations(entries, summary).axes[0].get_ylabel() == "weight"
