"""Tables of a study's results: which mean and interval stands where, and what the caption says."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from rffl_pl.errors import UserError, nearest
from rffl_pl.studies.estimate import Estimate, mean_difference, mean_of, value_of
from rffl_pl.studies.results import PLAYED, Row, which_of
from rffl_pl.studies.study import Place, Study, place_text
from rffl_pl.studies.within import ROUND, WITHIN

_SHARES = (
    "accuracy", "accuracy_mean", "accuracy_max", "accuracy_min", "accuracy_worst_tenth", "accuracy_best_tenth",
    "accuracy_validation", "standalone", "initial", "quota", "precision", "recall",
    "target_accuracy", "attack_success", "backdoor_success", "adversary_final", "adversary_standalone", "taken_share",
)  # fmt: skip
"""Measures that are shown in %; all others, users' own metrics too, are shown as they are."""

_DIFFERENCES = (
    "accuracy_spread", "gain", "gain_spread", "adversary_gain", "adversary_over_initial", "taken", "taken_most",
    "smallest_gain",
)  # fmt: skip
"""Differences of shares, shown in percentage points, as are contributions to a share and one column less another."""

_COUNTED = ("honest_removed", "first_removal", "last_removal", "removed_in_round")
"""Counts of participants or rounds: means are shown to a tenth, and a value that all seeds share as it is."""

_WATCHED = ("accuracy", "loss", "target_accuracy", "attack_success", "backdoor_success")
"""Measures of test examples after the last round, and in every round of those that are watched."""

OF = " of "
"""Between what participants add and the measure that they add it to."""

WORST = ", worst "
"""Between a measure and the axis of which the worst is taken."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Estimates by label of the rows and of the columns; where there is no result there is no entry."""

    measure: str
    rest: Place
    rows: Sequence[str]
    columns: Sequence[str]
    entries: Mapping[tuple[str, str], Estimate]
    paired: bool = False
    whose: str = ""
    """Of whom it is the mean: `` of the honest``; nothing of what is measured of all."""
    early: bool = False
    """Whether some of the runs ended before their last round."""
    by_round: bool = False
    """Whether rounds are its rows or columns."""
    scored: bool = False
    """Whether final models have the measure too, by examples: it is of one's own, or of an attack."""
    without: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How many seeds have results, but none of this measure."""
    unpaired: int = 0
    """Of differences: how many values were left out whose seed the other column lacks."""
    tuned: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The chosen label of each entry, on the axis that is tuned."""
    tuning: str = ""
    """In words the axis that is tuned, by which measure, and all labels that were chosen."""

    @property
    def unit(self) -> str | None:
        """``%`` of a share, ``points`` of a difference of shares, None of whatever else is measured."""
        _, added, measure = self.measure.partition(WORST)[0].rpartition(OF)
        if measure in _DIFFERENCES or (measure in _SHARES and (added or self.paired)):
            return "points"
        return "%" if measure in _SHARES else None

    @property
    def scale(self) -> float:
        """What estimates are multiplied by for people: 100 where there is a unit."""
        return 100.0 if self.unit else 1.0

    def title(self) -> str:
        """What is shown, and in which unit: ``accuracy of the honest in %``."""
        return f"{self.measure}{self.whose}" + (f" in {self.unit}" if self.unit else "")

    def caption(self) -> str:
        """What is shown: measure, interval, number of seeds and rounds, and at which place."""
        return caption([self]) + (f"; {place_text(self.rest)}" if self.rest else "") + "."

    @cached_property
    def _most(self) -> int:
        """How many seeds the entry has that has most."""
        return max(entry.seeds for entry in self.entries.values())

    @property
    def _counted(self) -> bool:
        return self.measure.partition(WORST)[0] in _COUNTED

    def agreed(self, entry: Estimate) -> bool:
        """Whether it is a whole number that all of several seeds have counted."""
        return self._counted and entry.half == 0 and entry.mean % 1 == 0

    def cell(self, row: str, column: str) -> str:
        """An entry for people; it says how many seeds it has if others have more."""
        entry = self.entries.get((row, column))
        if entry is None:
            return "no value" if self.without.get((row, column)) else "-"
        fewer = entry.seeds < self._most
        sign = "+" if self.paired else ""
        if self.agreed(entry):
            text = f"{entry.mean:{sign}z.0f}"
        else:
            text = entry.text(self.scale, 1 if self.unit or self._counted else 3, sign)
        return text + (f" (n={entry.seeds})" if fewer else "")


