"""One small class per framework: uploads in, a verdict out; state survives the round, nothing else does."""

from rffl_pl.servers.afl import AFL
from rffl_pl.servers.arc import ARC
from rffl_pl.servers.base import ParticipantSide, Server, Task, Verdict
from rffl_pl.servers.bucketing import Bucketing
from rffl_pl.servers.bulyan import Bulyan
from rffl_pl.servers.centered_clipping import CenteredClipping
from rffl_pl.servers.cffl import CFFL
from rffl_pl.servers.cgsv import CGSV
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.dnc import DnC
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.fed_mgda import FedMGDA
from rffl_pl.servers.fed_opt import FedOpt
from rffl_pl.servers.fedavg import FedAvg
from rffl_pl.servers.flame import FLAME
from rffl_pl.servers.fltrust import FLTrust
from rffl_pl.servers.foolsgold import FoolsGold
from rffl_pl.servers.geometric_median import GeometricMedian
from rffl_pl.servers.iafl import IAFL
from rffl_pl.servers.krum import MultiKrum
from rffl_pl.servers.median import Median
from rffl_pl.servers.nnm import NNM
from rffl_pl.servers.norm_bound import NormBound
from rffl_pl.servers.q_ffl import QFFL
from rffl_pl.servers.rffl import RFFL
from rffl_pl.servers.sign_sgd import SignSGD
from rffl_pl.servers.standalone import Standalone
from rffl_pl.servers.term import TERM
from rffl_pl.servers.trimmed_mean import TrimmedMean

__all__ = [
    "AFL", "ARC", "CFFL", "CGSV", "FLAME", "IAFL", "NNM", "QFFL", "RFFL", "TERM", "Bucketing", "Bulyan",
    "CenteredClipping", "Consensus", "DnC", "Evidence", "FLTrust", "FedAvg", "FedMGDA", "FedOpt", "FoolsGold",
    "GeometricMedian", "Median", "MultiKrum", "NormBound", "ParticipantSide", "Server", "SignSGD", "Standalone", "Task",
    "TrimmedMean", "Verdict",
]  # fmt: skip
