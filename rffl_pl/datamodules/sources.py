"""A data set as it comes, before it is divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from rffl_pl.datamodules.own import Own

HARM = {
    "train": "a model would be measured on what it was trained on",
    "test": "a server that trains on what is watched, or scores by it, would be tested on it",
}
"""What comes of it when a part of a data set is another one too."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """A data set as it comes: map-style datasets of (x, y), x a tensor and y a class from 0 on.

    Inputs must be finite and classes whole numbers; `FederatedDataModule` refuses what is not.

    For the split ``OWN`` each may be a function from a participant's number to the examples that are its own, called on
    the rank that hosts it alone: ``train``, and then ``test`` and ``validation`` too, or one of them.

    Attributes:
        train: What the participants' shards are cut from, or what is theirs.
        test: What final accuracies are measured on: everybody's model on the same examples, or on its own.
        validation: What accuracies are watched on during training; by default a share of ``train`` is held out, of
            examples that are somebody's own none.
        groups: For the split ``GROUPS``: which training examples belong together, a whole number from 0 on for each.
    """

    train: Dataset[Any] | Own
    test: Dataset[Any] | Own
    validation: Dataset[Any] | Own | None = None
    groups: Sequence[int] | Tensor | None = None

    def parts(self) -> dict[str, Dataset[Any] | Own]:
        """By what they are called in messages; validation only if there is any."""
        validation = {} if self.validation is None else {"validation": self.validation}
        return {"training": self.train, **validation, "test": self.test}
