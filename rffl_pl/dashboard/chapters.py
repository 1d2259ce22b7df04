"""The charts, in the order in which people ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wandb_workspaces.reports.v2 import (
    BarPlot,
    Config,
    LinePlot,
    MediaBrowser,
    RunComparer,
    ScatterPlot,
    SummaryMetric,
)


@dataclass(frozen=True)
class Chapter:
    """Charts that answer one question.

    Attributes:
        name: A heading.
        text: What the charts show, for who reads the report.
        panels: The charts.
    """

    name: str
    text: str
    panels: list[Any]


def chapters() -> Iterator[Chapter]:
    """Every chapter, with panels of its own at each call: a panel has one place."""
    yield Chapter(
        "Accuracy by server and attack",
        "Final accuracy on the test set, averaged over seeds, and the accuracy after each round, on held-out training "
        "examples unless `--data.watch` is test, both of the honest participants. Where runs use several data sets, "
        "filter by one of them before you read a server over all attacks or an attack under all servers.",
        [
            _bar("Final accuracy, mean of the honest", "mean"),
            _bar("Final accuracy, best of the honest", "maximum"),
            _bar("Final accuracy by server, over all attacks", "mean", by="server_name"),
            _bar("Final accuracy by attack, under all servers", "mean", by="attack"),
            _line("Accuracy after each round, mean of the honest", "accuracy/mean", "accuracy"),
        ],
    )
    yield Chapter(
        "Fairness by server and attack",
        "Fairness is Pearson's correlation of what each honest participant reaches alone and what it ends with, from "
        "-1 to 1; fairness of ranks is Spearman's. The gain is the final accuracy less that of training alone.",
        [
            _bar("Fairness", "fairness"),
            _bar("Fairness of ranks", "rank_fairness"),
            _bar("Gain over training alone, mean of the honest", "gain"),
            ScatterPlot(
                title="Final accuracy against fairness",
                x=SummaryMetric("fairness"),
                y=SummaryMetric("mean"),
            ),
        ],
    )
    yield Chapter(
        "Reputations over the rounds",
        "Honest participants keep their reputation, adversaries lose theirs. Runs with more than 16 participants have "
        "no line for each of them; their run page has a table. Under servers without reputations the weight stands "
        "in their place.",
        [
            _line("Median of the honest", "reputation/honest_median", "reputation"),
            _line("Mean of the adversaries", "reputation/adversaries_mean", "reputation"),
            LinePlot(
                title="Each participant", x="round", metric_regex="reputation/participant_.*", title_y="reputation"
            ),
        ],
    )
    yield Chapter(
        "Who was removed",
        "A good server removes all adversaries and no honest participant.",
        [
            _line("Adversaries that are still members", "adversary_members", "participants"),
            _line("Honest participants that are still members", "honest_members", "participants"),
            _bar("Share of the adversaries that were removed", "recall"),
            _bar("Share of adversaries among those that were removed", "precision"),
        ],
    )
    yield Chapter(
        "What attacks achieved",
        "What adversaries took: the accuracy they end with, how much better that is than training alone, and how much "
        "better than their own work gives: training alone for an attack that trains, the initial network for one that "
        "does not. For label flips also how often the honest models take one class for the other.",
        [
            _bar("Final accuracy of the adversaries", "adversary_final"),
            _bar("Gain of the adversaries over training alone", "adversary_gain"),
            _bar("Taken by the adversaries over their own work", "taken"),
            _bar("Success of label flips", "attack_success"),
        ],
    )
    yield Chapter(
        "Bytes and seconds",
        "Bytes of all participants in each round, and accuracy over the seconds since the run began.",
        [
            _line("Uploaded in each round", "bytes_up/total", "bytes"),
            _line("Downloaded in each round", "bytes_down/total", "bytes"),
            LinePlot(
                title="Accuracy over seconds", x="_runtime", y=["accuracy/mean"], title_x="seconds", title_y="accuracy"
            ),
            _bar("Seconds of the whole run", "_runtime"),
        ],
    )
    yield Chapter(
        "Pictures of each run",
        "As they lie in the run folders.",
        [
            MediaBrowser(title=f"{name.capitalize()} of each run", media_keys=[f"pictures/{name}"], num_columns=3)
            for name in ("reputation", "accuracy", "fairness")
        ],
    )
    yield Chapter("Settings that differ", "Whatever is not the same in all runs.", [RunComparer(diff_only="split")])


def _bar(title: str, key: str, by: str | None = None) -> BarPlot:
    """Bars of a result, their mean over runs and one standard deviation; by what runs are grouped by, or by one key."""
    return BarPlot(
        title=title,
        metrics=[key],
        groupby=Config(by) if by else None,
        groupby_aggfunc="mean",
        groupby_rangefunc="stddev",
    )


def _line(title: str, key: str, unit: str) -> LinePlot:
    """A line over the rounds for each server and attack, with the range of its seeds."""
    return LinePlot(title=title, x="round", y=[key], title_x="round", title_y=unit, groupby_rangefunc="minmax")
