"""One small class per attack."""

from rffl_pl.adversaries.base import Adversary, OmniscientAdversary
from rffl_pl.adversaries.free_rider import FreeRider
from rffl_pl.adversaries.inner_product import InnerProduct
from rffl_pl.adversaries.label_flip import LabelFlip
from rffl_pl.adversaries.noise import Rescale, SignRandom, ValueInvert

__all__ = [
    "Adversary", "FreeRider", "InnerProduct", "LabelFlip", "OmniscientAdversary", "Rescale", "SignRandom",
    "ValueInvert",
]  # fmt: skip
