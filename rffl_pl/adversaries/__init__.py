"""One small class per attack, and the cast that says who carries out which."""

from rffl_pl.adversaries.alie import ALIE
from rffl_pl.adversaries.backdoor import Backdoor
from rffl_pl.adversaries.base import Adversary, OmniscientAdversary, Situation
from rffl_pl.adversaries.cast import Cast
from rffl_pl.adversaries.fang import Fang
from rffl_pl.adversaries.free_rider import FreeRider, Sybil
from rffl_pl.adversaries.imitation import DeltaWeights, Imitation, Replay
from rffl_pl.adversaries.inner_product import InnerProduct
from rffl_pl.adversaries.label_flip import LabelFlip
from rffl_pl.adversaries.mimic import Mimic
from rffl_pl.adversaries.min_max import MinMax
from rffl_pl.adversaries.noise import Rescale, SignRandom, ValueInvert
from rffl_pl.adversaries.on_off import OnOff

__all__ = [
    "ALIE", "Adversary", "Backdoor", "Cast", "DeltaWeights", "Fang", "FreeRider", "Imitation", "InnerProduct",
    "LabelFlip", "Mimic", "MinMax", "OmniscientAdversary", "OnOff", "Replay", "Rescale", "SignRandom", "Situation",
    "Sybil", "ValueInvert",
]  # fmt: skip
