"""One small class per attack, and the cast that says who carries out which."""

from rffl_pl.adversaries.base import Adversary, OmniscientAdversary, Situation
from rffl_pl.adversaries.cast import Cast
from rffl_pl.adversaries.free_rider import FreeRider, OnOff, Sybil
from rffl_pl.adversaries.imitation import DeltaWeights, Imitation, Replay
from rffl_pl.adversaries.inner_product import InnerProduct
from rffl_pl.adversaries.label_flip import LabelFlip
from rffl_pl.adversaries.noise import Rescale, SignRandom, ValueInvert

__all__ = [
    "Adversary", "Cast", "DeltaWeights", "FreeRider", "Imitation", "InnerProduct", "LabelFlip", "OmniscientAdversary",
    "OnOff", "Replay", "Rescale", "SignRandom", "Situation", "Sybil", "ValueInvert",
]  # fmt: skip
