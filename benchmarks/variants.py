"""What might have been run for the paper's RFFL where neither its text nor its authors' code reaches the figures.

python -m rffl_pl study benchmarks/cla.yaml --jobs 2
python -m rffl_pl study benchmarks/cla.yaml --table server
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rffl_pl.functional.rounding import tells_nothing
from rffl_pl.servers import RFFL, Verdict
from rffl_pl.servers.evidence import Evidence


class Balanced(RFFL):
    """RFFL with another balance between a participant's own update and what it downloads.

    Args:
        amplify: The download is multiplied by this before it is applied.
        keep_own: Whether a participant applies its own update; otherwise the download alone.
        kwargs: Options of RFFL.
    """

    def __init__(self, *, amplify: float = 1.0, keep_own: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.amplify, self.keep_own = amplify, keep_own

    def kept(self, update: Tensor) -> Tensor:
        return super().kept(update) if self.keep_own else torch.zeros_like(update)

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        # What is applied and what is sent are one thing in RFFL.
        return torch.zeros_like(update) if tells_nothing(update, model) else super().kept(update)

    def rule(self, evidence: Evidence) -> Verdict:
        verdict = super().rule(evidence)
        return replace(verdict, download=lambda participant: self.amplify * verdict.download(participant))
