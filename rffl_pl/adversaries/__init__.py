"""One small class per attack."""

from rffl_pl.adversaries.base import Adversary
from rffl_pl.adversaries.free_rider import FreeRider

__all__ = ["Adversary", "FreeRider"]
