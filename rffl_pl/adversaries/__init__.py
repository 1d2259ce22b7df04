"""One small class per attack, and the cast that says who carries out which."""

from rffl_pl.adversaries.base import Adversary, OmniscientAdversary, Situation
from rffl_pl.adversaries.cast import Cast
from rffl_pl.adversaries.free_rider import FreeRider
from rffl_pl.adversaries.inner_product import InnerProduct
from rffl_pl.adversaries.label_flip import LabelFlip
from rffl_pl.adversaries.noise import Rescale, SignRandom, ValueInvert

__all__ = [
    "Adversary", "Cast", "FreeRider", "InnerProduct", "LabelFlip", "OmniscientAdversary", "Rescale", "SignRandom",
    "Situation", "ValueInvert",
]  # fmt: skip
