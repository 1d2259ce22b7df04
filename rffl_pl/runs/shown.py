"""How the result of a run is shown on a screen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rffl_pl.runs.records import Summary, mean

_SCREEN = 40
"""Participants of one kind that a table has a row for each of."""
_ROWS = 20
"""Rows where there are more."""


def batches(limit: float) -> str | None:
    """How many batches are taken where a trainer's limit says how many; None of all.

    As Lightning has it, a whole number is one of batches, and another a share of them.
    """
    if isinstance(limit, float):
        return None if limit == 1 else f"{limit:.0%} of the batches"
    return f"{limit} batch{'es' * (limit != 1)}"


def table_of(summary: Summary) -> str:
    """A row per participant, or of some of many, then what is measured of all."""
    head = ["participant", "examples", "standalone", "final", "reputation", "quota", "removed in round"]
    total = len(summary.examples)
    shown = [*fitting(range(summary.honest)), *fitting(range(summary.honest, total))]
    rows = [
        [
            str(i) if i < summary.honest else f"{i} (adversary)",
            str(summary.examples[i]),
            percent(summary.standalone[i]),
            percent(summary.final[i]),
            _number(summary.reputation[i]),
            percent(summary.quota[i]),
            str(summary.removed_in_round[i] or "-"),
        ]
        for i in shown
    ]
    if summary.groups:
        head.append("group")
        rows = [[*row, summary.groups[i] or "-"] for row, i in zip(rows, shown, strict=True)]
    lines = _in_columns(head, rows)
    if len(shown) < total:
        lines.append(f"{len(shown)} of {total} participants; summary.json has all")
    own = _of_ones_own(summary.measured, summary.honest)
    return "\n".join([*lines, _of_all(summary), *_gains(summary), *_of_adversaries(summary), *own])


def table_of_scores(
    scores: Mapping[str, Sequence[float | None]], honest: int, groups: Sequence[str | None], measured: Iterable[str]
) -> str:
    """A row per honest participant, or of some of many, then what is measured of all of them.

    Args:
        scores: ``accuracy``, ``loss`` and others of every participant.
        honest: How many of these come first and are honest.
        groups: What the group is called that each holds; empty without names.
        measured: Which others are shown.
    """
    shown = fitting(range(honest))
    head = ["participant", "accuracy", "loss"]
    rows = [[str(i), percent(scores["accuracy"][i]), _number(scores["loss"][i])] for i in shown]
    if groups:
        head.append("group")
        rows = [[*row, groups[i] or "-"] for row, i in zip(rows, shown, strict=True)]
    lines = _in_columns(head, rows)
    if len(shown) < honest:
        lines.append(f"{len(shown)} of {honest} honest participants; scores.json has all")
    accuracies = [value for value in scores["accuracy"][:honest] if value is not None]
    lines.append(f"mean {percent(mean(accuracies))}  maximum {percent(max(accuracies))}")
    return "\n".join([*lines, *_of_ones_own({name: scores[name] for name in measured}, honest)])


def _in_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, with one of dashes below the head."""
    widths = [max(len(row[c]) for row in (head, *rows)) for c in range(len(head))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def _of_all(summary: Summary) -> str:
    if summary.fairness is not None:
        fairness = f"{summary.fairness:.3f}"
    else:
        alone = "one participant" if summary.honest == 1 else "constant"
        fairness = "not measured" if summary.gain is None else f"undefined ({alone})"
    return f"mean {percent(summary.mean)}  maximum {percent(summary.maximum)}  fairness {fairness}"


def _gains(summary: Summary) -> Iterable[str]:
    if summary.gain is not None:
        ranks = "undefined" if summary.rank_fairness is None else f"{summary.rank_fairness:.3f}"
        yield (
            f"mean gain over training alone {points(summary.gain)} (spread {100 * (summary.gain_spread or 0):.1f})  "
            f"fairness of ranks {ranks}"
        )


def _of_adversaries(summary: Summary) -> Iterable[str]:
    count = len(summary.examples) - summary.honest
    if count:
        gone = [removed is not None for removed in summary.removed_in_round]
        yield (
            f"removed: {sum(gone[summary.honest :])} of {count} adversaries, "
            f"{sum(gone[: summary.honest])} of {summary.honest} honest"
        )
    if summary.adversary_gain is not None:
        ends, it = ("the adversary ends", "it") if count == 1 else ("adversaries end on average", "they")
        yield (
            f"{ends} with {percent(summary.adversary_final)}; training alone {it} would have "
            f"{percent(summary.adversary_standalone)}, the initial network has {percent(summary.initial)}"
        )
    if summary.taken is not None and summary.taken_most is not None:
        most = f", {points(summary.taken_most)} at most" if count > 1 else ""
        whose = "its" if count == 1 else "their"
        yield f"taken: {points(summary.taken)} over what {whose} own work gives{most}{_beside_the_smallest(summary)}"
    if summary.attack_success is not None:
        target = percent(summary.target_accuracy)
        yield f"label flips: success {percent(summary.attack_success)}  target accuracy {target}"


def _of_ones_own(measured: Mapping[str, Sequence[float | None]], honest: int) -> Iterable[str]:
    for name, values in measured.items():
        known = [value for value in values[:honest] if value is not None]
        if known:
            yield f"{name}: mean {mean(known):.4f} of the honest"


def _beside_the_smallest(summary: Summary) -> str:
    if summary.smallest_gain is None:
        return ""
    gain = points(summary.smallest_gain)
    if summary.taken_share is None:
        return f"; the smallest honest participant gains nothing ({gain})"
    return f", {summary.taken_share:.0%} of what the smallest honest participant gains ({gain})"


def fitting(participants: Sequence[int]) -> list[int]:
    """All of them where a screen has room for a row each, else some, evenly spread from the first to the last."""
    last = len(participants) - 1
    if last < _SCREEN:
        return list(participants)
    return [participants[k * last // (_ROWS - 1)] for k in range(_ROWS)]


def percent(value: float | None) -> str:
    """A share for people, a dash for none."""
    return "-" if value is None else f"{value:z.1%}"


def points(difference: float) -> str:
    """A difference of two shares for people, in percentage points."""
    return f"{100 * difference:+z.1f} points"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:z.4f}"
