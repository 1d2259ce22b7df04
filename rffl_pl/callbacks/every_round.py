"""What callbacks of one's own are told."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from numbers import Real

from lightning.pytorch import Callback, Trainer
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.runs import Round, Summary

_LOGGERS = ("step", "epoch", "trainer/global_step")
"""Names that Lightning's loggers add themselves."""
_RESULT = ("result", *(field.name for field in fields(Summary)))
"""Names that a run's result has in W&B's summary, which otherwise shows the last number logged under a name."""


class RoundCallback(Callback):
    """A callback of one's own that is told what was measured of every round.

    Lightning's hooks come before a round's numbers are known; this one comes after, and before the checkpoint of the
    round, in which ``state_dict`` is kept.
    """

    def numbers(self, played: Round) -> dict[str, float]:
        """What to log of a round beside what was measured of everybody, an index of fairness over them say.

        Called on rank 0 before the round is logged, once for every round that is played.

        Args:
            played: The round.

        Returns:
            Numbers by name, each a column of ``metrics.csv`` and a key of every logger, but no name of the result's
            (`rffl_pl.Summary`), say ``jain`` for an index of fairness; by default none.
        """
        return {}

    def on_round_end(self, trainer: Trainer, played: Round) -> None:
        """A round has ended; called on rank 0, which alone has the numbers, once for every round that is played.

        Args:
            trainer: Lightning's; after ``trainer.should_stop = True`` training ends on all ranks.
            played: The round.
        """


def numbers_of(callback: RoundCallback, played: Round, measured: Iterable[str] = ()) -> dict[str, float]:
    """What a callback has to be logged of a round, less what is not finite.

    Args:
        callback: The callback.
        played: The round.
        measured: What is measured of models beside accuracy and loss, in some rounds maybe.

    Raises:
        UserError: If something else is called so, or one is no number.
    """
    given: Mapping[str, object] = {**callback.numbers(played)}
    taken = {*_logged(played, measured), *_LOGGERS, *_RESULT}
    name = type(callback).__name__
    found: dict[str, float] = {}
    for key, value in given.items():
        if key in taken or not isinstance(key, str) or "/participant_" in key:
            raise UserError(f"Expected numbers of {name} to have names of their own, but got {key}; rename it.")
        if not isinstance(value, Real) and not (isinstance(value, Tensor) and value.numel() == 1):
            raise UserError(
                f"Expected numbers of {name} to return a number for each name, but {key} is of type "
                f"{type(value).__name__}; give float(...)."
            )
        found[key] = float(value)
    return {key: value for key, value in found.items() if math.isfinite(value)}


def _logged(played: Round, measured: Iterable[str]) -> set[str]:
    """Every name that is logged of a round where all of it has a value, as it may have in a later one."""
    names = {*played.measures, "accuracy", "loss", *measured}
    whole = replace(played, measures={name: [0.0] * len(played.members) for name in names})
    return {*whole.metrics(), *whole.digest()}  # W&B has the one or the other, by how many participants there are
