"""What every adversary is: somebody who trains on, or uploads, something else than the honest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from rffl_pl.configured import Configured


class Adversary(Configured, ABC):  # an attack overrides what it attacks, data or upload
    """Base of all attacks. What is uploaded passes through the same clipping as everybody's.

    An attack of your own overrides `labels` or `upload` and is given by class path:
    ``--adversaries+=my_package.MyAttack``. One that needs the honest uploads is an `OmniscientAdversary`.
    """

    trains: ClassVar[bool] = True
    """Whether the adversary trains at all; if not, its update is zero."""

    def prepare(self, num_classes: int) -> None:  # most attacks fit any task
        """Called before the first round.

        Raises:
            UserError: If the attack does not fit a task of so many classes.
        """

    def labels(self, y: Tensor) -> Tensor:
        """The classes ``[B]`` that the adversary trains with instead of ``y`` ``[B]``, which is not to be changed."""
        return y

    def upload(self, update: Tensor, generator: torch.Generator) -> Tensor:
        """What is uploaded, ``[D]``, instead of the ``update`` ``[D]``; anything of another shape is set aside.

        Args:
            update: The adversary's update from its own training; not to be changed in place.
            generator: The adversary's own random stream of this round, on the CPU.
        """
        return update


class OmniscientAdversary(Adversary):
    """Base of attacks by somebody who knows all honest uploads: a simulation, since nobody but the server does.

    `collude` runs on rank 0 after the uploads have been gathered, and the run says so. In its place `upload` is not
    called.
    """

    @abstractmethod
    def collude(self, honest: Tensor, generator: torch.Generator) -> Tensor:
        """What is uploaded, ``[D]``.

        Args:
            honest: The finite uploads of honest members as the server has them, ``[h, D]``, h at least 1; not to be
                changed in place.
            generator: The adversary's own random stream of this round, on the CPU.
        """
