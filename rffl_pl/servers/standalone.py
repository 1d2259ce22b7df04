"""Standalone: everybody trains alone."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from rffl_pl.servers.base import Server, Verdict


class Standalone(Server):
    r"""No communication: :math:`w_i \leftarrow w_i + \Delta_i`. The reference that fairness is measured against."""

    communicates: ClassVar[bool] = False

    def rule(self, uploads: Tensor, senders: Tensor, sound: Tensor) -> Verdict:
        """Never asked: participants who do not communicate upload nothing."""
        raise RuntimeError("Standalone receives no uploads.")
