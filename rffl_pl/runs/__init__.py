"""What runs leave on disk: written here, and read back here."""

from rffl_pl.runs.folder import RunFolder
from rffl_pl.runs.records import Round, Summary

__all__ = ["Round", "RunFolder", "Summary"]
