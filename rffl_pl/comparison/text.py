"""Runs beside each other on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from rffl_pl.comparison.reading import Result, names
from rffl_pl.comparison.settings import SEEDS, differing, ordered
from rffl_pl.runs import Summary
from rffl_pl.runs.shown import percent
from rffl_pl.studies.estimate import interval

_RESULTS = ("mean", "maximum", "fairness", "gain, points", "adversaries removed", "honest removed", "taken, points")


_OF_SEEDS: dict[str, tuple[Callable[[Summary], float | None], float, int]] = {
    "mean, %": (lambda summary: summary.mean, 100, 1),
    "maximum, %": (lambda summary: summary.maximum, 100, 1),
    "fairness": (lambda summary: summary.fairness, 1, 3),
    "gain, points": (lambda summary: summary.gain, 100, 1),
    "taken, points": (lambda summary: summary.taken, 100, 1),
}
"""What is shown of runs that differ in the seed alone, with the factor and the digits of its numbers."""


def table(results: Sequence[Result], width: int | None = None) -> str:
    """A row per run: its folder, the settings that differ, and the results.

    Below it, where runs differ in the seed alone, the means of these with the 95 % interval of Student's t.

    Args:
        results: The runs.
        width: Of the terminal: what does not fit into its lines is left out, and said to be; None for all.
    """
    differ = ordered(differing([result.settings for result in results]))
    runs = ["run", *names(results)]
    settings = {name: [name, *(result.settings.get(name, "-") for result in results)] for name in differ}
    head = ["rounds done" if "rounds" in differ else "rounds", *_RESULTS]
    came = [[*column] for column in zip(head, *([result.rounds, *_values(result)] for result in results), strict=True)]
    shown, left_out = differ, list[str]()
    if width is not None and _width([runs, *settings.values(), *came]) > width:
        known = [column for column in came if {*column[1:]} != {"-"}]
        shown, came = _fitting(runs, settings, known, width)
        left_out = [column[0] for column in known if column not in came] + [one for one in differ if one not in shown]
    lines = _lines([runs, *(settings[name] for name in shown), *came])
    return "\n".join([*lines, *_left_out(left_out), *_same(results, differ), *_over_seeds(results, differ, shown)])


def _fitting(
    runs: list[str], settings: Mapping[str, list[str]], came: list[list[str]], width: int
) -> tuple[list[str], list[list[str]]]:
    """The settings and the results for which there is room: what tells most runs apart, the results, other settings."""

    def apart(name: str) -> int:
        often = Counter(value for value in settings[name][1:] if value != "-")
        return often.total() - max(often.values(), default=0)

    ranked = sorted(settings, key=apart, reverse=True)
    kept = ranked[:1]
    shown = [runs, *(settings[name] for name in kept)]
    results = [column for k, column in enumerate(came) if k < 2 or _width([*shown, *came[: k + 1]]) <= width]
    for name in ranked[1:]:
        if _width([*shown, settings[name], *results]) <= width:
            shown.append(settings[name])
            kept.append(name)
    return [name for name in settings if name in kept], results


def _left_out(names: Sequence[str]) -> list[str]:
    """What is said of columns that have no room."""
    if not names:
        return []
    some = f"{'; '.join(names[:3])}{' and so on' if len(names) > 3 else ''}"
    several = "1 more column has" if len(names) == 1 else f"{len(names)} more columns have"
    return [f"{several} no room here ({some}); `rffl compare ... | less -S` shows all, as the page of --out does"]


def _width(columns: Sequence[Sequence[str]]) -> int:
    """Of a line of columns, which are two spaces apart."""
    return sum(max(map(len, column)) + 2 for column in columns) - 2


def _lines(columns: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in columns]
    head, *rows = zip(*columns, strict=True)
    return [_line(cells, widths) for cells in (head, ["-" * width for width in widths], *rows)]


def _over_seeds(results: Sequence[Result], differ: Sequence[str], shown: Sequence[str]) -> list[str]:
    """A row per setting, where one has several seeds; runs of the same seed are no further evidence."""
    apart = [name for name in differ if name not in SEEDS]
    groups: dict[tuple[str, ...], dict[str, list[Summary]]] = {}
    for result in results:
        seed = next((result.settings[name] for name in SEEDS if name in result.settings), None)
        if result.summary is not None and seed is not None:
            key = tuple(result.settings.get(name, "-") for name in apart)
            groups.setdefault(key, {}).setdefault(seed, []).append(result.summary)
    if not any(len(runs) > 1 for runs in groups.values()):
        return []
    rows = [[*key, str(len(runs)), *_means(list(runs.values()))] for key, runs in groups.items()]
    columns = [*zip([*apart, "seeds", *_OF_SEEDS], *rows, strict=True)]
    kept = [column for column in columns if column[0] in shown or column[0] not in apart]
    return ["", "over seeds, ± 95 % interval of Student's t:", *_lines(kept)]


def _means(by_seed: Sequence[Sequence[Summary]]) -> list[str]:
    """Each of `_OF_SEEDS` as ``91.2 ± 0.8``, of some of the seeds with their number; of one there is no interval."""
    texts = []
    for of, factor, digits in _OF_SEEDS.values():
        known = ([value for run in runs if (value := of(run)) is not None] for runs in by_seed)
        values = [factor * fmean(several) for several in known if several]
        half = interval(values) if values else None
        text = f"{fmean(values):z.{digits}f}" if values else "-"
        around = "" if half is None else f" ± {half:.{digits}f}"
        fewer = f" (n={len(values)})" if 0 < len(values) < len(by_seed) else ""
        texts.append(f"{text}{around}{fewer}")
    return texts


def _same(results: Sequence[Result], differ: Sequence[str]) -> list[str]:
    """What is said of settings that no column shows."""
    unknown = [called for called, result in zip(names(results), results, strict=True) if not result.settings]
    if unknown:
        return [f"settings of {', '.join(unknown)} are not known: there is no config.yaml"]
    return [] if differ or len(results) < 2 else ["all options are the same"]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = cells
    padded = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
    return "  ".join([first.ljust(widths[0]), *padded])


def _values(result: Result) -> list[str]:
    summary = result.summary
    if summary is None:
        return ["-"] * len(_RESULTS)
    gone = [number is not None for number in summary.removed_in_round]
    adversaries = gone[summary.honest :]
    return [
        percent(summary.mean),
        percent(summary.maximum),
        "-" if summary.fairness is None else f"{summary.fairness:.3f}",
        _points(summary.gain),
        f"{sum(adversaries)} of {len(adversaries)}" if adversaries else "-",
        f"{sum(gone[: summary.honest])} of {summary.honest}",
        _points(summary.taken),
    ]


def _points(difference: float | None) -> str:
    return "-" if difference is None else f"{100 * difference:+z.1f}"
