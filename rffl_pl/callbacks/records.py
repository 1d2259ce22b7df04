"""What is known of a round and of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Round:
    """All that is known of one round; lists have one entry per participant, P of them, NaN where there is no value.

    Attributes:
        number: Rounds completed, this one included.
        honest: Number N of honest participants, the first ones.
        accuracy: Accuracy on what is watched (validation by default) after the download.
        loss: Cross-entropy on the same.
        train_loss: Mean training loss of the last local epoch.
        members: Who is a member after the round; all of them where nobody communicates.
        removed: Who was removed in this round.
    """

    number: int
    honest: int
    accuracy: list[float]
    loss: list[float]
    train_loss: list[float]
    members: list[bool]
    removed: list[int] = field(default_factory=list)
    set_aside: list[int] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    similarity: list[float] = field(default_factory=list)
    reputation: list[float] = field(default_factory=list)
    quota: list[float] = field(default_factory=list)
    bytes_up: list[int] = field(default_factory=list)
    bytes_down: list[int] = field(default_factory=list)
    target_accuracy: list[float] = field(default_factory=list)
    attack_success: list[float] = field(default_factory=list)

    @property
    def mean_accuracy(self) -> float:
        """Mean over the honest participants."""
        return sum(self.accuracy[: self.honest]) / self.honest

    def headline(self) -> str:
        """One line for the progress bar."""
        accuracy = "" if math.isnan(self.mean_accuracy) else f"mean accuracy {self.mean_accuracy:.1%}, "
        return f"{accuracy}members {sum(self.members)}/{len(self.members)}"

    def metrics(self) -> dict[str, float]:
        """Flat, for loggers: ``accuracy/participant_3`` and the like."""
        flat: dict[str, float] = {"round": self.number, "members": sum(self.members), "removed": len(self.removed)}
        names = (
            "accuracy", "loss", "train_loss", "weight", "similarity", "reputation", "quota", "bytes_up", "bytes_down",
            "target_accuracy", "attack_success",
        )  # fmt: skip
        for name in names:
            values: list[float] = getattr(self, name)
            flat |= {f"{name}/participant_{i}": v for i, v in enumerate(values) if not math.isnan(v)}
        flat |= {f"member/participant_{i}": float(member) for i, member in enumerate(self.members)}
        if not math.isnan(self.mean_accuracy):
            flat["accuracy/mean"] = self.mean_accuracy
            flat["accuracy/max"] = max(self.accuracy[: self.honest])
        for name in ("target_accuracy", "attack_success"):
            honest: list[float] = getattr(self, name)[: self.honest]
            if honest and not math.isnan(sum(honest)):
                flat[f"{name}/mean"] = sum(honest) / len(honest)
        if self.bytes_up:
            flat["bytes_up/total"], flat["bytes_down/total"] = sum(self.bytes_up), sum(self.bytes_down)
        return flat


@dataclass(kw_only=True)
class Summary:
    """The result of a run; lists have one entry per participant, None where there is no value.

    Attributes:
        mean: Mean final test accuracy of the honest participants.
        maximum: Highest final test accuracy of the honest participants.
        fairness: Pearson's correlation of standalone and final accuracy over the honest participants; None where it
            is undefined or there is no reference. Likewise the next three.
        rank_fairness: Spearman's correlation.
        gain: Mean collaboration gain.
        gain_spread: Its standard deviation.
        precision: Share of adversaries among the removed; None if nobody was.
        recall: Share of removed among the adversaries; None without adversaries.
        target_accuracy: Mean accuracy of the honest on the test examples of the class that adversaries mislabel.
        attack_success: Mean share of these that the honest classify as the adversaries want.
    """

    rounds: int
    honest: int
    examples: list[int]
    standalone: list[float | None]
    final: list[float]
    reputation: list[float | None]
    quota: list[float | None]
    removed_in_round: list[int | None]
    mean: float
    maximum: float
    fairness: float | None
    rank_fairness: float | None = None
    gain: float | None = None
    gain_spread: float | None = None
    precision: float | None = None
    recall: float | None = None
    target_accuracy: float | None = None
    attack_success: float | None = None

    def table(self) -> str:
        """A row per participant, then what is measured of all."""
        head = ("participant", "examples", "standalone", "final", "reputation", "quota", "removed in round")
        rows = [
            (
                str(i) if i < self.honest else f"{i} (adversary)",
                str(self.examples[i]),
                percent(self.standalone[i]),
                percent(self.final[i]),
                _number(self.reputation[i]),
                percent(self.quota[i]),
                str(self.removed_in_round[i] or "-"),
            )
            for i in range(len(self.examples))
        ]
        widths = [max(len(row[c]) for row in (head, *rows)) for c in range(len(head))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
        lines.insert(1, "  ".join("-" * width for width in widths))
        if self.fairness is not None:
            fairness = f"{self.fairness:.3f}"
        else:
            fairness = "not measured" if all(value is None for value in self.standalone) else "undefined (constant)"
        lines.append(f"mean {percent(self.mean)}  maximum {percent(self.maximum)}  fairness {fairness}")
        if self.gain is not None:
            ranks = "undefined" if self.rank_fairness is None else f"{self.rank_fairness:.3f}"
            lines.append(
                f"mean gain over training alone {self.gain:+.1%} (spread {percent(self.gain_spread)})  "
                f"fairness of ranks {ranks}"
            )
        if self.honest < len(self.examples):
            gone = [removed is not None for removed in self.removed_in_round]
            lines.append(
                f"removed: {sum(gone[self.honest :])} of {len(gone) - self.honest} adversaries, "
                f"{sum(gone[: self.honest])} of {self.honest} honest"
            )
        if self.attack_success is not None:
            lines.append(
                f"label flips: success {percent(self.attack_success)}  target accuracy {percent(self.target_accuracy)}"
            )
        return "\n".join(lines)


def percent(value: float | None) -> str:
    """A share for people, a dash for none."""
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