def caption(shown: Sequence[Table], *, effects: bool = True) -> str:
    """What tables show that differ in their place alone: measure, interval, number of seeds and rounds.

    Args:
        shown: At least one table.
        effects: Whether they show the sizes of differences.
    """
    first, entries = shown[0], [entry for table in shown for entry in table.entries.values()]
    seeds = reach(entry.seeds for entry in entries)
    single = seeds == "1"
    mean = "mean difference of the same seeds" if first.paired else "mean"
    interval = "" if single else f"{mean} ± 95 % interval of Student's t over "
    over = f"{seeds} seed, no interval" if single else f"{seeds} seeds"
    rounds = ("at most " if any(table.early for table in shown) else "") + reach(entry.rounds for entry in entries)
    when = "in every round of" if first.by_round else "after the last round,"
    elsewhere = first.by_round and (first.scored or first.measure in _WATCHED)
    watched = ", of held-out examples unless --data.watch is test" if elsewhere else ""
    with_effects = effects and first.paired and not single
    effect = "; d_z is that mean over the differences' standard deviation" if with_effects else ""
    infinite = "; ∞ where the smallest honest participant gains nothing and something is taken"
    unbounded = infinite if any(entry.infinite for entry in entries) else ""
    alone = "; a count alone is that of every seed" if any(map(first.agreed, entries)) else ""
    return f"{first.title()}: {interval}{over}, {when} {rounds}{watched}{effect}{unbounded}{alone}{_tuning(shown)}"


def _tuning(shown: Sequence[Table]) -> str:
    """How labels were chosen, and which: of each table, where they differ."""
    places = {table.tuning: place_text(table.rest) for table in shown if table.tuning}
    return "".join(f"; {tuning}" + (f" ({place})" if len(places) > 1 else "") for tuning, place in places.items())


def tables(
    study: Study,
    results: Sequence[Row],
    axes: Sequence[str],
    measure: str,
    rounds: int | None,
    between: Sequence[str] | None = None,
    option: str = "--table",
) -> list[Table]:
    """A table for every place on the axes that are neither rows nor columns and has results, or pairs of them.

    Args:
        study: The study.
        results: Its rows, at each place of one setting.
        axes: The axis of the rows and, if there are two, that of the columns.
        measure: What is shown; of one that participants have, the mean over the honest.
        rounds: Only results of so many rounds.
        between: Two labels of the axis of the columns: instead of them, how much the first is above the second.
        option: What names the axes.

    Raises:
        UserError: If there is no such axis, label, measure or result, or a cell would mix runs of different length.
    """
    _check_axes(study, axes, between, option)
    every = measured(results, measure, () if ROUND in axes else study.curves)
    chosen = [row for row in every if rounds is None or row["rounds"] == str(rounds)]
    if every and not chosen:
        there = ", ".join(map(str, sorted({int(row["rounds"]) for row in every})))
        raise UserError(f"Expected --rounds to be a number of rounds that {study.name} has, {there}, but got {rounds}.")
    if not chosen:
        raise UserError(f"Expected results of {study.name} for {option}, but there are none; run the study first.")
    early, honest = _ended_early(results), _honest(results)
    shown = []
    others = [axis for axis in study.axes if axis not in axes]
    at, ran = _by_labels(chosen, others), _by_labels((place for place, _ in _ran(study, results, rounds)), others)
    for labels in itertools.product(*(study.axes[axis] for axis in others)):
        rest = dict(zip(others, labels, strict=True))
        if here := at.get(labels):
            several = {axis: label for axis, label in rest.items() if len(study.axes[axis]) > 1}
            table = _table(study, here, axes, measure, several, honest)
            table = replace(
                table,
                early=any(row["cell"] in early for row in here),
                by_round=ROUND in axes,
                without=_without(ran[labels], table, axes),
            )
            shown.append(_difference(here, axes, table, *between) if between else table)
    if between and not any(table.entries for table in shown):
        lacking = [label for label in between if not any(row[axes[1]] == label for row in chosen)]
        why = f"{' and '.join(lacking)} has no result of {measure}" if lacking else "there are none"
        raise UserError(f"Expected results of {study.name} at {' and '.join(between)} with the same seeds, but {why}.")
    return [table for table in shown if table.entries]


