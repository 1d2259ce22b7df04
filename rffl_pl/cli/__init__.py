"""The command line: ``rffl`` or ``python -m rffl_pl``, alone or under torchrun."""

from rffl_pl.cli.entry import main

__all__ = ["main"]
