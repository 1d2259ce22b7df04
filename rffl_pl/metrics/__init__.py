"""torchmetrics classes. Every rank keeps its own participants' values: nothing is merged across ranks."""

from rffl_pl.metrics.fairness import Fairness
from rffl_pl.metrics.scores import ParticipantScores

__all__ = ["Fairness", "ParticipantScores"]
