"""The command line: ``python -m rffl_pl {fit,validate,test,predict}``, alone or under torchrun."""

from rffl_pl.cli.entry import main

__all__ = ["main"]
