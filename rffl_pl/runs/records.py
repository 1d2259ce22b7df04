"""What is known of a round and of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

SHARES = frozenset({"weight", "similarity", "reputation", "quota", "bytes_up", "bytes_down"})
"""Measures of the exchange, of which a mean over the honest says nothing; every other measure has one."""

_QUANTILES = ("lowest", "lower_quartile", "median", "upper_quartile", "highest")


@dataclass(kw_only=True)
class Round:
    """All that is known of one round.

    Attributes:
        number: Rounds completed, this one included.
        honest: Number N of honest participants, the first ones.
        members: Who is a member after the round, P of them; all where nobody communicates.
        removed: Who was removed in this round.
        set_aside: Whose upload could not be computed with.
        silent: Whose upload told nothing.
        measures: Everything measured, by name: P values each, NaN where there is none. ``accuracy`` and ``loss`` on
            what is watched (validation by default) after the download; ``train_loss`` and ``personal_loss`` of the last
            local epoch; ``weight``, ``similarity``, ``reputation``, ``quota``, ``bytes_up`` and ``bytes_down`` of the
            exchange; and whatever a server, an attack or a metric adds.
        numbers: What callbacks make of these, one number each.
    """

    number: int
    honest: int
    members: list[bool]
    removed: list[int] = field(default_factory=list)
    set_aside: list[int] = field(default_factory=list)
    silent: list[int] = field(default_factory=list)
    measures: dict[str, list[float]] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def mean_accuracy(self) -> float:
        """Mean over the honest participants, NaN where none was measured."""
        return mean(self.measures.get("accuracy", [])[: self.honest])

    def headline(self) -> str:
        """One line for the progress bar."""
        accuracy = "" if math.isnan(self.mean_accuracy) else f"mean accuracy {self.mean_accuracy:.1%}, "
        return f"{accuracy}members {sum(self.members)}/{len(self.members)}"

    def metrics(self) -> dict[str, float]:
        """Flat, for loggers: ``accuracy/participant_3``, ``accuracy/mean`` of the honest and the like.

        ``reputation/honest_median`` and ``reputation/adversaries_mean`` compare runs with any number of participants.
        """
        flat: dict[str, float] = {"round": self.number, "members": sum(self.members), "removed": len(self.removed)}
        flat["honest_members"] = sum(self.members[: self.honest])
        flat["adversary_members"] = sum(self.members[self.honest :])
        flat |= {f"member/participant_{i}": float(member) for i, member in enumerate(self.members)}
        for name, values in self.measures.items():
            flat |= {f"{name}/participant_{i}": value for i, value in enumerate(values) if not math.isnan(value)}
            average = mean(values[: self.honest])
            if name not in SHARES and not math.isnan(average):
                flat[f"{name}/mean"] = average
            if name.startswith("bytes_"):
                flat[f"{name}/total"] = sum(values)
        if "accuracy/mean" in flat:
            flat["accuracy/max"] = max(_known(self.measures["accuracy"][: self.honest]))
        reputations = self.measures.get("reputation", [])
        if honest := _known(reputations[: self.honest]):
            flat["reputation/honest_median"] = statistics.median(honest)
        if adversaries := _known(reputations[self.honest :]):
            flat["reputation/adversaries_mean"] = mean(adversaries)
        return flat | self.numbers

    def digest(self) -> dict[str, float]:
        """Flat, for people who look at many: `metrics` with quantiles in place of every participant's own value.

        ``accuracy/honest_median`` and likewise ``lowest``, ``lower_quartile``, ``upper_quartile`` and ``highest`` of
        the honest; ``accuracy/adversaries_mean``.
        """
        flat = {name: value for name, value in self.metrics().items() if "/participant_" not in name}
        for name, values in self.measures.items():
            honest = _known(values[: self.honest])
            if honest:
                flat |= {f"{name}/honest_{word}": value for word, value in zip(_QUANTILES, _five(honest), strict=True)}
            average = mean(values[self.honest :])
            if not math.isnan(average):
                flat[f"{name}/adversaries_mean"] = average
        return flat


@dataclass(kw_only=True)
class Summary:
    """The result of a run; lists have one entry per participant, None where there is no value.

    Attributes:
        standalone: Final test accuracy of whoever trains alone on its examples, honestly, adversaries too.
        final: Final test accuracy.
        mean: Mean final test accuracy of the honest participants.
        maximum: Highest final test accuracy of the honest participants.
        minimum: Lowest of these; None of runs that did not keep it. Likewise the next.
        worst_tenth: Mean of the lowest tenth of them, rounded up to whole participants (Li et al. 2020,
            https://arxiv.org/abs/1905.10497).
        best_tenth: Mean of the highest tenth.
        spread: Their standard deviation, of all honest participants: the square root of the variance that fair
            federated learning reports.
        fairness: Pearson's correlation of standalone and final accuracy over the honest participants; None where it
            is undefined or there is no reference. Likewise the next three.
        rank_fairness: Spearman's correlation.
        gain: Mean collaboration gain.
        gain_spread: Its standard deviation.
        precision: Share of adversaries among the removed; None if nobody was.
        recall: Share of removed among the adversaries; None without adversaries.
        target_accuracy: Mean accuracy of the honest on the test examples of classes that adversaries mislabel; of
            those who are measured on such. Likewise the next.
        attack_success: Mean share of these that the honest classify as the adversaries want.
        initial: Test accuracy of the network that everybody starts from, the mean where all are measured on examples
            of their own; None without a reference.
        adversary_final: Mean final test accuracy of the adversaries; None without any.
        adversary_standalone: What they would have on average if they had trained on their examples alone.
        adversary_gain: Mean of what they have above that.
        adversary_over_initial: Mean of what they have above that network.
        taken: Mean of what adversaries have above what their own work gives, which is training alone for an attack
            that trains and the initial network for one that does not; None without adversaries or without a
            reference. Likewise the next.
        taken_most: What the adversary has that took most.
        smallest_gain: Gain over training alone of the honest participant with the fewest examples.
        taken_share: `taken_most` over `smallest_gain`; None where the smallest gains nothing.
        first_removal: First round in which an adversary was removed; None if none was. Likewise the next.
        last_removal: Last such round.
        honest_removed: Number of honest participants that were removed; None of runs that did not count them.
        attacks: What each participant does, ``FreeRider`` and so on; None for the honest, empty if it is not known.
        groups: What the group is called that each participant holds, None for adversaries; empty where groups have no
            names, and under other splits than ``GROUPS``.
        watched: What accuracies were measured on after every round, ``validation`` or ``test``; None of runs that did
            not keep it.
        validation: Mean accuracy of the honest on the validation examples after the last round, by which something may
            be chosen without the test set; None if it was not measured on them then.
        measured: What else was measured of the final models on the test set, by name: metrics of one's own and of
            attacks.
    """

    rounds: int
    honest: int
    examples: list[int]
    standalone: list[float | None]
    final: list[float | None]
    reputation: list[float | None]
    quota: list[float | None]
    removed_in_round: list[int | None]
    mean: float | None
    maximum: float | None
    fairness: float | None
    rank_fairness: float | None = None
    minimum: float | None = None
    worst_tenth: float | None = None
    best_tenth: float | None = None
    spread: float | None = None
    gain: float | None = None
    gain_spread: float | None = None
    precision: float | None = None
    recall: float | None = None
    target_accuracy: float | None = None
    attack_success: float | None = None
    initial: float | None = None
    adversary_final: float | None = None
    adversary_standalone: float | None = None
    adversary_gain: float | None = None
    adversary_over_initial: float | None = None
    taken: float | None = None
    taken_most: float | None = None
    smallest_gain: float | None = None
    taken_share: float | None = None
    first_removal: int | None = None
    last_removal: int | None = None
    honest_removed: int | None = None
    attacks: list[str | None] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    watched: str | None = None
    validation: float | None = None
    measured: dict[str, list[float | None]] = field(default_factory=dict)


def mean(values: Iterable[float]) -> float:
    """Mean of the values that are there, NaN of none."""
    known = _known(values)
    return sum(known) / len(known) if known else math.nan


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _five(values: list[float]) -> list[float]:
    """Lowest, quartiles and highest of at least one value, interpolated linearly."""
    ordered = sorted(values)
    quarters = (divmod(k * (len(values) - 1), 4) for k in range(5))
    # As `statistics.quantiles` has them, but a neighbour without weight does not count: infinite, it would make NaN.
    return [
        (ordered[place] * (4 - rest) + ordered[place + 1] * rest) / 4 if rest else ordered[place]
        for place, rest in quarters
    ]
