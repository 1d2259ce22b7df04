"""``rffl paper``: the paper's tables and figures, published beside measured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rffl_pl.cli.session import Machine, Session
from rffl_pl.cli.study import check_alone, packaged, writing_to
from rffl_pl.cli.words import Words, expanded
from rffl_pl.errors import UserError, nearest
from rffl_pl.paper import FIGURES, TABLES, places_of, published
from rffl_pl.paper.measured import Kept
from rffl_pl.paper.tables import SETTINGS, PaperTable
from rffl_pl.studies import Study
from rffl_pl.studies.study import Place, RunWords, checked_seeds
from rffl_pl.studies.written import FORMATS

_OUT = Path("paper")
VERBS = ("list", "table", "figure", "all")


def parser() -> Words:
    """The command's options."""
    made = Words(
        "rffl paper",
        "The tables and figures of Xu & Lyu 2021 beside what is measured here: `list` names them, `table NAME` prints "
        "one, `figure NAME` draws one, `all` writes every one into a folder.",
    )
    made.add_argument("verb", choices=VERBS)
    made.add_argument("name", nargs="?", help="of a table or figure")
    made.add_argument(
        "--results", type=expanded, default=Path("results"), help="folder of what was measured: %(default)s"
    )
    made.add_argument("--run", action="store_true", help="run what has no result there yet, and keep it there")
    made.add_argument("--dry-run", action="store_true", help="list what --run would run, and about how long that takes")
    made.add_cells()
    made.add_argument("--format", choices=FORMATS, help="of a table: md")
    made.add_argument("--out", type=expanded, help=f"folder of pictures and of `all`: {_OUT}")
    return made


def main(args: Sequence[str], run: RunWords) -> int:
    """Answer ``rffl paper`` with these words.

    Args:
        args: The words behind ``paper``.
        run: Runs the words of another command in this process.

    Returns:
        The exit code: 1 if a cell failed, 130 if the user interrupted.

    Raises:
        UserError: If the words say nothing that can be done.
    """
    check_alone("paper")
    given = parser().read(args)
    shown = _shown(given)
    _check_cells(given)
    if given.verb == "list":
        print(_overview())
        return 0
    if given.results.is_file():
        raise UserError(f"Expected --results to be a folder, but {given.results} is a file; give its folder.")
    kept = Kept(given.results, _studies(given.reduced))
    if not given.run and not given.results.is_dir():
        print(
            f"There is no {given.results} here. What was measured with this package lies in the folder results of its "
            "repository; give --results, or --run to measure it here.",
            file=sys.stderr,
        )
    code = 0
    if given.run or given.dry_run:
        code = _run(given, kept, shown, run)
    if given.dry_run or code == 130:
        return code
    if given.verb == "figure":
        _check_measured(given, kept)
    _draw(given, kept, shown)
    for sentence in dict.fromkeys(kept.left_out):  # of the results and of their rounds the same
        print(sentence, file=sys.stderr)
    return code


def _shown(given: argparse.Namespace) -> list[str]:
    """The tables and figures that are asked for."""
    if given.verb in ("list", "all"):
        if given.name is not None:
            raise UserError(f"Expected nothing behind rffl paper {given.verb}, but got {given.name}.")
        return [*TABLES, *FIGURES]
    known = list(TABLES if given.verb == "table" else FIGURES)
    if given.name not in known:
        near = nearest(given.name or "", known) or "."
        raise UserError(
            f"Expected a {given.verb} of the paper, but got {given.name or 'none'}{near} `rffl paper list` names all."
        )
    return [given.name]


def _check_cells(given: argparse.Namespace) -> None:
    """Refuse what says how to run cells where none is run: tables and figures show all that there is."""
    if given.verb == "list" and (given.run or given.dry_run):
        raise UserError("Expected --run and --dry-run with table, figure or all, but rffl paper list runs nothing.")
    for option in ("seeds", "rounds", "jobs", "devices", "pack"):
        if getattr(given, option) is not None and not given.run and not given.dry_run:
            raise UserError(f"Expected --{option} to go with --run or --dry-run, but there is neither.")
    for option, verbs in {"format": ("table",), "out": ("figure", "all")}.items():
        if getattr(given, option) is not None and given.verb not in verbs:
            raise UserError(f"Expected --{option} to go with {' or '.join(verbs)}, but got rffl paper {given.verb}.")


