"""One small class per attack."""

from rffl_pl.adversaries.base import Adversary
from rffl_pl.adversaries.free_rider import FreeRider
from rffl_pl.adversaries.noise import Rescale, SignRandom, ValueInvert

__all__ = ["Adversary", "FreeRider", "Rescale", "SignRandom", "ValueInvert"]
