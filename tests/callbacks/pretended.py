"""An adversary in name only; given by class path on the command line."""

from __future__ import annotations

from rffl_pl.adversaries import Adversary


class Honest(Adversary):
    """Trains and uploads as everybody."""