def _by_labels(rows: Iterable[Row], axes: Sequence[str]) -> dict[tuple[str, ...], list[Row]]:
    """Rows, or places, by their labels on these axes."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[axis] for axis in axes), []).append(row)
    return found


def _ended_early(results: Iterable[Row]) -> set[str]:
    """The cells whose runs ended before they had all rounds."""
    played = (row for row in results if row["measure"] == PLAYED)
    return {row["cell"] for row in played if float(row["value"]) < int(row["rounds"])}


def _ran(study: Study, results: Iterable[Row], rounds: int | None) -> list[tuple[Place, str]]:
    """The places and seeds that have any result."""
    there = {labels[:-1] for labels in which_of(study, results) if rounds in (None, int(labels[-1]))}
    return [(study.place(labels), seed) for *labels, seed in there]


def _without(ran: Iterable[Place], table: Table, axes: Sequence[str]) -> dict[tuple[str, str], int]:
    """How many seeds of every entry have results, a place each, but none of the table's measure."""
    runs = Counter((place[axes[0]], place[axes[1]] if len(axes) == 2 else table.measure) for place in ran)
    seeds = {entry: table.entries[entry].seeds if entry in table.entries else 0 for entry in runs}
    return {entry: count - seeds[entry] for entry, count in runs.items() if count > seeds[entry]}


def measured(results: Sequence[Row], measure: str, curves: Collection[str] = ()) -> list[Row]:
    """The rows of a measure, without the adversaries'.

    Args:
        results: The rows of all measures.
        measure: The measure.
        curves: Measures that the results of every round have, which are others.

    Raises:
        UserError: If there are results, but of other measures, or this one is of adversaries alone.
    """
    measures = {row["measure"] for row in results}
    if results and measure not in measures:
        by_round = f", which is kept by round; name the axis {ROUND}." if measure in curves else ""
        raise UserError(
            f"Expected --measure to be one of {', '.join(sorted(measures))}, but got {measure}"
            f"{by_round or nearest(measure, measures) or '.'}"
        )
    found = [row for row in results if row["measure"] == measure]
    kept = [row for row in found if row["role"] != "adversary"]
    if found and not kept:
        raise UserError(f"Expected --measure to be one that the honest have, but only adversaries have {measure}.")
    return kept


def unseen(
    study: Study, shown: Sequence[Table], axes: Sequence[str], only: Mapping[str, Collection[str]]
) -> str | None:
    """The sentence on rows and columns that no table has, since there is no result of them; None if all are there."""
    sides = [{row for table in shown for row in table.rows}, {column for table in shown for column in table.columns}]
    places = study.places(only)
    lacking = [
        f"{axis}={label}"
        for axis, seen in zip(axes, sides, strict=False)
        for label in study.axes.get(axis, ())  # of those within a run there are as many as there are
        if label not in seen and any(place[axis] == label for place in places)
    ]
    return f"Without a result of this measure: {', '.join(lacking)}." if lacking else None


def to_run(study: Study, results: Iterable[Row], only: Mapping[str, Collection[str]], rounds: int | None) -> str | None:
    """The sentence on cells that have no result, or none of so many rounds; None if all have one."""
    cells = {(*place.values(), str(seed)) for place in study.places(only) for seed in study.seeds}
    there = {(*place.values(), seed) for place, seed in _ran(study, results, rounds)}
    left = len(cells - there)
    seeds = f"seed{'s' * (len(study.seeds) > 1)} {', '.join(map(str, study.seeds))}"
    return f"No result yet of {left} of {len(cells)} cells with {seeds}; --dry-run lists them." if left else None


