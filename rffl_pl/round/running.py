"""BatchNorm's running statistics, which are a part of the model where all participants have one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rffl_pl.exchange import Exchange
from rffl_pl.functional.finite import all_finite
from rffl_pl.functional.streams import random_stream
from rffl_pl.round.given import keeping
from rffl_pl.round.handing import shares_model
from rffl_pl.round.table import of_server
from rffl_pl.servers import Consensus, Server, Verdict
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import running_statistics


class RunningStatistics:
    r"""The running statistics of one round, on one rank.

    They are measured in training, not learnt: what everybody who was asked has measured is sent beside its upload, and
    everybody gets what the server makes of it (`rffl_pl.servers.Consensus.pool`), whoever was not asked too. Nothing
    that looks at uploads sees them: no length, no angle, no optimizer. Whoever does not train, or fails to, sends what
    it got; with what cannot be computed with the upload is set aside. An upload that does not count takes its
    statistics along, and where none counts they stay as they are.

    Where participants keep something of their own, a model or a layer, their statistics are their own too.

    Args:
        cohort: The hosted participants.
        exchange: The way to the server and back.
        server: The rule, or its participants' half.
        round_index: The round, counted from 0.

    Attributes:
        size: S, their number of entries; 0 where there are none to share, and then nothing is done.
    """

    def __init__(self, cohort: Cohort, exchange: Exchange, server: Server, round_index: int) -> None:
        self.cohort, self.exchange, self.server, self.round_index = cohort, exchange, server, round_index
        entries = sum(buffer.numel() for buffer in running_statistics(cohort.networks[0]))
        self.size = entries if entries and self._one_model() else 0
        self._before: dict[int, Tensor] = {}
        self._sent: dict[int, Tensor] = {}

    @property
    def bytes(self) -> int:
        """What they are on the way, either way."""
        return 4 * self.size

    def begin(self) -> None:
        """Note the running statistics that the participants asked in this round begin with."""
        if self.size:
            asked = [i for i in self.exchange.hosted if i in self.exchange.asked]
            self._before = {i: self.cohort.statistics(self.cohort.row[i]) for i in asked}

    def upload(self) -> None:
        """Send the statistics after training to the ranks that serve, and give participants those they began with."""
        if not self.size:
            return
        measured = {i: self.cohort.statistics(self.cohort.row[i]) for i in self._before}
        for i, before in self._before.items():
            self.cohort.set_statistics(self.cohort.row[i], before)
        self._sent = self.exchange.gather_statistics(measured, self.size)

    def screen(self, uploads: Mapping[int, Tensor]) -> None:
        """Set uploads aside whose running statistics are not finite: fill them with NaN."""
        for i, statistics in self._sent.items():
            if not all_finite(statistics):
                uploads[i].fill_(torch.nan)

    def share(self, verdict: Verdict | None) -> None:
        """Give every member the statistics that the server has pooled."""
        if not self.size:
            return
        pooled = self._pooled(verdict) if verdict is not None and self.exchange.rank == 0 else None
        received = self.exchange.spread_statistics(pooled, self.size)
        if all_finite(received):
            for i in self.exchange.members:
                if i in self.cohort.row:
                    self.cohort.set_statistics(self.cohort.row[i], received)

    def _pooled(self, verdict: Verdict) -> Tensor:
        """What the server makes of those whose upload counts, within their range; NaN without any."""
        used = [i for i in self._sent if verdict.weights[i] != 0]
        if not used:
            return torch.full((self.size,), torch.nan)
        rows = torch.stack([self._sent[i] for i in used])
        lowest, highest = rows.aminmax(dim=0)
        with random_stream(0, rows.device), of_server(self.server, "pool running statistics", self.round_index):
            assert isinstance(self.server, Consensus)
            pooled = self.server.pool(rows, verdict.weights[used].to(rows.device))
        self.server.answerable.check_entries("what pool gives", pooled, self.size, "running statistics")
        # A variance stays positive, and what is the same everywhere stays the same, however sums are rounded.
        return pooled.to(rows).clamp(lowest, highest)

    def _one_model(self) -> bool:
        """Whether everybody's model is the same: nobody is handed another, or keeps anything of its own update."""
        server, ones = self.server, torch.ones_like(self.cohort.updates[0])
        if not shares_model(server):
            return False
        with random_stream(0, ones.device), keeping(server, self.round_index):
            return not server.kept(ones).any()
