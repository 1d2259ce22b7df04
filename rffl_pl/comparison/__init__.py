"""Runs beside each other: which settings differ, and what came of it, as text and as a page."""

from rffl_pl.comparison.choosing import at_hand, chosen
from rffl_pl.comparison.page import write
from rffl_pl.comparison.text import table

__all__ = ["at_hand", "chosen", "table", "write"]
