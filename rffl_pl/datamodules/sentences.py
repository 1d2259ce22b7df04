"""Sentences of unequal length as batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from rffl_pl.datamodules.border import whole_labels

PADDING = 0


class Sentences(Dataset[tuple[Tensor, Tensor]]):
    """Sentences as token ids, at least one each, with their classes.

    An index gives one sentence ``[L]`` and its class; a tensor of B indices a batch ``[B, L]``, padded behind with
    `PADDING` to its longest sentence, and the classes ``[B]``.

    Args:
        ids: The token ids of every sentence.
        labels: Their classes.
        places: A text for each that says where it comes from, if that is known.

    Attributes:
        lengths: Number of tokens of every sentence.
        labels: Their classes.
        places: As given.
    """

    def __init__(self, ids: Sequence[Sequence[int]], labels: Sequence[int], places: Sequence[str] = ()) -> None:
        self.tokens = [torch.tensor(sentence, dtype=torch.int64) for sentence in ids]
        self.lengths = torch.tensor([len(sentence) for sentence in ids], dtype=torch.int64)
        self.labels = whole_labels(torch.as_tensor(list(labels)), "sentence", "the text")
        self.places = places

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int | Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(index, int) or index.dim() == 0:
            return self.tokens[int(index)], self.labels[int(index)]
        chosen = [self.tokens[i] for i in index.tolist()]
        return pad_sequence(chosen, batch_first=True, padding_value=PADDING), self.labels[index]

    def by_length(self, order: Tensor) -> Tensor:
        """The indices ``order`` ``[n]`` from short to long sentences; equally long ones stay in their order."""
        return order[self.lengths[order].argsort(stable=True)]

    def extremes(self) -> Tensor:
        """The indices of the longest sentence and of one with the largest id."""
        largest = torch.stack([sentence.max() for sentence in self.tokens])
        return torch.stack([self.lengths.argmax(), largest.argmax()])
