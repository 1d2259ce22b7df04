"""From the rounds and the final measurements of a run to its summary."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rffl_pl.metrics import CollaborationGain, Detection, Fairness, RankFairness, TakeHome
from rffl_pl.runs.records import Round, Summary


def summarise(
    history: Sequence[Round],
    examples: Sequence[int],
    final: Mapping[str, Tensor],
    *,
    alone: Tensor | None = None,
    initial: Tensor | None = None,
    attacks: Sequence[str | None] = (),
    idle: Collection[int] = (),
    watched: str | None = None,
    groups: Sequence[str | None] = (),
) -> Summary:
    """The result of a run.

    Args:
        history: Every round, at least one.
        examples: Number of training examples of every participant, P of them.
        final: Measures of the final models on the test set, ``[P]`` each, ``accuracy`` among them.
        alone: Test accuracies of whoever trains alone, ``[P]``.
        initial: Test accuracies of the network that everybody starts from, ``[P]``.
        attacks: What each participant does, None for the honest.
        idle: Adversaries whose attack trains in no round.
        watched: What accuracies were measured on after every round.
        groups: What the group of each participant is called; empty where groups have no names.
    """
    last, total = history[-1], len(examples)
    honest = last.honest
    accuracy = final["accuracy"]
    removed = {i: entry.number for entry in history for i in entry.removed}
    return Summary(
        rounds=last.number,
        honest=honest,
        examples=list(examples),
        standalone=_values(alone, total),
        final=_values(accuracy, total),
        reputation=_values(last.measures.get("reputation"), total),
        quota=_values(last.measures.get("quota"), total),
        removed_in_round=[removed.get(i) for i in range(total)],
        mean=defined(accuracy[:honest].mean().item()),
        maximum=defined(accuracy[:honest].max().item()),
        initial=None if initial is None else initial.double().mean().item(),
        attacks=list(attacks),
        groups=list(groups),
        watched=watched,
        validation=defined(last.mean_accuracy) if watched == "validation" else None,
        measured={name: _values(values, total) for name, values in final.items() if name not in ELSEWHERE},
        **_spread(accuracy[:honest]),
        **_detection(removed, honest, total),
        **_attack(final, honest),
        **_compared(alone, accuracy, honest),
        **_taken(alone, accuracy, examples, honest, initial, idle),
    )


ELSEWHERE = ("accuracy", "loss", "target_accuracy", "attack_success")
"""Measures of final models that have a field of their own, or none."""


def defined(value: float) -> float | None:
    """None for NaN and infinity, which are no JSON."""
    return value if math.isfinite(value) else None


def _values(measured: Tensor | Sequence[float] | None, total: int) -> list[float | None]:
    if measured is None:
        return [None] * total
    return [defined(float(value)) for value in measured]


def _spread(accuracy: Tensor) -> dict[str, Any]:
    """How alike accuracies are that all are to be high; nothing where one is not known."""
    if not accuracy.isfinite().all():
        return {}
    ascending = accuracy.double().sort().values
    tenth = math.ceil(len(ascending) / 10)
    return {
        "minimum": ascending[0].item(),
        "worst_tenth": ascending[:tenth].mean().item(),
        "best_tenth": ascending[-tenth:].mean().item(),
        "spread": ascending.std(correction=0).item(),
    }


def _detection(removed: Mapping[int, int], honest: int, total: int) -> dict[str, Any]:
    detection = Detection()
    rounds = torch.tensor([removed.get(i, math.nan) for i in range(total)])
    detection.update(rounds, torch.arange(total) >= honest)
    precision, recall, last = (defined(value.item()) for value in detection.compute())
    found = [number for i, number in removed.items() if i >= honest]
    return {
        "precision": precision,
        "recall": recall,
        "first_removal": min(found, default=None),
        "last_removal": None if last is None else int(last),
        "honest_removed": len(removed) - len(found),
    }


def _attack(final: Mapping[str, Tensor], honest: int) -> dict[str, Any]:
    names = ("target_accuracy", "attack_success")
    measured = {name: final[name][:honest] for name in names if name in final}
    # Who is measured on examples of its own may have none that are attacked.
    return {name: defined(values[~values.isnan()].mean().item()) for name, values in measured.items()}


def _compared(alone: Tensor | None, final: Tensor, honest: int) -> dict[str, Any]:
    """What there is to say of standalone and final accuracies, ``[P]`` each."""
    taken = {"adversary_final": defined(final[honest:].mean().item())}
    if alone is None:
        return {"fairness": None, **taken}
    fairness, ranks, gain = Fairness(), RankFairness(), CollaborationGain()
    for metric in (fairness, ranks, gain):
        metric.update(alone[:honest], final[:honest])
    mean, spread = gain.compute()
    values = {"fairness": fairness.compute(), "rank_fairness": ranks.compute(), "gain": mean, "gain_spread": spread}
    values["adversary_standalone"] = alone[honest:].mean()
    return {name: defined(value.item()) for name, value in values.items()} | taken


def _taken(
    alone: Tensor | None,
    final: Tensor,
    examples: Sequence[int],
    honest: int,
    initial: Tensor | None,
    idle: Collection[int],
) -> dict[str, Any]:
    home, who = TakeHome(math.nan if initial is None else initial), torch.arange(len(final))
    alone = torch.full_like(final, math.nan) if alone is None else alone
    trains = ~torch.isin(who, torch.tensor(sorted(idle), dtype=who.dtype))
    home.update(final, alone, torch.tensor(examples), adversary=who >= honest, trains=trains)
    return {name: defined(value.item()) for name, value in home.compute().items()}
