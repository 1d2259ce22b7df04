"""One small class per framework: uploads in, a verdict out; state survives the round, nothing else does."""

from rffl_pl.servers.base import Server, Verdict
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.fedavg import FedAvg
from rffl_pl.servers.foolsgold import FoolsGold
from rffl_pl.servers.krum import MultiKrum
from rffl_pl.servers.median import Median
from rffl_pl.servers.rffl import RFFL
from rffl_pl.servers.standalone import Standalone

__all__ = ["RFFL", "Consensus", "FedAvg", "FoolsGold", "Median", "MultiKrum", "Server", "Standalone", "Verdict"]
