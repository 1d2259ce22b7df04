"""The best label of an axis at each place, as every server's own learning rate: by validation examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from rffl_pl.errors import UserError
from rffl_pl.studies.results import Row
from rffl_pl.studies.study import Place, Study, lies_in, place_text
from rffl_pl.studies.tables import WORST, Table, measured
from rffl_pl.studies.worst import worst_over

VALIDATION = "accuracy_validation"
"""The measure by which labels are chosen."""


@dataclass(frozen=True)
class Tuned:
    """Which label of an axis is taken where.

    Attributes:
        study: The study, with the axis.
        axis: The axis that is tuned.
        by: What it is tuned by, in words.
        on: The other axes, at each place of which there is a choice.
        chosen: The label by those labels and the number of rounds.
        ends: Where it is the lowest or the highest number that was tried, so that others beyond may be better.
        short: Where a label is not chosen since it lacks a result that others have, or none is.
    """

    study: Study
    axis: str
    by: str
    on: tuple[str, ...]
    chosen: Mapping[tuple[str, ...], str]
    ends: list[Place]
    short: list[Place]

    def without_axis(self, study: Study) -> Study:
        """The study as results at the chosen labels alone have it."""
        return replace(study, axes={name: of for name, of in study.axes.items() if name != self.axis}, exclude=[])

    def of(self, rows: Sequence[Row]) -> list[Row]:
        """The results at the chosen labels."""
        return [row for row in rows if self.chosen.get(self._where(row, row["rounds"])) == row[self.axis]]

    def named(self, tables: Sequence[Table], axes: Sequence[str], between: Sequence[str] | None) -> list[Table]:
        """Tables that say at which labels their entries are."""
        return [self._named(table, axes, between) for table in tables]

    def left_out(self) -> str | None:
        """The sentence on labels that are not chosen since they lack a result that others have, if there are any."""
        return f"Not chosen by --tuned, without results that others have: {_some(self.short)}." if self.short else None

    def at_an_end(self) -> str | None:
        """The sentence on choices beyond which others may be better, if there are any."""
        return f"Chosen at an end of {self.axis}, try beyond it: {_some(self.ends)}." if self.ends else None

    def _where(self, place: Mapping[str, str], rounds: str) -> tuple[str, ...]:
        return (*(place[axis] for axis in self.on), rounds)

    def _named(self, table: Table, axes: Sequence[str], between: Sequence[str] | None) -> Table:
        single = {axis: next(iter(labels)) for axis, labels in self.study.axes.items()}
        varying = [axis for axis in axes if axis in self.on]
        labels: dict[str, str] = {}
        tuned: dict[tuple[str, str], str] = {}
        for (row, column), entry in table.entries.items():
            places = [single | table.rest | dict(zip(axes, (row, one), strict=False)) for one in between or [column]]
            here = [self.chosen[self._where(place, str(entry.rounds))] for place in places]
            labels |= {" ".join(place[axis] for axis in varying): of for place, of in zip(places, here, strict=True)}
            tuned[row, column] = f"{self.axis}={' - '.join(here)}"
        if len({*labels.values()}) == 1:
            labels = {"": next(iter(labels.values()))}
        listed = ", ".join(f"{name} {label}".strip() for name, label in labels.items())
        lacking = f"; not chosen, without results that others have: {_some(self.short)}" if self.short else ""
        return replace(table, tuned=tuned, tuning=f"{self.axis} by {self.by}: {listed}{lacking}")


def tuned(study: Study, rows: Sequence[Row], axis: str, where: Mapping[str, set[str]], worst: str | None) -> Tuned:
    """Of each place the label with the highest mean accuracy on validation examples, over all seeds.

    Those are the study's, and others that several labels have.

    The test set has no part in it: a table of the best test accuracies would be too good, the more so the more labels
    there are, and a server that swings would look best.

    Args:
        study: The study.
        rows: Its results.
        axis: The axis; labels that a place leaves out do not count.
        where: Places alone by which labels are chosen, for all places that differ from them in these axes alone; as
            that nobody attacks, for one label under every attack.
        worst: An axis over which the lowest counts, unless `where` names it.

    Raises:
        UserError: If there is no such axis, it is in `where` or `worst`, or no run, or of no label one with every seed,
            has measured on validation examples.
    """
    if axis not in study.axes:
        raise UserError(f"Expected --tuned to name an axis of {study.name} ({', '.join(study.axes)}), but got {axis}.")
    if axis in where or axis == worst:
        other = "--worst" if axis == worst else f"{axis}=LABEL behind it"
        raise UserError(f"Expected --tuned {axis} without {other}, but got both; leave out one of them.")
    over = worst if worst and worst not in where else None
    there, measure = [row for row in rows if lies_in(row, where)], VALIDATION
    _check_validated(study, there)
    if over:
        there, measure = worst_over(study, there, over, VALIDATION).rows, f"{VALIDATION}{WORST}{over}"
    on = tuple(name for name in study.axes if name not in (axis, over, *where))
    columns, chosen, ends, short = (*on, "rounds"), {}, [], []
    found = _by_place(there, measure, columns, axis, ("seed", *where))
    for place, labels in _ran(rows, columns, axis, where).items():
        values, here = found.get(place, {}), dict(zip(on, place, strict=False))
        every = _asked(study, values)
        tried = [label for label in study.axes[axis] if label in labels]
        whole = {
            label: fmean(values[label][key] for key in every)
            for label in tried
            if every and values.get(label, {}).keys() >= every
        }
        short += [here | {axis: label} for label in tried if label not in whole] if tried else [here]
        if whole:
            best = chosen[place] = max(whole, key=whole.__getitem__)
            ends += [here | {axis: best}] if _is_end(best, tried) else []
    if not chosen:
        raise UserError(
            f"Expected results of {study.name} with {VALIDATION} at all seeds for --tuned, but no label of {axis} has "
            "them; run the study first, or narrow it by --seeds."
        )
    at = "".join(f" at {name}={'+'.join(sorted(labels))}" for name, labels in where.items())
    by = "validation accuracy" + (f", worst {over}" if over else "") + at
    return Tuned(study, axis, by, on, chosen, ends, short)


def _check_validated(study: Study, rows: Sequence[Row]) -> None:
    if rows and not any(row["measure"] == VALIDATION for row in rows):
        raise UserError(
            f"Expected results of {study.name} with {VALIDATION} for --tuned, but no run has measured on validation "
            "examples after its last round; run it with --data.watch validation --trainer.check_val_every_n_epoch 1."
        )


def _ran(
    rows: Sequence[Row], columns: Sequence[str], axis: str, where: Mapping[str, set[str]]
) -> dict[tuple[str, ...], set[str]]:
    """The labels that have any result where they are chosen by, by place; none where nothing was run there."""
    found: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        labels = found.setdefault(tuple(row[column] for column in columns), set())
        if lies_in(row, where):
            labels.add(row[axis])
    return found


def _by_place(
    rows: Sequence[Row], measure: str, columns: Sequence[str], axis: str, keys: Sequence[str]
) -> dict[tuple[str, ...], dict[str, dict[tuple[str, ...], float]]]:
    """A measure's values by place, label and key."""
    found: dict[tuple[str, ...], dict[str, dict[tuple[str, ...], float]]] = {}
    for row in measured(rows, measure):
        by_label = found.setdefault(tuple(row[column] for column in columns), {})
        by_label.setdefault(row[axis], {})[tuple(row[key] for key in keys)] = float(row["value"])
    return found


def _asked(study: Study, values: Mapping[str, Mapping[tuple[str, ...], float]]) -> set[tuple[str, ...]]:
    """The keys that labels are compared at: those of the study's seeds, and of others that several labels have.

    A label that alone has one more would be the only one with all.
    """
    count = Counter(key for by_key in values.values() for key in by_key)
    seeds = {*map(str, study.seeds)}
    return {key for key in count if count[key] > 1 or key[0] in seeds} or {*count}


def _is_end(label: str, tried: Sequence[str]) -> bool:
    """Whether it is the lowest or the highest of several numbers."""
    try:
        numbers = [float(one) for one in tried]
        return len(numbers) > 1 and float(label) in (min(numbers), max(numbers))
    except ValueError:
        return False


def _some(places: Sequence[Place]) -> str:
    others = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return "; ".join(map(place_text, places[:3])) + others
