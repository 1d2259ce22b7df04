"""What happens around the training step: the exchange, the standalone reference, the report."""

from rffl_pl.callbacks.checkpointing import RoundCheckpoint
from rffl_pl.callbacks.ending import EndTogether
from rffl_pl.callbacks.every_round import RoundCallback
from rffl_pl.callbacks.interruption import Interruption
from rffl_pl.callbacks.predictions import PredictionWriter
from rffl_pl.callbacks.progress import RoundProgress
from rffl_pl.callbacks.report import RunReport
from rffl_pl.callbacks.reputation import ReputationExchange
from rffl_pl.callbacks.standalone import StandaloneReference

__all__ = [
    "EndTogether",
    "Interruption",
    "PredictionWriter",
    "ReputationExchange",
    "RoundCallback",
    "RoundCheckpoint",
    "RoundProgress",
    "RunReport",
    "StandaloneReference",
]
