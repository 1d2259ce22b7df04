"""What callbacks of Lightning's watch, EarlyStopping say, and whether it is logged."""

from __future__ import annotations

from collections.abc import Sequence

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint

from rffl_pl.errors import UserError

WATCHED = "accuracy/mean"
"""What is measured of rounds, as often as ``check_val_every_n_epoch`` says."""


def check_logged(callbacks: Sequence[object]) -> None:
    """See that what callbacks watch is logged, before a round is played.

    Args:
        callbacks: All of them; where one may log itself, nobody knows what.

    Raises:
        UserError: If nobody logs it.
    """
    if any(map(_may_log, callbacks)):
        return
    for watching in callbacks:
        counted = ("epoch", "step") if isinstance(watching, ModelCheckpoint) else ()
        watched = getattr(watching, "monitor", None)
        if watched not in (None, WATCHED, *counted):
            raise UserError(
                f"Expected --trainer.callbacks.monitor to be {WATCHED}, but {type(watching).__name__} got {watched}, "
                f"which is not logged; give {WATCHED} and --trainer.callbacks.mode max, or have a RoundCallback set "
                "trainer.should_stop by numbers of its own."
            )


def _may_log(callback: object) -> bool:
    """Whether a callback may log what others watch: a user's own in one of Lightning's hooks."""
    own = [kind for kind in type(callback).__mro__ if not kind.__module__.startswith(("lightning.", "rffl_pl."))]
    hooks = any(name.startswith("on_") and hasattr(Callback, name) for kind in own for name in vars(kind))
    return hooks or isinstance(callback, LambdaCallback)
