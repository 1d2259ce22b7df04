"""One small class per framework: uploads in, a verdict out; state survives the round, nothing else does."""

from rffl_pl.servers.base import Server, Verdict
from rffl_pl.servers.rffl import RFFL
from rffl_pl.servers.standalone import Standalone

__all__ = ["RFFL", "Server", "Standalone", "Verdict"]
