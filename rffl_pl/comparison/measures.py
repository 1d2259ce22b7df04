"""What is told of a run, in one number each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rffl_pl.comparison.reading import Result
from rffl_pl.errors import UserError
from rffl_pl.runs import Summary
from rffl_pl.studies.shares import of_nothing

Value = float | None


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        name: As a heading.
        says: What it is, one sentence.
        unit: ``percent`` (of a whole, from 0 to 100), ``ratio`` (shown in % too, but of what may be smaller, or have
            the other sign), ``points`` (a difference of percentages), ``spread`` (of such differences, which has no
            sign), ``number``, ``bytes`` or ``seconds``.
        better: ``higher`` or ``lower``; None where neither is.
        of: Of a summary; None of what is measured on the way.
    """

    name: str
    says: str
    unit: str
    better: str | None
    of: Callable[[Summary], Value] | None = None


def _lowest(summary: Summary) -> Value:
    return min((value for value in summary.final[: summary.honest] if value is not None), default=None)


def _honest_removed(summary: Summary) -> Value:
    honest = summary.removed_in_round[: summary.honest]
    return sum(number is not None for number in honest) / len(honest) if honest else None


def _taken_share(summary: Summary) -> Value:
    share = summary.taken_share
    return of_nothing(summary.taken_most, summary.smallest_gain) if share is None else share


def _mean_of(name: str) -> Callable[[Summary], Value]:
    """The mean over the honest of what a metric, an attack's or one's own, measured of the final models."""

    def mean(summary: Summary) -> Value:
        known = [value for value in summary.measured.get(name, [])[: summary.honest] if value is not None]
        return fmean(known) if known else None

    return mean


MEASURES = {
    "accuracy": Measure(
        "Accuracy", "Mean test accuracy of the honest participants.", "percent", "higher", lambda s: s.mean
    ),
    "lowest": Measure("Lowest", "Lowest test accuracy of an honest participant.", "percent", "higher", _lowest),
    "highest": Measure(
        "Highest", "Highest test accuracy of an honest participant.", "percent", "higher", lambda s: s.maximum
    ),
    "worst_tenth": Measure(
        "Worst tenth", "Mean of the lowest tenth of the honest's accuracies, rounded up.", "percent", "higher",
        lambda s: s.worst_tenth,
    ),
    "spread": Measure(
        "Spread", "Standard deviation of the honest's test accuracies.", "spread", "lower", lambda s: s.spread
    ),
    "fairness": Measure(
        "Fairness",
        "Pearson's correlation of the accuracies that honest participants reach alone and end with.",
        "number", "higher", lambda s: s.fairness,
    ),
    "rank_fairness": Measure(
        "Fairness of ranks", "Spearman's correlation of the same.", "number", "higher", lambda s: s.rank_fairness
    ),
    "gain": Measure(
        "Gain", "Mean of what honest participants have above training alone.", "points", "higher", lambda s: s.gain
    ),
    "gain_spread": Measure(
        "Spread of gain", "Standard deviation of the gain.", "spread", "lower", lambda s: s.gain_spread
    ),
    "recall": Measure(
        "Adversaries removed", "Share of the adversaries that were removed.", "percent", "higher", lambda s: s.recall
    ),
    "honest_removed_share": Measure(
        "Honest removed", "Share of the honest that were removed.", "percent", "lower", _honest_removed
    ),
    "precision": Measure(
        "Precision of removal", "Share of adversaries among the removed.", "percent", "higher", lambda s: s.precision
    ),
    "target_accuracy": Measure(
        "Target accuracy", "Accuracy of the honest on classes that adversaries mislabel.", "percent", "higher",
        lambda s: s.target_accuracy,
    ),
    "attack_success": Measure(
        "Attack success", "Share of these examples that the honest classify as the adversaries want.", "percent",
        "lower", lambda s: s.attack_success,
    ),
    "backdoor_success": Measure(
        "Backdoor success", "Share of the images with a backdoor's trigger that the honest read as its owner wants.",
        "percent", "lower", _mean_of("backdoor_success"),
    ),
    "adversary_final": Measure(
        "Accuracy of adversaries", "What the adversaries end with.", "percent", "lower", lambda s: s.adversary_final
    ),
    "adversary_gain": Measure(
        "Gain of adversaries", "What they have above training alone.", "points", "lower", lambda s: s.adversary_gain
    ),
    "taken": Measure(
        "Taken by adversaries",
        "What they have above what their own work gives: training alone, or the initial network if they do not train.",
        "points", "lower", lambda s: s.taken,
    ),
    "taken_share": Measure(
        "Adversaries' share",
        "The most that an adversary took, as a share of what the honest participant with the fewest examples gains; "
        "∞ where that one gains nothing.",
        "ratio", "lower", _taken_share,
    ),
    "bytes_up": Measure("Bytes up", "Sent to the server by all, in all rounds.", "bytes", "lower"),
    "bytes_down": Measure("Bytes down", "Sent to the participants, in all rounds.", "bytes", "lower"),
    "seconds": Measure(
        "Time",
        "From the start of the run to its result, on its own machine; the first run that needs a standalone reference "
        "trains it, those behind it take it.",
        "seconds", "lower",
    ),
}  # fmt: skip
"""In the order in which they are shown."""


def measures_of(summaries: Iterable[Summary]) -> dict[str, Measure]:
    """Those of all runs, and what users' own metrics and attacks measured of the final models of some."""
    own = dict.fromkeys(name for summary in summaries for name in summary.measured)
    return MEASURES | {f"own {name}": _own(name) for name in own if name not in MEASURES}


def _own(name: str) -> Measure:
    words = name.replace("_", " ")
    says = f"Mean over the honest participants of {words}, as a metric of one's own has it of the final models."
    return Measure(words[:1].upper() + words[1:], says, "number", None, _mean_of(name))


def measured(measures: Mapping[str, Measure], summary: Summary, totals: Mapping[str, Value]) -> dict[str, Value]:
    """Every measure of a run, None where there is no value.

    Args:
        measures: The measures.
        summary: The run's result.
        totals: Those that the summary does not have.
    """
    return {name: one.of(summary) if one.of else totals[name] for name, one in measures.items()}


def check_common(results: Sequence[Result]) -> None:
    """Refuse a run that has no measure in common with any other.

    Raises:
        UserError: With both sides of the first such run.
    """
    known = [(result.path, _known(result.summary)) for result in results if result.summary]
    often = Counter(name for _, names in known for name in names)
    for path, names in known:
        if len(known) > 1 and not any(often[name] > 1 for name in names):
            has = ", ".join(sorted(names)) or "no result at all"
            raise UserError(
                f"Expected runs with a measure in common, but {path} has {has} and no other run has that; leave it out."
            )


def _known(summary: Summary) -> frozenset[str]:
    """The measures of final models that have a value."""
    results = {name: one.of(summary) for name, one in MEASURES.items() if one.of and name != "honest_removed_share"}
    return frozenset(name for name, value in results.items() if value is not None)
