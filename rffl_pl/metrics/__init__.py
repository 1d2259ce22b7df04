"""torchmetrics classes. Every rank keeps its own participants' values: nothing is merged across ranks."""

from rffl_pl.metrics.fairness import CollaborationGain, Fairness, RankFairness
from rffl_pl.metrics.robustness import Detection, ReadAs, TakeHome
from rffl_pl.metrics.scores import ParticipantScores

__all__ = ["CollaborationGain", "Detection", "Fairness", "ParticipantScores", "RankFairness", "ReadAs", "TakeHome"]
