"""The tables and figures of the paper, Xu & Lyu 2021: what was published beside what this package measures."""

from rffl_pl.paper.contents import FIGURES, TABLES, places_of
from rffl_pl.paper.published import Published, published

__all__ = ["FIGURES", "TABLES", "Published", "places_of", "published"]
