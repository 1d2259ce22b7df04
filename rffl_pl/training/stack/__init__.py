"""Local training of several participants at once, their models as one stack."""

from rffl_pl.training.stack.batches import channels_last
from rffl_pl.training.stack.rows import Turn, repeat
from rffl_pl.training.stack.training import TRAINER, Loss, Stack, refusal

__all__ = ["TRAINER", "Loss", "Stack", "Turn", "channels_last", "refusal", "repeat"]
