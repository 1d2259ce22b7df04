"""Local training of several participants at once, their models as one stack."""

from rffl_pl.stack.optimizers import NotStackableError
from rffl_pl.stack.rows import Turn, repeat
from rffl_pl.stack.training import TRAINER, Stack, refusal

__all__ = ["TRAINER", "NotStackableError", "Stack", "Turn", "refusal", "repeat"]
