"""A server with a diagnostic of its own; given by class path on the command line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rffl_pl.servers import FedAvg, Verdict


class Diagnosed(FedAvg):
    """The mean, which tells how long every upload was, from the second round on."""

    def step(self, uploads: Any, senders: Any, losses: Any = None) -> Verdict:
        verdict = super().step(uploads, senders, losses)
        lengths = torch.full_like(verdict.weights, torch.nan)
        for row, participant in zip(uploads, senders, strict=True):
            lengths[participant] = row.norm()
        return verdict if self.round == 1 else replace(verdict, measures={"length": lengths})
