"""Runs beside each other as one file that opens in a browser, without network."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from rffl_pl import __version__
from rffl_pl.comparison import vega
from rffl_pl.comparison.curves import MOST_LINES, points_for, short, thinned
from rffl_pl.comparison.measures import Measure, check_common, measured, measures_of
from rffl_pl.comparison.reading import Result, names
from rffl_pl.comparison.rounds import Played, played
from rffl_pl.comparison.settings import SEEDS, about, axes_about, called, differing, ordered, plain
from rffl_pl.errors import UserError
from rffl_pl.files import replaced
from rffl_pl.runs import RunFolder, Summary
from rffl_pl.studies.estimate import student_t

Content = dict[str, Any]
SCRIPTS = ("shown", "tables", "worst", "charts", "page")
MEASURE_DIGITS = 8  # intervals are computed from these


def check_target(target: Path) -> None:
    """Refuse a page that could not be written.

    Raises:
        UserError: If it is no .html file, or a folder.
    """
    if target.is_dir():
        raise UserError(f"Expected --out to be an .html file, but {target} is a folder; give a file in it.")
    if target.suffix not in (".html", ".htm"):
        name = target.with_suffix(".html").name
        raise UserError(f"Expected --out to be an .html file, but got {target}; give --out {name}.")


def write(results: Sequence[Result], left_out: Sequence[str], target: Path) -> dict[Path, str]:
    """Write the page of finished runs, whole or not at all.

    Args:
        results: The runs, at least one.
        left_out: What the page says of others.
        target: The file; one that is there is replaced.

    Returns:
        By folder why a run is not on the page whose rounds cannot be read.

    Raises:
        UserError: If there is no writing, a run has no measure in common with the others, or the rounds of none can be
            read.
    """
    check_target(target)
    check_common(results)
    shown, damaged = played(results)
    known = content(shown, [*left_out, *damaged.values()])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replaced(target) as partial:
            partial.touch()  # before the work
            partial.write_text(_page(known), encoding="utf-8", errors="replace")  # of folders whose names are no text
    except OSError as error:
        raise UserError(f"Expected --out to be a file that can be written, but {error.strerror}: {target}.") from error
    return damaged


def content(shown: Sequence[Played], left_out: Sequence[str] = ()) -> Content:
    """All that the page knows, as it stands in it.

    Args:
        shown: Runs, at least one.
        left_out: What it says of others.
    """
    results = [one.result for one in shown]
    every = [result.settings for result in results]
    differ = ordered(differing(every))
    of_server = _of_server(results, [name for name in differ if name not in SEEDS])
    measures = measures_of(one.summary for one in shown)
    points = points_for([len(one.summary.examples) for one in shown])
    longest = max(one.summary.rounds for one in shown)
    named = zip(shown, names(results), strict=True)
    runs = [
        _run(one, name, differ, of_server, measures) | {"curves": thinned(one.curves, points, longest)}
        for one, name in named
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(run["called"] for run in runs), 1)}
    known = [name for name in measures if any(run["measures"][name] is not None for run in runs)]
    return {
        "title": _title(results),
        "made": f"{datetime.now():%Y-%m-%d %H:%M}",
        "version": __version__,
        "left_out": list(left_out),
        "settings": [{"option": name, "name": plain(name)} for name in differ],
        "study": results[0].study is not None,  # of all, or of none
        "made_with": _made_with(results),
        "untold": any(result.own is None for result in results),
        "unknown": [run["name"] for run, settings in zip(runs, every, strict=True) if not settings],
        "measures": [_described(name, measures[name]) for name in known],
        "t": _quantiles(len(runs)),
        "points": points,
        "lines": MOST_LINES,
        "groups": [
            {"number": number, "name": key[0] or (runs[0]["name"] if len(runs) == 1 else "all runs")}
            for key, number in numbers.items()
        ],
        "runs": [
            run
            | {
                "called": numbers[run["called"]],
                "measures": [_number(run["measures"][name]) for name in known],
            }
            for run in runs
        ],
    }


_MADE_WITH = ("rffl_pl", "torch", "python", "commit", "machine")


def _made_with(results: Sequence[Result]) -> dict[str, list[str]]:
    """What runs were computed with, where it was not the same for all that tell it."""
    starts = [start for result in results for start in RunFolder(result.path).starts()]
    found = {name: sorted({str(start.get(name) or "") for start in starts} - {""}) for name in _MADE_WITH}
    return {name: values for name, values in found.items() if len(values) > 1}


def _run(
    one: Played, own: str, differ: Sequence[str], of_server: Sequence[str], measures: Mapping[str, Measure]
) -> Content:
    result, summary, settings = one.result, one.summary, one.result.settings
    apart = [name for name in differ if name not in SEEDS]
    name = called(settings, apart) if settings else f"{own} (settings unknown)"
    return {
        "name": own,
        "date": f"{result.moment:%Y-%m-%d %H:%M}" if result.moment else "",
        "called": (name, tuple(settings.get(option) for option in apart)),
        "settings": [settings.get(option) for option in differ],
        "seed": next((settings[seed] for seed in SEEDS if seed in settings), None),
        "server": _server(result, of_server),
        "attack": _attack(settings, apart, summary),
        "rounds": summary.rounds,
        "watched": summary.watched or result.options.get("--data.watch"),
        "honest": summary.honest,
        "measures": measured(measures, summary, one.totals),
        "participants": _participants(summary),
    }


def _number(value: float | None) -> float | str | None:
    """A value of a measure; JSON has no infinity."""
    return "∞" if value == math.inf else short(value, MEASURE_DIGITS)


def _of_server(results: Sequence[Result], apart: Sequence[str]) -> list[str]:
    """What differs of servers: their options, or the axes of a study that change these, and how long they ran."""
    every = [(result.settings, result.options) for result in results]
    found = {*about(apart, "--server"), *(axes_about(every, apart, "--server") if results[0].study else ())}
    return [name for name in apart if name in found or name == "rounds"]


def _server(result: Result, options: Sequence[str]) -> str:
    """The server with its options that differ, or what a study calls it."""
    named = called(result.settings, options)
    return named or result.options.get("--server", "server unknown")


def _attack(settings: Mapping[str, str], apart: Sequence[str], summary: Summary) -> str:
    """What adversaries do; nothing without any."""
    kinds = " + ".join(dict.fromkeys(kind for kind in summary.attacks if kind))
    if len(summary.examples) == summary.honest:
        return ""
    studied = next((settings[axis] for axis in ("attack", "adversary") if axis in settings), None)
    more = [name for name in apart if name.startswith(("--adversaries", "--federation.adversaries"))]
    numbers = [name for name in more if not settings.get(name, "").isidentifier()]
    return studied or " · ".join(filter(None, [kinds or "adversaries", called(settings, numbers)]))


def _participants(summary: Summary) -> Content:
    """A list per column of the table of participants."""
    return {
        "examples": summary.examples,
        "standalone": [short(value) for value in summary.standalone],
        "final": [short(value) for value in summary.final],
        "removed": summary.removed_in_round,
        "attack": summary.attacks[summary.honest :],
    }


def _described(key: str, measure: Measure) -> Content:
    described = asdict(measure)
    described.pop("of")
    return {"key": key, **described}


def _quantiles(most: int) -> list[float]:
    """Student's t for a 95 % interval of n values; n - 2 is the place in the list."""
    return [round(student_t(n), 5) for n in range(2, most + 1)]


def _page(content: Content) -> str:
    """The template with styles, scripts, the library and the content in it."""
    data = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {
        "css": _file("page.css"),
        "scripts": "\n".join(_file(f"{name}.js") for name in SCRIPTS),
        "library": vega.bundle(),
        "data": data.replace("<", "\\u003c"),  # last: it may hold whatever a user calls things
    }
    page = _file("page.html").replace("{{title}}", html.escape(content["title"]))
    for name, text in parts.items():
        page = page.replace(f"{{{{{name}}}}}", text)
    return page


def _title(results: Sequence[Result]) -> str:
    title = f"{len(results)} runs compared" if len(results) > 1 else "One run"
    study = results[0].study  # of all, or of none
    return f"{study}: {title}" if study else title


def _file(name: str) -> str:
    return resources.files("rffl_pl.comparison").joinpath(name).read_text(encoding="utf-8")
