"""Servers that keep one model: everybody takes the same step and nothing else."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from rffl_pl.servers.base import Server, Verdict


class Consensus(Server):
    r"""Base of the servers under which all participants have the same model: :math:`w \leftarrow w + s`.

    A subclass gives the step s; nobody keeps its own update, nobody is removed. Uploads that are not finite are set
    aside before; without any left the step is 0.
    """

    @abstractmethod
    def aggregate(self, uploads: Tensor, senders: Tensor) -> tuple[Tensor, Tensor]:
        """The step and how much each upload weighed in it.

        Args:
            uploads: Finite uploads ``[m, D]``, m at least 1.
            senders: ``[m]`` int64, the participant behind every row, ascending.

        Returns:
            The step ``[D]`` and the weights ``[m]`` float64.
        """

    def kept(self, updates: Tensor) -> Tensor:
        return torch.zeros_like(updates)

    def rule(self, uploads: Tensor, senders: Tensor, sound: Tensor) -> Verdict:
        step = torch.zeros(uploads.shape[1], dtype=uploads.dtype, device=uploads.device)
        row_weights = torch.zeros(int(sound.sum()), dtype=torch.float64)
        if sound.any():
            step, row_weights = self.aggregate(uploads[sound.to(uploads.device)], senders[sound])
        weights = torch.zeros(len(self.members), dtype=torch.float64).scatter(0, senders[sound], row_weights.cpu())
        return Verdict(
            weights=weights,
            similarities=torch.full_like(weights, torch.nan),
            reputations=weights,
            quotas=self.members.double(),
            members=self.members,
            download=lambda participant: step,
        )
