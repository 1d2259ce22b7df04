"""Local training of several participants at once, their models as one stack."""

from rffl_pl.training.stack.refusing import refusal
from rffl_pl.training.stack.rows import Turn, repeat
from rffl_pl.training.stack.training import TRAINER, Stack

__all__ = ["TRAINER", "Stack", "Turn", "refusal", "repeat"]
