"""What callbacks of one's own are told."""

from __future__ import annotations

from lightning.pytorch import Callback, Trainer

from rffl_pl.runs import Round


class RoundCallback(Callback):
    """A callback of one's own that is told what was measured of every round.

    Lightning's hooks come before a round's numbers are known; this one comes after, and before the checkpoint of the
    round, in which ``state_dict`` is kept.
    """

    def on_round_end(self, trainer: Trainer, played: Round) -> None:
        """A round has ended; called on rank 0, which alone has the numbers, once for every round that is played.

        Args:
            trainer: Lightning's; after ``trainer.should_stop = True`` training ends on all ranks.
            played: The round.
        """
