"""The worst case over an axis, as over the attacks: of every seed its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from rffl_pl.errors import UserError
from rffl_pl.studies.derived import Derived, and_more, by_label
from rffl_pl.studies.results import PLAYED, Row
from rffl_pl.studies.study import Study, place_text
from rffl_pl.studies.tables import WORST, measured

_LOWER = (
    "accuracy_spread", "gain_spread", "honest_removed", "attack_success", "backdoor_success", "adversary_final",
    "adversary_gain", "adversary_over_initial", "taken", "taken_most", "taken_share", "first_removal", "last_removal",
    "loss", "bytes_up", "bytes_down",
)  # fmt: skip
"""Measures of which less is better; of all others, users' own too, more is."""


def worst_over(study: Study, rows: Sequence[Row], axis: str, measure: str) -> Derived:
    """Of each seed the worst over an axis, as results of a study that lacks it.

    Which label is the worst is known afterwards alone: an interval of that label's mean would be too narrow, and the
    mean too good.

    Args:
        study: The study.
        rows: Its results.
        axis: The axis; labels that a place leaves out, or of which no run has a value, do not count.
        measure: The measure; of one that participants have, the mean over the honest.

    Raises:
        UserError: If there is no such axis or measure, or no seed has a value at all of the axis.
    """
    if axis not in study.axes:
        raise UserError(f"Expected --worst to name an axis of {study.name} ({', '.join(study.axes)}), but got {axis}.")
    others = {name: labels for name, labels in study.axes.items() if name != axis}
    columns = [*others, "seed", "rounds"]
    valued = measured(rows, measure)
    there = {row[axis] for row in valued}
    pick = max if measure in _LOWER else min
    made, partial = [], []
    for where, found in by_label(valued, columns, axis).items():
        place = dict(zip(columns, where, strict=True))
        if not _wanted(study, place, axis, there) <= found.keys():
            partial.append(place_text(place))
            continue
        value = pick(fmean(values) for values in found.values())
        about = {"measure": f"{measure}{WORST}{axis}", "value": repr(value), "participant": "", "role": "all"}
        made.append(place | about | {"cell": _cell(place, columns)})
    if valued and not made:
        raise UserError(
            f"Expected results of {study.name} with a seed at all of {axis}, {', '.join(sorted(there))}, for --worst, "
            f"but there are none; run the study first, or narrow it by --only {axis}=LABEL."
        )
    whole = {row["cell"] for row in made}
    played = [row | {"cell": _cell(row, columns)} for row in rows if row["measure"] == PLAYED]
    made += [row for row in played if row["cell"] in whole]
    lacking = ", without a value at all labels of --worst."
    left_out = f"Left out: {partial[0]}{and_more(partial)}{lacking}" if partial else None
    return Derived(replace(study, axes=others, exclude=[]), made, left_out)


def _wanted(study: Study, place: Mapping[str, str], axis: str, there: set[str]) -> set[str]:
    """The labels of the axis that are run at a place, of those that have a value anywhere."""
    here = {name: place[name] for name in study.axes if name != axis}
    return {label for label in there if not study.excludes(here | {axis: label})}


def _cell(row: Mapping[str, str], columns: Sequence[str]) -> str:
    """What stands for a cell where several are one."""
    return place_text({column: row[column] for column in columns})
