"""Studies: many runs from one file, found again, and the tables of what they reach."""

from rffl_pl.studies.study import Study

__all__ = ["Study"]
