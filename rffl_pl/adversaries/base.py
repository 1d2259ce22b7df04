"""What every adversary is: somebody who uploads something else than its honest update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor


class Adversary(ABC):
    """Base of all attacks on the upload. The result passes through the same clipping as everybody's."""

    trains: ClassVar[bool] = True
    """Whether the adversary trains at all; if not, its update is zero."""

    @abstractmethod
    def upload(self, update: Tensor, generator: torch.Generator) -> Tensor:
        """What is uploaded, ``[D]``, instead of the honest ``update`` ``[D]``.

        Args:
            update: The honest update; not to be changed in place.
            generator: The adversary's own random stream of this round, on the CPU.
        """
