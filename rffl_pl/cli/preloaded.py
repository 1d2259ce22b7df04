"""What every worker of a study needs: their server imports it once, and they are forked from it."""

import importlib

from rffl_pl.cli.process import importing

with importing():
    for name in ("rffl_pl.cli.arguments", "rffl_pl.studies.play"):
        importlib.import_module(name)