def _check_axes(study: Study, axes: Sequence[str], between: Sequence[str] | None, option: str) -> None:
    for axis in axes:
        if axis not in study.axes:
            known = dict.fromkeys((*study.axes, *WITHIN))
            raise UserError(
                f"Expected {option} to name axes of {study.name} ({', '.join(known)}), but got {axis}"
                f"{nearest(axis, known) or '.'}"
            )
    if len(axes) not in (1, 2) or len(set(axes)) < len(axes):
        raise UserError(
            f"Expected {option} to name the axis of the rows and another of the columns, but got {' '.join(axes)}; "
            "name one or two, each once."
        )
    if between and len(axes) < 2:
        raise UserError(f"Expected {option} to name the axis of the rows and that of the two columns of --between.")
    if between and set(between) <= study.axes.get(axes[0], {}).keys() - study.axes.get(axes[1], {}).keys():
        raise UserError(
            f"Expected --between to name columns, but {' and '.join(between)} are the rows of {option} "
            f"{' '.join(axes)}; give {option} {axes[1]} {axes[0]}."
        )
    for label in between or ():
        study.known_label(axes[1], label, "--between")


def _by_entry(results: Sequence[Row], axes: Sequence[str], measure: str) -> dict[tuple[str, str], dict[str, list[Row]]]:
    """Rows by place in the table and by seed."""
    by_entry: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in results:
        entry = (row[axes[0]], row[axes[1]] if len(axes) == 2 else measure)
        by_entry.setdefault(entry, {}).setdefault(row["seed"], []).append(row)
    return by_entry


def _table(
    study: Study, results: Sequence[Row], axes: Sequence[str], measure: str, rest: Place, honest: Mapping[str, int]
) -> Table:
    by_entry = _by_entry(results, axes, measure)
    columns = list(study.axes[axes[1]]) if len(axes) == 2 else [measure]
    return Table(
        measure=measure,
        rest=rest,
        rows=[label for label in study.axes[axes[0]] if any(entry[0] == label for entry in by_entry)],
        columns=[label for label in columns if any(entry[1] == label for entry in by_entry)],
        entries={entry: mean_of(by_seed) for entry, by_seed in by_entry.items()},
        whose=_whose(results, measure, honest),
    )


def _whose(results: Sequence[Row], measure: str, honest: Mapping[str, int]) -> str:
    """Of whom a value is the mean, as a caption says it; by cell how many honest there are."""
    if all(row["role"] == "all" for row in results):
        return ""
    if measure == "removed_in_round":
        return " of the honest that were removed"
    values = Counter((row["cell"], row.get(ROUND)) for row in results)
    lacking = any(count < honest.get(cell, 0) for (cell, _), count in values.items())
    return " of the honest that have a value" if lacking else " of the honest"


def _honest(results: Iterable[Row]) -> dict[str, int]:
    """By cell how many honest participants have a value of anything; a loss that is not finite is none."""
    found: dict[str, set[str]] = {}
    for row in results:
        if row["role"] == "honest":
            found.setdefault(row["cell"], set()).add(row["participant"])
    return {cell: len(everybody) for cell, everybody in found.items()}


def _difference(results: Sequence[Row], axes: Sequence[str], table: Table, first: str, second: str) -> Table:
    """A column of differences in place of two, of values one of which is finite; rows without any are left out."""
    by_entry, column = _by_entry(results, axes, table.measure), f"{first} - {second}"
    entries, unpaired = {}, 0
    for row in table.rows:
        pair = by_entry.get((row, first), {}), by_entry.get((row, second), {})
        both = [seed for seed in pair[0] if seed in pair[1]]
        unpaired += len(pair[0].keys() ^ pair[1].keys())
        if common := [seed for seed in both if any(math.isfinite(value_of(side[seed])) for side in pair)]:
            entries[row, column] = mean_difference(*({seed: side[seed] for seed in common} for side in pair))
    rows = [row for row in table.rows if (row, column) in entries]
    return replace(table, rows=rows, columns=[column], entries=entries, paired=True, unpaired=unpaired)


def reach(numbers: Iterable[int]) -> str:
    """``3``, or ``1 to 3``."""
    known = {*numbers}
    return f"{min(known)}" if len(known) == 1 else f"{min(known)} to {max(known)}"
