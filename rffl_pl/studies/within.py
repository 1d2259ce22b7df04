"""Axes that lie within a run: its participants and its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rffl_pl.errors import UserError
from rffl_pl.studies.results import PLAYED, Row
from rffl_pl.studies.study import Study

PARTICIPANT, ROUND = "participant", "round"
WITHIN = (PARTICIPANT, ROUND)
"""The axes within a run; no study has axes of its own with these names, since the results have such columns."""
ADVERSARY = ", adversary"
"""Follows the number of a participant that is an adversary."""


def widened(study: Study, rows: Sequence[Row], axes: Sequence[str], measure: str) -> tuple[Study, list[Row]]:
    """The study and its results with those of `WITHIN` as axes that ``axes`` names and the study lacks.

    Args:
        study: The study.
        rows: Its results; with the axis of the rounds, those of every round.
        axes: Names of axes, the study's or others.
        measure: What is to be shown; of participants as an axis, their own values, adversaries' too.

    Raises:
        UserError: If participants are to be an axis of a measure that they do not have one by one.
    """
    new = [axis for axis in WITHIN if axis in axes and axis not in study.axes]
    found = list(rows)
    if PARTICIPANT in new:
        known = {row["measure"] for row in rows if row["participant"]}
        if measure in {row["measure"] for row in rows} - known:
            raise UserError(
                f"Expected --measure to be one that participants have ({', '.join(sorted(known))}), but got {measure}; "
                f"leave out the axis {PARTICIPANT}."
            )
        found = [_of_one(row) for row in rows if row["participant"] or row["measure"] == PLAYED]
    there = {axis: {row[axis] for row in found if row.get(axis)} for axis in new}
    inside: dict[str, dict[str, list[str]]] = {
        axis: {label: [] for label in sorted(labels, key=_number)} for axis, labels in there.items()
    }
    return replace(study, axes=study.axes | inside), found


def _of_one(row: Row) -> Row:
    """A row whose participant is a label, and whose value stands for itself."""
    return row | {PARTICIPANT: row["participant"] + (ADVERSARY if row["role"] == "adversary" else ""), "role": "all"}


def _number(label: str) -> tuple[int, str]:
    return int(label.removesuffix(ADVERSARY)), label
