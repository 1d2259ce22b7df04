"""What every participant adds to what all reach together, by the runs of all groups of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from rffl_pl.errors import UserError
from rffl_pl.federation import NOBODY
from rffl_pl.studies.derived import Derived, and_more, by_label
from rffl_pl.studies.results import PLAYED, Row
from rffl_pl.studies.study import COALITION, Study, place_text
from rffl_pl.studies.tables import OF, measured

Worth = Mapping[frozenset[int], float]
"""What every group of the players 0 .. n-1 reaches; all :math:`2^n` of them."""


def shapley(worth: Worth, player: int) -> float:
    r"""What a player adds to those who came before it, over all orders in which the players may come.

    .. math::
        \varphi_i = \sum_{S \not\ni i} \frac{|S|! \, (n - |S| - 1)!}{n!} \, \big(v(S \cup \{i\}) - v(S)\big)

    They add up to :math:`v(N) - v(\emptyset)` (Shapley 1953; of participants of a federation, Song, Tong & Wei 2019,
    https://doi.org/10.1109/BigData47090.2019.9006327).
    """
    players = max(map(len, worth))
    orders = math.factorial(players)
    return math.fsum(
        math.factorial(len(group)) * math.factorial(players - len(group) - 1) / orders * (worth[group | {player}] - own)
        for group, own in worth.items()
        if player not in group
    )


def leave_one_out(worth: Worth, player: int) -> float:
    r"""What all reach less what they reach without the player, :math:`v(N) - v(N \setminus \{i\})`."""
    everybody = max(worth, key=len)
    return worth[everybody] - worth[everybody - {player}]


def alone(worth: Worth, player: int) -> float:
    r"""What the player reaches alone less what nobody reaches, :math:`v(\{i\}) - v(\emptyset)`."""
    return worth[frozenset({player})] - worth[frozenset()]


_WAYS: dict[str, Callable[[Worth, int], float]] = {
    "shapley": shapley,
    "leave_one_out": leave_one_out,
    "alone": alone,
}
KINDS = tuple(_WAYS)


def added(study: Study, rows: Sequence[Row], kind: str, measure: str) -> Derived:
    """What every participant adds, as results of a study that has participants where this one has coalitions.

    Args:
        study: A study with players.
        rows: Its results; where a coalition is lacking with some seed and number of rounds, these are left out.
        kind: One of `KINDS`.
        measure: What a coalition is worth: of a measure that participants have, the mean over the honest.

    Raises:
        UserError: If the study has no players or another number than its runs, nothing has that measure, or no seed has
            all coalitions.
    """
    if not study.players:
        raise UserError(
            f"Expected {study.name} to have the key players for --contribution, but it has none: it is their number, "
            "and the study then runs every group of them."
        )
    participants = 1 + max((int(row["participant"]) for row in rows if row["participant"]), default=study.players - 1)
    if participants != study.players:
        raise UserError(
            f"Expected players of {study.name} to be the number of all participants, adversaries too, but it is "
            f"{study.players} and its runs have {participants}; mend it and run the study again."
        )
    others = [axis for axis in study.axes if axis != COALITION]
    columns, all_groups = [*others, "seed", "rounds"], 2**study.players
    found = by_label(measured(rows, measure), columns, COALITION)
    whole = {where: groups for where, groups in found.items() if len(groups) == all_groups}
    partial = [
        f"{place_text(dict(zip(columns, where, strict=True)))}, which has {len(groups)} of {all_groups} coalitions"
        for where, groups in found.items()
        if where not in whole
    ]
    if not whole:
        most = max(map(len, found.values()), default=0)
        raise UserError(
            f"Expected results of all {all_groups} coalitions of {study.name} with one seed for --contribution, "
            f"but there are {most} at most; run the study first."
        )
    values: list[Row] = []
    for (where, groups), player in itertools.product(whole.items(), range(study.players)):
        worth = {_group(label): fmean(several) for label, several in groups.items()}
        place = dict(zip(columns, where, strict=True))
        what = {"measure": f"{kind}{OF}{measure}", "value": repr(_WAYS[kind](worth, player))}
        values.append(place | {"cell": place_text(place), "participant": f"{player}", "role": "all"} | what)
    for row in rows:
        place = {column: row[column] for column in columns}
        if row["measure"] == PLAYED and tuple(place.values()) in whole:
            values.append(row | {"cell": place_text(place), "participant": "0"})
    players: dict[str, list[str]] = {f"{player}": [] for player in range(study.players)}
    axes = {"participant": players} | {axis: study.axes[axis] for axis in others}
    left_out = f"Left out: {partial[0]}{and_more(partial)}; run the study again." if partial else None
    return Derived(replace(study, axes=axes), values, left_out)


def _group(label: str) -> frozenset[int]:
    """The players behind a label of the axis of coalitions."""
    return frozenset() if label == NOBODY else frozenset(map(int, label.split("+")))