def _check_measured(given: argparse.Namespace, kept: Kept) -> None:
    """Refuse to draw what nothing is measured of, in place of a picture that is perhaps there."""
    if not _is_measured(given.name, kept):
        other = "without --reduced" if given.reduced else "with --reduced, for the small schedule"
        remedy = "mend what the lines above say of its cells" if given.run else f"try {other}, or --run to measure them"
        raise UserError(f"Expected results of {given.name} in {given.results}, but there are none; {remedy}.")


def _is_measured(figure: str, kept: Kept) -> bool:
    return any(kept.at(*place) or kept.curves(*place) for place in places_of(figure))


def _overview() -> str:
    width = max(map(len, [*TABLES, *FIGURES]))
    kinds = {"tables": TABLES, "figures": FIGURES}
    return "\n\n".join(
        "\n".join([f"{kind}:", *(f"  {name:{width}}  {title}" for name, title in known.items())])
        for kind, known in kinds.items()
    )


def _studies(reduced: bool) -> dict[str, Study]:
    files = {Path(name).stem: path for name, path in packaged().items() if name.startswith("studies/paper/")}
    studies = {name: Study.read(path) for name, path in files.items()}
    return {name: study.small() for name, study in studies.items()} if reduced else studies


def _run(given: argparse.Namespace, kept: Kept, shown: Sequence[str], run: RunWords) -> int:
    """Run or list the cells behind what is shown; returns the worst exit code."""
    from rffl_pl.strategy import leave_process_group

    machine = Machine.given(given.root / "cells", run, given.jobs, given.devices, given.pack)
    if given.run:
        machine.warm()
    worst = 0
    try:
        for name, only in _needed(shown).items():
            study = kept.studies[name]
            if given.seeds:
                study = replace(study, seeds=checked_seeds(given.seeds))
            session = Session.of(study, only, given.rounds, machine, kept.file(name), any_code=True)
            worst = max(worst, session.list() if given.dry_run else session.play())
            if worst == 130:
                break
    finally:
        leave_process_group()
    return worst


def _needed(shown: Sequence[str]) -> dict[str, dict[str, set[str]]]:
    """The labels on the axes of every study that tables and figures show."""
    places: list[tuple[str, Place]] = []
    for name in shown:
        if name in TABLES:
            places += [(entry.study, entry.place) for entry in published(name) if name != SETTINGS]
        else:
            places += places_of(name)
    needed: dict[str, dict[str, set[str]]] = {}
    for study, place in places:
        for axis, label in place.items():
            needed.setdefault(study, {}).setdefault(axis, set()).add(label)
    return needed


def _draw(given: argparse.Namespace, kept: Kept, shown: Sequence[str]) -> None:
    if given.verb == "table":
        print(_table(shown[0], kept).written(given.format or "md"))
        return
    from rffl_pl.paper.figures import draw  # matplotlib is imported by what needs it alone
    from rffl_pl.studies.figures import save

    out, behind = given.out or _OUT, "-reduced" if given.reduced else ""
    drawn = [name for name in shown if name in FIGURES and _is_measured(name, kept)]
    with writing_to(out):
        written = [path for name in drawn for path in save(draw(name, kept), out, f"{name}{behind}")]
        for name in shown:
            if name in TABLES:
                table = _table(name, kept)
                for how in FORMATS:
                    path = out / f"{name}{behind}.{how}"
                    path.write_text(table.written(how) + "\n", encoding="utf-8")
                    written.append(path)
    print("\n".join(map(str, written)))
    if lacking := [name for name in shown if name in FIGURES and name not in drawn]:
        print(f"left out, since nothing is measured of them: {', '.join(lacking)}", file=sys.stderr)


def _table(name: str, kept: Kept) -> PaperTable:
    return PaperTable(name, kept, _options(kept) if name == SETTINGS else {})


def _options(kept: Kept) -> dict[tuple[str, str], Any]:
    """What the studies configure of the options in `SETTINGS`, by study and name."""
    from rffl_pl.cli.resolve import Resolver

    resolve = Resolver()
    found: dict[tuple[str, str], Any] = {}
    by_study = {entry.study: entry.place for entry in published(SETTINGS)}
    for name, where in by_study.items():
        study = kept.studies[name]
        place = next(p for p in study.places() if p["server"] == "RFFL" and where.items() <= p.items())
        settings = resolve(study.words(place))
        for entry in published(SETTINGS):
            if entry.study == name:
                found[name, entry.measure] = _option(settings, entry.measure)
    return found


def _option(settings: dict[str, Any], path: str) -> Any:
    """``data.batch_size``, be it an argument of the class or of the group."""
    value: Any = settings
    for name in path.split("."):
        value = value[name] if name in value else value["init_args"][name]
    return value
